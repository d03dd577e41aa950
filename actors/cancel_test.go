package actors_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// cancelled cancels a session's turn and checks how it ended, that nothing is left over and that the next
// turn runs.
func cancelled(t *testing.T, h *actortest.House, session string) *messages.TurnResult {
	t.Helper()
	result := actortest.Later[*messages.TurnResult](h, session, &messages.AwaitTurn{})
	c := actortest.Ask[*messages.Cancelled](h, session, &messages.CancelSession{By: "user", Reason: "enough"})
	if c.GetTurns() != 1 {
		t.Errorf("%d turns cancelled", c.GetTurns())
	}
	r := actortest.Wait(t, "the result", result)
	if r.Err != nil || r.Reply.GetOutcome() != messages.TurnCompleted_ABORTED || r.Reply.GetReason() != "enough" {
		t.Errorf("the turn ended as %v %v", r.Reply, r.Err)
	}
	return r.Reply
}

// works runs one more turn: no lease and no permit is gone.
func works(t *testing.T, h *actortest.House, session string) {
	t.Helper()
	if r := h.Run(session, "plain"); r.GetOutcome() != messages.TurnCompleted_DONE || r.GetText() != "ok" {
		t.Errorf("the next turn ended as %v", r)
	}
	v := actortest.Ask[*messages.SessionView](h, session, &messages.DescribeSession{})
	for _, g := range v.GetWorkspaces() {
		actortest.Until(t, "nobody holds "+g.GetUri(), func() bool {
			w := look(t, h, h.Sys.NewLocalPID("troupe/workspace-"+g.GetId()))
			return len(w.GetHolders()) == 0 && w.GetWaiting() == 0 && w.GetEffects() == 0
		})
	}
}

// plainOr answers "plain" with ok, and everything else with fn.
func plainOr(fn actortest.Model) actortest.Model {
	return func(ctx context.Context, r *model.Request) actortest.Reply {
		if actortest.Asked(r) == "plain" {
			return actortest.Reply{Text: "ok"}
		}
		return fn(ctx, r)
	}
}

func submit(h *actortest.House, session, text string) string {
	return actortest.Ask[*messages.InputReply](h, session, &messages.SubmitInput{Parts: actortest.Text(text)}).GetInputId()
}

func TestACancelEndsATurnThatWaitsForItsLease(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{Model: plainOr(func(ctx context.Context, _ *model.Request) actortest.Reply {
		return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
	})})
	dir := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	first, _ := h.Create(&messages.CreateSession{Workspaces: dir})
	second, w := h.Create(&messages.CreateSession{Workspaces: dir})
	submit(h, first, "hold it")
	actortest.Wait(t, "the first turn", gate.Came)
	in := submit(h, second, "plain") // accepted while its lease is awaited
	waits := actortest.Later[*messages.TurnResult](h, second, &messages.AwaitTurn{InputId: in})
	h.State(second, "waiting")
	actortest.Ask[*messages.Cancelled](h, second, &messages.CancelSession{})
	if a := actortest.Wait(t, "an answer", waits); actortest.Code(a.Err) != messages.CodeWithdrawn {
		t.Errorf("told %v %v", a.Reply, a.Err)
	}
	if n := len(actortest.Of[*messages.TurnStarted](h.Facts(w))); n != 0 {
		t.Errorf("%d turns began", n)
	}
	h.State(second, "inactive")
	gate.Open()
	works(t, h, second)
	works(t, h, first)
}

func TestACancelEndsATurnThatWaitsForItsPermit(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{ModelCalls: 1},
		Model: plainOr(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	first, _ := h.Create(&messages.CreateSession{})
	second, _ := h.Create(&messages.CreateSession{})
	submit(h, first, "hold the permit")
	actortest.Wait(t, "the first call", gate.Came)
	submit(h, second, "plain")
	h.Generating(second)
	cancelled(t, h, second)
	gate.Open()
	works(t, h, second)
}

func TestACancelEndsAModelCallThatHasSaidNothing(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{Model: plainOr(func(ctx context.Context, _ *model.Request) actortest.Reply {
		return actortest.Reply{Err: gate.Pass(ctx)}
	})})
	s, _ := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	cancelled(t, h, s)
	works(t, h, s)
	history := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{})
	if len(history.GetTurns()) != 1 {
		t.Errorf("an aborted input that nobody answered is committed: %v", history)
	}
}

func TestAnAnswerThatComesAfterTheCancelStartsNoTool(t *testing.T) {
	gate := actortest.NewGate()
	var ran atomic.Int32
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{
		Store: store,
		// The answer was taken whole when the cancel came, and its stream ends after it.
		Model: plainOr(func(_ context.Context, r *model.Request) actortest.Reply {
			return actortest.Reply{
				Calls: []*messages.ToolCall{actortest.Call("1", "act", `{"name":"x"}`), actortest.Call("2", "act", `{"name":"y"}`), actortest.Call("3", "look", `{"name":"z"}`)},
				Late:  func() { _ = gate.Pass(context.Background()) },
			}
		}),
		Tools: []tools.Tool{
			tool(t, "act", atMostOnce, func(context.Context, string) (string, error) { ran.Add(1); return "did", nil }),
			tool(t, "look", pure, func(context.Context, string) (string, error) { ran.Add(1); return "saw", nil }),
		},
	})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the answer", gate.Came)
	cancel := actortest.Later[*messages.Cancelled](h, s, &messages.CancelSession{})
	actortest.Until(t, "the cancel is durable", func() bool { return len(actortest.Of[*messages.CancelRequested](h.Facts(w))) == 1 })
	gate.Open()
	if a := actortest.Wait(t, "the cancel's answer", cancel); a.Err != nil {
		t.Fatal(a.Err)
	}
	if n := ran.Load(); n != 0 {
		t.Errorf("%d tools ran after the cancel", n)
	}
	if d := actortest.Of[*messages.ToolDispatched](h.Facts(w)); len(d) != 0 {
		t.Errorf("%d calls dispatched after the cancel", len(d))
	}
	works(t, h, s)
}

func TestACancelEndsThePauseBeforeARetry(t *testing.T) {
	var tries atomic.Int32
	h := actortest.New(t, actortest.Options{Model: plainOr(func(context.Context, *model.Request) actortest.Reply {
		tries.Add(1)
		return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "later", RetryAfter: time.Hour}}
	})})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Until(t, "the failure is written down", func() bool { return len(actortest.Of[*messages.GenerationFailed](h.Facts(w))) == 1 })
	cancelled(t, h, s)
	if tries.Load() != 1 {
		t.Errorf("%d tries", tries.Load())
	}
	works(t, h, s)
}

func TestACancelStopsTheRunningCallAndTheOnesBehindItNeverStart(t *testing.T) {
	gate := actortest.NewGate()
	var ran atomic.Int32
	var calls []*messages.ToolCall
	for range 5 {
		calls = append(calls, actortest.Call("1", "act", `{"name":"x"}`))
	}
	h := actortest.New(t, actortest.Options{
		Model: plainOr(actortest.CallThenSay(calls...)),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) {
			ran.Add(1)
			return "", gate.Pass(ctx)
		})},
	})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the first call", gate.Came)
	cancelled(t, h, s)
	if n := ran.Load(); n != 1 {
		t.Errorf("%d of 5 calls ran", n)
	}
	finished := actortest.Of[*messages.ToolFinished](h.Facts(w))
	for _, f := range finished {
		if f.GetStatus() != messages.ToolFinished_CANCELLED {
			t.Errorf("a call finished as %v", f.GetStatus())
		}
	}
	if len(finished) != 5 {
		t.Errorf("%d of 5 calls are closed", len(finished))
	}
	works(t, h, s)
}

func TestACancelWhileACallsStartIsWrittenKeepsItFromRunning(t *testing.T) {
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	var ran atomic.Int32
	h := actortest.New(t, actortest.Options{
		Store: store,
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`), actortest.Call("2", "act", `{"name":"y"}`))),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(context.Context, string) (string, error) { ran.Add(1); return "", nil })},
	})
	s, w := h.Create(&messages.CreateSession{})
	first := true
	came, release := store.Hold(func(f proto.Message) bool { // the second call's, which has an append of its own
		if !actortest.Is[*messages.ToolDispatched](f) {
			return false
		}
		was := first
		first = false
		return !was
	})
	submit(h, s, "go")
	actortest.Wait(t, "the dispatch of the second call", came)
	p := newProbe(h)
	defer p.die(t)
	p.send(h.Root, actortest.Command(s, &messages.CancelSession{}))
	h.Worker(s) // comes behind the cancel, and is answered though an append is under way
	release()
	if _, ok := actortest.Wait(t, "the cancel's answer", p.seen).(*messages.Cancelled); !ok {
		t.Error("the cancel was refused")
	}
	if n := ran.Load(); n != 1 {
		t.Errorf("%d calls ran", n)
	}
	for _, f := range actortest.Of[*messages.ToolFinished](h.Facts(w))[1:] {
		if f.GetStatus() != messages.ToolFinished_CANCELLED {
			t.Errorf("the call that never started finished as %v", f.GetStatus())
		}
	}
	works(t, h, s)
}

// logGate stops the first warning: whoever logs it stands still until the gate opens.
type logGate struct {
	slog.Handler
	once sync.Once
	gate *actortest.Gate
}

func (l *logGate) Enabled(context.Context, slog.Level) bool { return true }
func (l *logGate) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && strings.Contains(r.Message, "unexpected") {
		l.once.Do(func() { _ = l.gate.Pass(context.Background()) })
	}
	return nil
}
func (l *logGate) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logGate) WithGroup(string) slog.Handler      { return l }

func TestACallCancelledWhileItsEffectIsCountedLeavesTheWorkspaceFree(t *testing.T) {
	still, answer := &logGate{gate: actortest.NewGate()}, actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Log: still,
		Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("1", "act", `{"name":"x"}`)}, Err: answer.Pass(ctx)}
		}),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(context.Context, string) (string, error) { return "", nil })},
	})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the model call", answer.Came)
	v := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{})
	ws := h.Sys.NewLocalPID("troupe/workspace-" + v.GetWorkspaces()[0].GetId())
	h.Sys.Root.Send(ws, &messages.Ack{}) // it does not know that, and says so in the log
	actortest.Wait(t, "the workspace to stand still", still.gate.Came)
	answer.Open()
	actortest.Until(t, "the call is dispatched", func() bool { return len(actortest.Of[*messages.ToolDispatched](h.Facts(w))) == 1 })
	h.State(s, "using_tool")
	cancelled(t, h, s)
	still.gate.Open()
	works(t, h, s)
}

func TestAToolThatHearsNothingIsGivenUpAndNamed(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Model:  plainOr(actortest.CallThenSay(actortest.Call("1", "deaf", `{"name":"x"}`))),
		Limits: actors.Limits{Grace: time.Millisecond},
		Tools: []tools.Tool{tool(t, "deaf", atMostOnce, func(context.Context, string) (string, error) {
			return "", gate.Pass(context.Background())
		})},
	})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	cancelled(t, h, s)
	f := actortest.Of[*messages.ToolFinished](h.Facts(w))
	if len(f) != 1 || f[0].GetStatus() != messages.ToolFinished_INTERRUPTED_UNKNOWN {
		t.Errorf("the call finished as %v", f)
	}
	// It still runs: the workspace is not given to anybody before it has ended (I6).
	in := submit(h, s, "plain")
	h.State(s, "waiting")
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in}); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
	works(t, h, s)
}

func TestATurnEndsAtItsWallTime(t *testing.T) {
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	clock, gate := actortest.NewClock(time.Now()), actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Store: store, Limits: actors.Limits{Wall: time.Hour}, Clock: clock,
		Model: plainOr(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Err: gate.Pass(ctx)}
		}),
	})
	s, _ := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	clock.Advance(time.Hour)
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{})
	if r.GetOutcome() != messages.TurnCompleted_TIMEOUT || !strings.Contains(r.GetReason(), "1h") {
		t.Errorf("ended as %v: %s", r.GetOutcome(), r.GetReason())
	}
	works(t, h, s)
}

// TestATurnsTimeIsNotCountedByTheTimeOfDay sets it an hour either way and cuts the process off: the turn still has the
// time that was not worked on it.
func TestATurnsTimeIsNotCountedByTheTimeOfDay(t *testing.T) {
	store := memory.New()
	clock := actortest.NewClock(time.Now())
	for i, jump := range []time.Duration{-3 * time.Hour, 3 * time.Hour, -time.Hour} {
		gate := actortest.NewGate()
		h := actortest.New(t, actortest.Options{
			Store: store, Limits: actors.Limits{Wall: time.Hour}, Clock: clock, DataDir: t.TempDir(),
			Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
				return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
			}),
		})
		if i == 0 {
			h.Create(&messages.CreateSession{SessionId: "ses_wall"})
			submit(h, "ses_wall", "go")
		} else {
			actortest.Ask[*messages.SessionView](h, "ses_wall", &messages.DescribeSession{})
		}
		actortest.Wait(t, "the call", gate.Came)
		clock.Jump(jump)
		clock.Advance(10 * time.Minute) // and the records say so
		if i == 2 {
			gate.Open()
			r := actortest.Ask[*messages.TurnResult](h, "ses_wall", &messages.AwaitTurn{})
			if r.GetOutcome() != messages.TurnCompleted_DONE {
				t.Errorf("after jumps of the time of day the turn ended as %v: %s", r.GetOutcome(), r.GetReason())
			}
		}
		h.Stop()
		store = store.Reopen()
		t.Cleanup(func() { _ = store.Close() })
	}
}

func TestWithoutATurnThereIsNothingToCancel(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	s, _ := h.Create(&messages.CreateSession{})
	if c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{}); c.GetTurns() != 0 {
		t.Errorf("%d turns cancelled", c.GetTurns())
	}
	if _, err := actortest.Try[*messages.TurnResult](h, s, &messages.AwaitTurn{}); actortest.Code(err) != messages.CodeNoTurn {
		t.Errorf("await: %v", err)
	}
	works(t, h, s)
}
