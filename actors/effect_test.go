package actors_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// primary is the Workspace that a session works in.
func primary(h *actortest.House, session string) *actor.PID {
	v := actortest.Ask[*messages.SessionView](h, session, &messages.DescribeSession{})
	return h.Sys.NewLocalPID("troupe/workspace-" + v.GetWorkspaces()[0].GetId())
}

// dies ends a Workspace and waits for its successor.
func dies(t *testing.T, h *actortest.House, ws *actor.PID) {
	t.Helper()
	if err := h.Sys.Root.StopFuture(ws).Wait(); err != nil {
		t.Fatal(err)
	}
	actortest.Until(t, "there is a successor", func() bool {
		for _, a := range actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{}).GetRoot().GetChildren() {
			if strings.HasSuffix(ws.GetId(), "/"+a.GetId()) {
				return a.GetState() == "running" && a.GetRestarts() > 0
			}
		}
		return false
	})
}

// TestAnEffectThatOutlivesItsWorkspaceKeepsEverybodyElseOut: the successor of a Workspace that died knows what ran (I6).
func TestAnEffectThatOutlivesItsWorkspaceKeepsEverybodyElseOut(t *testing.T) {
	var running, most atomic.Int32
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`))),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			return "did", gate.Pass(ctx)
		})},
	})
	dir := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	first, _ := h.Create(&messages.CreateSession{Workspaces: dir})
	second, _ := h.Create(&messages.CreateSession{Workspaces: dir})
	one := submit(h, first, "go")
	actortest.Wait(t, "the first effect", gate.Came)
	ws := primary(h, first)
	for range 2 { // the successor may die, too
		dies(t, h, ws)
	}
	two := submit(h, second, "go")
	actortest.Until(t, "the second turn waits", func() bool { return look(t, h, ws).GetWaiting() == 1 })
	if v := look(t, h, ws); v.GetEffects() != 1 || len(v.GetHolders()) != 1 {
		t.Errorf("the successor knows of %v", v)
	}
	gate.Open()
	for s, in := range map[string]string{first: one, second: two} {
		if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in}); r.GetText() != "did\n" {
			t.Errorf("%v", r)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d effects at a time", most.Load())
	}
	works(t, h, first)
}

// TestAStaleHolderChangesNothingBetweenPrepareAndEffect: the dispatch of an edit, its files hashed already, is on its way to the
// disk when the token it carries becomes void.
func TestAStaleHolderChangesNothingBetweenPrepareAndEffect(t *testing.T) {
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{
		Store: store, Model: plainOr(actortest.CallThenSay(actortest.Call("1", "write_file", `{"path":"a.txt","content":"changed"}`))),
	})
	s, w := h.Create(&messages.CreateSession{})
	came, release := store.Hold(actortest.Is[*messages.ToolDispatched])
	in := submit(h, s, "go")
	actortest.Wait(t, "the dispatch", came)
	dies(t, h, primary(h, s))
	release()
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	f := actortest.Of[*messages.ToolFinished](h.Facts(w))
	if len(f) != 1 || f[0].GetStatus() != messages.ToolFinished_CANCELLED || !strings.HasPrefix(r.GetText(), "Not started: ") {
		t.Errorf("%v, the model reads %q", f, r.GetText())
	}
	if c := actortest.Ask[*messages.ToolReply](h, s, &messages.CallTool{Tool: "read_file", Arguments: `{"path":"a.txt"}`}); c.GetErrorCode() != tools.CodeFileNotFound {
		t.Errorf("there is a file: %v", c)
	}
	works(t, h, s)
}

func TestAStaleHolderRetriesNothing(t *testing.T) {
	p := cutOff(t, messages.UnknownOutcome_ASK)
	p.waits()
	p.h.Stop()
	store := &actortest.Store{Store: p.store.Reopen()}
	t.Cleanup(func() { _ = store.Close() })
	var runs atomic.Int32
	o := p.options(func(*tools.Context) (string, error) { runs.Add(1); return "paid", nil })
	o.Store = store
	p.h = actortest.New(t, o)
	p.waits()
	came, release := store.Hold(actortest.Is[*messages.ToolDispatched])
	if err := p.say(messages.CallResolved_RETRY, ""); err != nil {
		t.Fatal(err)
	}
	actortest.Wait(t, "the dispatch", came)
	dies(t, p.h, primary(p.h, p.s))
	release()
	r := actortest.Ask[*messages.TurnResult](p.h, p.s, &messages.AwaitTurn{InputId: p.in})
	if runs.Load() != 0 || !strings.HasPrefix(r.GetText(), "Not started: ") {
		t.Errorf("%d runs, %q", runs.Load(), r.GetText())
	}
}

// brittleTool panics where it is told to.
type brittleTool struct {
	tools.Tool
	prepare, reconcile bool
}

func (b brittleTool) Prepare(*tools.Context, json.RawMessage) ([]*messages.FileHash, error) {
	if b.prepare {
		panic("as the test wants it")
	}
	return nil, nil
}

func (b brittleTool) Reconcile(*tools.Context, json.RawMessage, []*messages.FileHash) (*tools.Result, error) {
	if b.reconcile {
		panic("as the test wants it")
	}
	return nil, errors.New("nobody knows")
}

// lines keeps what is logged, and panics on one line when told to.
type lines struct {
	slog.Handler
	mu    sync.Mutex
	all   []string
	panic string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.mu.Lock()
	l.all = append(l.all, text)
	hit := l.panic != "" && r.Message == l.panic
	l.mu.Unlock()
	if hit {
		panic("as the test wants it")
	}
	return nil
}

// stacks counts the lines that begin so and have a stack with a function in it.
func (l *lines) stacks(begin, function string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range l.all {
		if strings.HasPrefix(text, begin) && strings.Contains(text, function) {
			n++
		}
	}
	return n
}

func TestAPanicDuringPrepareIsTheResultOfItsCallAlone(t *testing.T) {
	log := &lines{}
	act := tool(t, "act", messages.Effect_RECONCILABLE, func(context.Context, string) (string, error) { t.Error("it ran"); return "", nil })
	h := actortest.New(t, actortest.Options{
		Log:   log,
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`), actortest.Call("2", "look", `{"name":"y"}`), actortest.Call("3", "note", `{"name":"z"}`))),
		Tools: []tools.Tool{
			brittleTool{Tool: act, prepare: true},
			tool(t, "look", pure, func(context.Context, string) (string, error) { return "saw", nil }),
			tool(t, "note", atMostOnce, func(context.Context, string) (string, error) { return "noted", nil }),
		},
	})
	s, w := h.Create(&messages.CreateSession{})
	if r := h.Run(s, "go"); r.GetText() != "Unexpected error: the tool crashed\nsaw\nnoted\n" {
		t.Errorf("%q", r.GetText())
	}
	facts := h.Facts(w)
	if f := actortest.Of[*messages.ToolFinished](facts); len(f) != 3 {
		t.Errorf("results: %v", f)
	}
	if d := actortest.Of[*messages.ToolDispatched](facts); len(d) != 1 || d[0].GetTool() != "note" {
		t.Errorf("dispatched: %v", d)
	}
	if n := log.stacks("tool panicked", "brittleTool"); n != 1 {
		t.Errorf("%d stacks in %q", n, log.all)
	}
	works(t, h, s)
}

func TestAPanicDuringReconcileLeavesTheOutcomeUnknown(t *testing.T) {
	store, gate, log := memory.New(), actortest.NewGate(), &lines{}
	t.Cleanup(func() { _ = store.Close() })
	var runs atomic.Int32
	options := func(s *memory.Store) actortest.Options {
		act := tool(t, "act", messages.Effect_RECONCILABLE, func(ctx context.Context, _ string) (string, error) { runs.Add(1); return "", gate.Pass(ctx) })
		return actortest.Options{
			Store: s, Log: log, Tools: []tools.Tool{brittleTool{Tool: act, reconcile: true}},
			Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`))),
		}
	}
	h := actortest.New(t, options(store))
	s, _ := h.Create(&messages.CreateSession{})
	in := submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	h.Stop()
	again := store.Reopen()
	t.Cleanup(func() { _ = again.Close() })
	h = actortest.New(t, options(again))
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	if !strings.HasPrefix(r.GetText(), "Interrupted: the outcome of this call is unknown") || runs.Load() != 1 || log.stacks("tool panicked", "Reconcile") != 1 {
		t.Errorf("%q after %d runs, logged %q", r.GetText(), runs.Load(), log.all)
	}
}

// TestAPanicOfTheExecutorItselfLosesNoCall: it dies while it gives up a call, beside one that may run again and one that
// must not. Each gets one result; what must not run twice does not.
func TestAPanicOfTheExecutorItselfLosesNoCall(t *testing.T) {
	log := &lines{panic: "tool does not end"}
	var acted, looked atomic.Int32
	stuck := make(chan struct{})
	slow := tools.Spec{Name: "slow", Description: "Takes too long. Example: `{\"name\": \"x\"}`", Effect: atMostOnce, Timeout: 200 * time.Millisecond}
	act, err := tools.Func(slow, func(*tools.Context, nameArg) (*tools.Result, error) {
		acted.Add(1)
		<-stuck
		return &tools.Result{Content: "did"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := actortest.New(t, actortest.Options{
		Log: log, Limits: actors.Limits{Grace: time.Millisecond},
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "slow", `{"name":"x"}`), actortest.Call("2", "look", `{"name":"y"}`))),
		Tools: []tools.Tool{act, tool(t, "look", pure, func(ctx context.Context, _ string) (string, error) {
			if looked.Add(1) == 1 {
				<-ctx.Done() // ends with its executor
				return "", ctx.Err()
			}
			return "saw", nil
		})},
	})
	s, w := h.Create(&messages.CreateSession{})
	in := submit(h, s, "go")
	actortest.Until(t, "the executor has died", func() bool { return log.stacks("tool executor panicked", "(*ToolExecutor).overdue") == 1 })
	close(stuck)
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	want := "did\nsaw\n"
	if acted.Load() == 0 { // the machine was so slow that it was given up before it began
		want = r.GetText()
	}
	if r.GetText() != want || acted.Load() > 1 || !strings.HasSuffix(want, "\nsaw\n") {
		t.Errorf("%q after %d runs", r.GetText(), acted.Load())
	}
	if f := actortest.Of[*messages.ToolFinished](h.Facts(w)); len(f) != 2 || h.Worker(s).GetRestarts() != 0 {
		t.Errorf("results %v, %d restarts", f, h.Worker(s).GetRestarts())
	}
	works(t, h, s)
}

// TestAToolMaySendOneSignOfLifeAgainAndAgain: what is sent is a copy. The house looks at its end whether a message was written to.
func TestAToolMaySendOneSignOfLifeAgainAndAgain(t *testing.T) {
	spec := tools.Spec{Name: "counting", Description: "Counts. Example: `{\"name\": \"x\"}`", Effect: messages.Effect_PURE}
	counting, err := tools.Func(spec, func(c *tools.Context, _ nameArg) (*tools.Result, error) {
		p := &messages.Progress{Unit: "things"}
		for p.Done = range int64(3) {
			c.Progress(p)
		}
		if p.GetExecId() != "" {
			t.Error("the tool's own was written to")
		}
		return &tools.Result{Content: "counted"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := actortest.New(t, actortest.Options{
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "counting", `{"name":"x"}`))), Tools: []tools.Tool{counting},
	})
	s, _ := h.Create(&messages.CreateSession{First: &messages.SubmitInput{Parts: actortest.Text("go")}})
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{}); r.GetText() != "counted\n" {
		t.Errorf("%q", r.GetText())
	}
}

// TestWhatACrashLeftOfAWriteIsSweptBeforeTheFirstEffectThere: after a crash, once, and nothing else goes with it.
func TestWhatACrashLeftOfAWriteIsSweptBeforeTheFirstEffectThere(t *testing.T) {
	for _, crashed := range []bool{true, false} {
		data, dir := t.TempDir(), t.TempDir()
		old := time.Now().Add(-time.Hour)
		put := func(name string, at time.Time) {
			t.Helper()
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("half"), 0o600), os.Chtimes(path, at, at)); err != nil {
				t.Fatal(err)
			}
		}
		left, young := "sub/.troupe-tmp-0123456789abcdef", ".troupe-tmp-1123456789abcdef"
		put(left, old)
		put(young, time.Now())
		put(".troupe-tmp-of-a-user", old)
		if crashed {
			if err := os.WriteFile(filepath.Join(data, "running"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var gone []bool
		h := actortest.New(t, actortest.Options{
			DataDir: data, Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`))),
			Tools: []tools.Tool{tool(t, "act", atMostOnce, func(context.Context, string) (string, error) {
				_, err := os.Stat(filepath.Join(dir, left))
				gone = append(gone, errors.Is(err, fs.ErrNotExist))
				return "did", nil
			})},
		})
		s, _ := h.Create(&messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + dir, Trust: messages.Trust_FULL}}})
		h.Run(s, "go")
		put(left, old)
		h.Run(s, "go")
		if len(gone) != 2 || gone[0] != crashed || gone[1] { // the tree is looked through once
			t.Errorf("crashed %v: it was gone when the effects began: %v", crashed, gone)
		}
		for _, name := range []string{young, ".troupe-tmp-of-a-user"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Errorf("crashed %v: %v", crashed, err)
			}
		}
		h.Stop()
		if _, err := os.Stat(filepath.Join(data, "running")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an orderly end leaves its mark: %v", err)
		}
	}
}
