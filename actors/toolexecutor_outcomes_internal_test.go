package actors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// odd is a tool that does what a test says.
type odd struct {
	effect    messages.Effect_Class
	run       func(tc *tools.Context) (*tools.Result, error)
	prepare   func() ([]*messages.FileHash, error)
	reconcile func() (*tools.Result, error)
}

func (o *odd) Spec() *tools.Spec {
	effect := o.effect
	if effect == messages.Effect_UNSPECIFIED {
		effect = messages.Effect_AT_MOST_ONCE
	}
	return &tools.Spec{
		Name: "odd", Description: "Does what a test says.", Schema: json.RawMessage(`{"type":"object"}`),
		Effect: effect, NoWorkspace: true,
	}
}

func (o *odd) Run(tc *tools.Context, _ json.RawMessage) (*tools.Result, error) {
	if o.run == nil {
		return nil, nil //nolint:nilnil // a tool that has nothing to say
	}
	return o.run(tc)
}

// files is odd with files of which it tells the state before it runs.
type files struct{ odd }

func (f *files) Prepare(*tools.Context, json.RawMessage) ([]*messages.FileHash, error) {
	return f.prepare()
}

func (f *files) Reconcile(*tools.Context, json.RawMessage, []*messages.FileHash) (*tools.Result, error) {
	return f.reconcile()
}

func oddRun(t *testing.T, tool tools.Tool, m *messages.Execute) (*run, *bytes.Buffer) {
	t.Helper()
	reg, err := tools.NewRegistry(tool)
	if err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	m.ExecId, m.Tool, m.TimeoutMs = "exe_1", "odd", 60_000
	if m.Arguments == "" {
		m.Arguments = "{}"
	}
	svc := &Services{
		Tools: reg, Redact: hides("s3cret"), Log: slog.New(slog.NewTextHandler(log, nil)), TempDir: t.TempDir(),
		Env: func(string, []*messages.EnvVar, messages.Trust_Level) ([]string, error) { return nil, nil },
	}
	if svc.ledger, err = tools.OpenLedger(t.TempDir(), time.Now); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := svc.ledger.Close(); err != nil {
			t.Error(err)
		}
	})
	return &run{svc: svc, m: m, start: time.Now()}, log
}

func panics() ([]*messages.FileHash, error) { panic("prepared badly") }

// TestEveryEndOfACallHasItsAnswer walks what a tool can come to, whatever it was asked for.
func TestEveryEndOfACallHasItsAnswer(t *testing.T) {
	boom := errors.New("boom")
	approved := tools.ApprovalHash("odd", make([]byte, 32), "")
	at := []*messages.FileHash{{Path: "a.txt", Sha256: "1"}}
	seen := func(f []*messages.FileHash, err error) func() ([]*messages.FileHash, error) {
		return func() ([]*messages.FileHash, error) { return f, err }
	}
	for name, c := range map[string]struct {
		tool   tools.Tool
		ask    *messages.Execute
		status messages.ToolFinished_Status
		code   string
		text   string // in the content
		log    string // in the log
		is     func(r *messages.ToolReply) bool
	}{
		"nothing to say": {tool: &odd{}, status: messages.ToolFinished_OK},
		"details that are no JSON": {tool: &odd{run: func(*tools.Context) (*tools.Result, error) {
			return &tools.Result{Content: "fine", Meta: map[string]any{"f": func() {}}}, nil
		}}, status: messages.ToolFinished_OK, text: "fine", is: func(r *messages.ToolReply) bool { return r.GetMetaJson() == "" }},
		"a defect": {
			tool:   &odd{run: func(*tools.Context) (*tools.Result, error) { return nil, boom }},
			status: messages.ToolFinished_ERROR, code: tools.CodeInternalError, text: "Unexpected error: boom", log: "tool failed unexpectedly",
		},
		"its own time": {
			tool:   &odd{run: func(*tools.Context) (*tools.Result, error) { return nil, tools.Errorf(tools.CodeTimeout, "too slow") }},
			status: messages.ToolFinished_TIMEOUT, code: tools.CodeTimeout, text: "too slow",
		},
		"its own cancel": {
			tool:   &odd{run: func(*tools.Context) (*tools.Result, error) { return nil, tools.Errorf(tools.CodeCancelled, "given up") }},
			status: messages.ToolFinished_CANCELLED, code: tools.CodeCancelled, text: "given up",
		},
		"its own word that nobody knows": {
			tool:   &odd{run: func(*tools.Context) (*tools.Result, error) { return nil, tools.ErrorUnknown("it went away") }},
			status: messages.ToolFinished_INTERRUPTED_UNKNOWN, code: tools.CodeInterrupted, text: "it went away. " + conversation.InterruptedText,
		},
		"never begun": {
			tool: &odd{run: func(*tools.Context) (*tools.Result, error) {
				return nil, tools.Errorf(tools.CodeInterrupted, "Not started")
			}},
			status: messages.ToolFinished_ERROR, code: tools.CodeInterrupted, text: "Not started",
		},
		"bad arguments": {tool: &odd{run: func(*tools.Context) (*tools.Result, error) {
			return nil, tools.Errorf(tools.CodeInvalidArguments, "not so")
		}}, status: messages.ToolFinished_BAD_ARGS, code: tools.CodeInvalidArguments, text: "not so"},

		"prepared though it cannot be": {
			tool: &odd{}, ask: &messages.Execute{Prepare: true}, status: messages.ToolFinished_OK,
			is: func(r *messages.ToolReply) bool { return r.GetPrepared() && len(r.GetFiles()) == 0 },
		},
		"prepared with a panic": {
			tool: &files{odd{prepare: panics}}, ask: &messages.Execute{Prepare: true},
			status: messages.ToolFinished_ERROR, code: tools.CodeInternalError, text: "the tool crashed", log: "prepared badly",
		},
		"prepared in vain": {
			tool: &files{odd{prepare: seen(nil, tools.Errorf(tools.CodeFileNotFound, "File not found: a.txt"))}},
			ask:  &messages.Execute{Prepare: true}, status: messages.ToolFinished_ERROR, code: tools.CodeFileNotFound, text: "File not found",
		},
		"prepared with other arguments": {
			tool: &files{odd{prepare: seen(at, nil)}}, ask: &messages.Execute{Prepare: true, ApprovedHash: approved},
			status: messages.ToolFinished_ERROR, code: tools.CodeConcurrentModification, text: "not what was approved",
		},

		"shown": {
			tool: &odd{}, ask: &messages.Execute{Preview: true}, status: messages.ToolFinished_OK,
			is: func(r *messages.ToolReply) bool {
				return r.GetPreviewed() && r.GetPreviewKind() == tools.PreviewArguments
			},
		},

		"run with other arguments than approved": {
			tool: &odd{}, ask: &messages.Execute{ApprovedHash: approved},
			status: messages.ToolFinished_ERROR, code: tools.CodeConcurrentModification, text: "not what was approved",
		},

		"reconciled though it cannot be": {
			tool: &odd{}, ask: &messages.Execute{Reconcile: true},
			status: messages.ToolFinished_INTERRUPTED_UNKNOWN, code: tools.CodeInterrupted, is: (*messages.ToolReply).GetUnknown,
		},
		"reconciled as done": {
			tool: &files{odd{reconcile: func() (*tools.Result, error) { return &tools.Result{Content: "was done"}, nil }}},
			ask:  &messages.Execute{Reconcile: true}, status: messages.ToolFinished_OK, text: "was done",
		},
		"reconciled as not done": {
			tool: &files{odd{reconcile: func() (*tools.Result, error) { return nil, tools.ErrNotDone }}},
			ask:  &messages.Execute{Reconcile: true}, status: messages.ToolFinished_ERROR, is: (*messages.ToolReply).GetNotDone,
		},
		"reconciled without a word": {
			tool: &files{odd{reconcile: func() (*tools.Result, error) { return nil, boom }}},
			ask:  &messages.Execute{Reconcile: true}, status: messages.ToolFinished_INTERRUPTED_UNKNOWN, code: tools.CodeInterrupted,
			log: "cannot be reconciled", is: (*messages.ToolReply).GetUnknown,
		},
		"reconciled with a panic": {
			tool: &files{odd{reconcile: func() (*tools.Result, error) { panic("looked badly") }}},
			ask:  &messages.Execute{Reconcile: true}, status: messages.ToolFinished_INTERRUPTED_UNKNOWN, code: tools.CodeInterrupted,
			log: "looked badly", is: (*messages.ToolReply).GetUnknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.ask
			if m == nil {
				m = &messages.Execute{}
			}
			r, log := oddRun(t, c.tool, m)
			got := r.fit(r.do(t.Context()))
			if got.GetStatus() != c.status || got.GetErrorCode() != c.code || !strings.Contains(got.GetContent(), c.text) || got.GetExecId() != "exe_1" {
				t.Errorf("came to %v", got)
			}
			if c.is != nil && !c.is(got) {
				t.Errorf("is not as expected: %v", got)
			}
			if !strings.Contains(log.String(), c.log) || c.log == "" && log.Len() > 0 {
				t.Errorf("logged %q", log)
			}
		})
	}
}

// TestFilesThatChangedSinceTheyWereShownKeepACallFromRunning, one that finds another world than the person saw, too.
func TestFilesThatChangedSinceTheyWereShownKeepACallFromRunning(t *testing.T) {
	_, sum, err := tools.Canonical([]byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	shown := []*messages.FileHash{{Path: "a.txt", Sha256: "1"}}
	for name, c := range map[string]struct {
		now    []*messages.FileHash
		err    error
		crash  bool
		status messages.ToolFinished_Status
		code   string
	}{
		"the same": {now: shown, status: messages.ToolFinished_OK},
		"another":  {now: []*messages.FileHash{{Path: "a.txt", Sha256: "2"}}, status: messages.ToolFinished_ERROR, code: tools.CodeConcurrentModification},
		"gone":     {err: tools.Errorf(tools.CodeFileNotFound, "gone"), status: messages.ToolFinished_ERROR, code: tools.CodeConcurrentModification},
		"a panic":  {crash: true, status: messages.ToolFinished_ERROR, code: tools.CodeInternalError},
	} {
		for _, prepare := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				ran := false
				tool := &files{odd{
					effect: messages.Effect_RECONCILABLE,
					run:    func(*tools.Context) (*tools.Result, error) { ran = true; return &tools.Result{}, nil },
					prepare: func() ([]*messages.FileHash, error) {
						if c.crash {
							panic("prepared badly")
						}
						return c.now, c.err
					},
				}}
				r, _ := oddRun(t, tool, &messages.Execute{
					Prepare: prepare, ApprovedHash: tools.ApprovalHash("odd", sum[:], ""), ApprovedFiles: shown,
				})
				got := r.do(t.Context())
				if got.GetStatus() != c.status || got.GetErrorCode() != c.code || ran != (name == "the same" && !prepare) {
					t.Errorf("ran %v, came to %v", ran, got)
				}
			})
		}
	}
}

// TestWhatSurroundsACallMayFailAndIsItsResult: the environment, the program's values, the temporary folder, the ledger.
func TestWhatSurroundsACallMayFailAndIsItsResult(t *testing.T) {
	boom := errors.New("boom")
	ran := false
	tool := &odd{run: func(*tools.Context) (*tools.Result, error) { ran = true; return nil, nil }} //nolint:nilnil // nothing to say
	for name, c := range map[string]struct {
		spoil func(svc *Services)
		code  string
		ran   bool
	}{
		"environment": {func(s *Services) {
			s.Env = func(string, []*messages.EnvVar, messages.Trust_Level) ([]string, error) { return nil, boom }
		}, tools.CodeInvalidArguments, false},
		"values": {func(s *Services) {
			s.Values = func(context.Context, Call) (map[any]any, error) { return nil, boom }
		}, tools.CodeInternalError, false},
		"temporary folder": {func(s *Services) { s.TempDir += "/missing" }, tools.CodeInternalError, false},
		"ledger": {func(s *Services) {
			dir := t.TempDir() + "/ledger"
			l, err := tools.OpenLedger(dir, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			s.ledger = l
		}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			ran = false
			r, log := oddRun(t, tool, &messages.Execute{})
			c.spoil(r.svc)
			if got := r.do(t.Context()); got.GetErrorCode() != c.code || ran != c.ran {
				t.Errorf("ran %v, came to %v", ran, got)
			}
			if name == "ledger" && strings.Count(log.String(), "not in the ledger") != 1 {
				t.Errorf("logged %q", log)
			}
		})
	}
}

// TestAnEffectNeedsItsLease: neither a call nor what it leaves running begins without one.
func TestAnEffectNeedsItsLease(t *testing.T) {
	tool := &odd{effect: messages.Effect_RECONCILABLE, run: func(tc *tools.Context) (*tools.Result, error) {
		if _, err := tc.Hold("job_1", func(string) {}); err != nil {
			return nil, err
		}
		return nil, errors.New("it was held without a lease")
	}}
	r, _ := oddRun(t, tool, &messages.Execute{})
	if got := r.do(t.Context()); got.GetErrorCode() != tools.CodeInterrupted || !strings.Contains(got.GetContent(), "not held") {
		t.Errorf("came to %v", got)
	}
	r, _ = oddRun(t, tool, &messages.Execute{Workspace: &messages.WorkspaceGrant{Id: "ws_1"}})
	if got := r.do(t.Context()); got.GetStatus() != messages.ToolFinished_CANCELLED || !strings.Contains(got.GetContent(), "not held") {
		t.Errorf("came to %v", got)
	}
}

// TestACallThatIsAskedForTwiceRunsOnce, and one that does not end is answered for.
func TestACallThatIsAskedForTwiceRunsOnce(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	tool := &odd{run: func(*tools.Context) (*tools.Result, error) {
		close(began)
		<-end
		return &tools.Result{Content: "once"}, nil
	}}
	r, _ := oddRun(t, tool, &messages.Execute{})
	svc, sys := wired(t, r.svc)
	pid := sys.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return newToolExecutor(svc) }))
	first := sys.Root.RequestFuture(pid, r.m, time.Minute)
	<-began
	second, err := act.Ask[*messages.ToolReply](t.Context(), sys, pid, r.m)
	if err != nil || second.GetErrorCode() != tools.CodeDuplicateCallID {
		t.Errorf("the second was answered %v (%v)", second, err)
	}
	close(end)
	got, err := first.Result()
	if reply, ok := got.(*messages.ToolReply); err != nil || !ok || reply.GetContent() != "once" {
		t.Errorf("the first was answered %v (%v)", got, err)
	}
	if err := sys.Root.StopFuture(pid).Wait(); err != nil {
		t.Error(err)
	}
}

// TestWhatCannotBeLookedAtInTimeHadNoEffect: nobody knows nothing of it, other than of a call that ran.
func TestWhatCannotBeLookedAtInTimeHadNoEffect(t *testing.T) {
	for _, prepare := range []bool{true, false} {
		end := make(chan struct{})
		tool := &files{odd{
			prepare: func() ([]*messages.FileHash, error) { <-end; return nil, nil },
			run:     func(*tools.Context) (*tools.Result, error) { <-end; return nil, nil }, //nolint:nilnil // nothing to say
		}}
		r, _ := oddRun(t, tool, &messages.Execute{Prepare: prepare})
		r.m.TimeoutMs = 1
		svc, sys := wired(t, r.svc)
		pid := sys.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return newToolExecutor(svc) }))
		got, err := act.Ask[*messages.ToolReply](t.Context(), sys, pid, r.m)
		want := tools.CodeInterrupted
		if prepare {
			want = tools.CodeTimeout
		}
		if err != nil || got.GetErrorCode() != want {
			t.Errorf("answered %v (%v)", got, err)
		}
		close(end)
		if err := sys.Root.StopFuture(pid).Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestACallIsGivenUpInItsOwnTimeAfterOneThatEnded: what looks for calls that do not end was set for the one before.
func TestACallIsGivenUpInItsOwnTimeAfterOneThatEnded(t *testing.T) {
	for _, before := range []time.Duration{time.Millisecond, time.Hour} {
		end := make(chan struct{})
		tool := &odd{run: func(tc *tools.Context) (*tools.Result, error) {
			if tc.ExecID == "stuck" {
				<-end
			}
			return &tools.Result{Content: "ended"}, nil
		}}
		r, _ := oddRun(t, tool, &messages.Execute{})
		svc, sys := wired(t, r.svc)
		pid := sys.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return newToolExecutor(svc) }))
		ask := func(exec string, timeout time.Duration) *messages.ToolReply {
			m := proto.CloneOf(r.m)
			m.ExecId, m.TimeoutMs = exec, timeout.Milliseconds()
			reply, err := act.Ask[*messages.ToolReply](t.Context(), sys, pid, m)
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		ask("ends", before)
		began := time.Now()
		const own = 50 * time.Millisecond
		if got := ask("stuck", own); got.GetErrorCode() != tools.CodeInterrupted || time.Since(began) < own {
			t.Errorf("after one of %v it was answered %v in %v", before, got, time.Since(began))
		}
		close(end)
		if err := sys.Root.StopFuture(pid).Wait(); err != nil {
			t.Error(err)
		}
	}
}

// wired gives services what an executor needs of the house: goroutines, and a system. They have ended when the test has.
func wired(t *testing.T, svc *Services) (*Services, *actor.ActorSystem) {
	t.Helper()
	svc.pool, svc.running = act.NewPool(), &sync.WaitGroup{}
	svc.Limits.Grace, svc.Limits.Jobs = time.Millisecond, 1
	t.Cleanup(func() { svc.running.Wait(); svc.pool.Close() })
	return svc, act.NewSystem(slog.New(slog.DiscardHandler))
}

// TestAHookIsToldOfNoSecret, whatever the effect class of the call.
func TestAHookIsToldOfNoSecret(t *testing.T) {
	for _, effect := range []messages.Effect_Class{messages.Effect_PURE, messages.Effect_AT_MOST_ONCE} {
		r, _ := oddRun(t, &odd{effect: effect, run: func(*tools.Context) (*tools.Result, error) {
			return &tools.Result{Content: "it is s3cret"}, nil
		}}, &messages.Execute{})
		told := ""
		r.svc.Hooks.AfterCall = func(_ context.Context, _ Call, _ *tools.Context, reply *messages.ToolReply) {
			told = reply.GetContent()
		}
		r.do(t.Context())
		if told != "it is ***" {
			t.Errorf("the hook was told %q", told)
		}
	}
}

// TestAnEditOfAFieldThatIsNotAnsweredMayBeMade: who gives up a wait does not know.
func TestAnEditOfAFieldThatIsNotAnsweredMayBeMade(t *testing.T) {
	live := t.Context()
	dead, cancel := context.WithCancel(live)
	cancel()
	late, cancel := context.WithTimeout(live, 0)
	defer cancel()
	for what, c := range map[string]struct {
		ctx     context.Context
		err     error
		code    string
		unknown bool
	}{
		"the Workspace was silent": {live, fmt.Errorf("ask: %w", context.DeadlineExceeded), tools.CodeInterrupted, true},
		"it was being replaced":    {live, messages.Fail(messages.CodeUnavailable, "the workspace is stopping", ""), tools.CodeInterrupted, true},
		"the call was late":        {late, context.DeadlineExceeded, tools.CodeInterrupted, true},
		"it refused":               {live, messages.Fail("field_read_only", "no", ""), "field_read_only", false},
		"the call was cancelled":   {dead, context.Canceled, "", false},
	} {
		var e *tools.Error
		switch err := notSet(c.ctx, c.err); {
		case c.code == "" && !errors.Is(err, context.Canceled):
			t.Errorf("%s: %v", what, err)
		case c.code != "" && (!errors.As(err, &e) || e.Code != c.code || e.Unknown != c.unknown || c.unknown != strings.HasSuffix(e.Message, conversation.InterruptedText)):
			t.Errorf("%s: %+v", what, e)
		}
	}
}
