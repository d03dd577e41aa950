package actors_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// TestWhatAnActorWasAskedInItsLastMomentIsAskedOfItsSuccessor stops a Workspace, or the Limiter, with a request in
// its mailbox: such a mailbox is dropped without a word.
func TestWhatAnActorWasAskedInItsLastMomentIsAskedOfItsSuccessor(t *testing.T) {
	for _, kind := range []string{"workspace", "limiter"} {
		t.Run(kind, func(t *testing.T) {
			still := &logGate{gate: actortest.NewGate()}
			h := actortest.New(t, actortest.Options{Log: still, Model: actortest.Say("ok")})
			s, w := h.Create(&messages.CreateSession{})
			name := "limiter-default"
			if kind == "workspace" {
				v := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{})
				name = "workspace-" + v.GetWorkspaces()[0].GetId()
			}
			pid := h.Sys.NewLocalPID("troupe/" + name)
			h.Sys.Root.Send(pid, &messages.Ack{}) // it does not know that, and says so in the log
			actortest.Wait(t, "it to stand still", still.gate.Came)
			in := actortest.Later[*messages.InputReply](h, s, &messages.SubmitInput{InputId: "inp_1", Parts: actortest.Text("go")})
			if kind == "limiter" {
				h.Generating(s)
			} else {
				h.State(s, "waiting")
			}
			stopped := h.Sys.Root.StopFuture(pid)
			still.gate.Open()
			if err := stopped.Wait(); err != nil {
				t.Fatal(err)
			}
			if a := actortest.Wait(t, "the acceptance", in); a.Err != nil {
				t.Fatal(a.Err)
			}
			if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: "inp_1"}); r.GetText() != "ok" {
				t.Errorf("%v", r)
			}
			if n := len(actortest.Of[*messages.GenerationStarted](h.Facts(w))); n != 1 {
				t.Errorf("%d generations", n)
			}
			works(t, h, s)
		})
	}
}

// panicky is a log that panics in who says that it does not know a message, as often as it is told to.
type panicky struct {
	slog.Handler
	left *atomic.Int32
}

func (panicky) Enabled(context.Context, slog.Level) bool { return true }
func (p panicky) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "unexpected message") && p.left.Add(-1) >= 0 {
		panic("as the test wants it")
	}
	return nil
}
func (p panicky) WithAttrs([]slog.Attr) slog.Handler { return p }
func (p panicky) WithGroup(string) slog.Handler      { return p }

// kill makes an actor panic in its handler until it is given up.
func kill(t *testing.T, h *actortest.House, name string) {
	t.Helper()
	actortest.Until(t, name+" is given up", func() bool {
		for _, a := range actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{}).GetRoot().GetChildren() {
			if a.GetId() == name && a.GetState() == "given up" {
				if a.GetLastError() != "as the test wants it" {
					t.Errorf("given up for %q", a.GetLastError())
				}
				return true
			}
		}
		h.Sys.Root.Send(h.Sys.NewLocalPID("troupe/"+name), &messages.Ack{})
		return false
	})
}

func TestWhatIsGivenUpEndsTheTurnsThatNeedItWithAnErrorAndNobodyElseNotices(t *testing.T) {
	if testing.Short() {
		t.Skip("an actor is given up after ten pauses, which are some ten seconds")
	}
	t.Run("workspace", func(t *testing.T) {
		t.Parallel()
		left, gate := &atomic.Int32{}, actortest.NewGate()
		h := actortest.New(t, actortest.Options{
			Log: panicky{left: left}, IdleAfter: time.Second,
			Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`))),
			Tools: []tools.Tool{tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) { return "did", gate.Pass(ctx) })},
		})
		dir := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
		holds, _ := h.Create(&messages.CreateSession{Workspaces: dir})
		submit(h, holds, "hold it")
		actortest.Wait(t, "the call", gate.Came)
		s, _ := h.Create(&messages.CreateSession{Workspaces: dir})
		in := submit(h, s, "plain")
		waits := actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
		left.Store(1 << 20)
		kill(t, h, "workspace-"+actortest.Ask[*messages.SessionView](h, holds, &messages.DescribeSession{}).GetWorkspaces()[0].GetId())
		a := actortest.Wait(t, "the turn that waited", waits)
		if a.Reply.GetOutcome() != messages.TurnCompleted_ERROR || !strings.Contains(a.Reply.GetReason(), "as the test wants it") {
			t.Errorf("%v %v", a.Reply, a.Err)
		}
		gate.Open()
		if r := actortest.Ask[*messages.TurnResult](h, holds, &messages.AwaitTurn{}); r.GetText() != "did\n" {
			t.Errorf("who held it: %v", r)
		}
		if r := h.Run(s, "plain"); r.GetOutcome() != messages.TurnCompleted_ERROR || !strings.Contains(r.GetReason(), "as the test wants it") {
			t.Errorf("a new input: %v", r)
		}
		other, _ := h.Create(&messages.CreateSession{})
		works(t, h, other)
		left.Store(0)
		asleep(t, h) // nobody needs it: then it is tried anew
		works(t, h, s)
	})
	t.Run("limiter", func(t *testing.T) {
		t.Parallel()
		left := &atomic.Int32{}
		h := actortest.New(t, actortest.Options{Log: panicky{left: left}, Model: actortest.Say("ok")})
		s, _ := h.Create(&messages.CreateSession{})
		works(t, h, s)
		left.Store(1 << 20)
		kill(t, h, "limiter-default")
		for range 2 {
			if r := h.Run(s, "plain"); r.GetOutcome() != messages.TurnCompleted_ERROR || !strings.Contains(r.GetReason(), "as the test wants it") {
				t.Errorf("%v", r)
			}
		}
		if r := actortest.Ask[*messages.ToolReply](h, s, &messages.CallTool{Tool: "list_files", Arguments: `{}`}); r.GetStatus() != messages.ToolFinished_OK {
			t.Errorf("what needs no permit: %v", r)
		}
	})
}

func TestPausesAreExponentialCappedAndJittered(t *testing.T) {
	b := act.Backoff{First: 10 * time.Millisecond, Max: 30 * time.Second}
	const draws = 2000
	for n := 1; n <= 40; n++ {
		whole := b.First
		for i := 1; i < n && whole < b.Max; i++ {
			whole *= 2
		}
		whole = min(whole, b.Max)
		var sum time.Duration
		least, most := whole, time.Duration(0)
		for range draws {
			p := b.Pause(n)
			sum, least, most = sum+p, min(least, p), max(most, p)
		}
		// Evenly between half and the whole: the mean of 2,000 draws is within 2 % of three quarters.
		if least < whole/2 || most > whole {
			t.Errorf("pause %d lies between %v and %v, not between %v and %v", n, least, most, whole/2, whole)
		}
		if mean, want := sum/draws, whole/4*3; mean < want*98/100 || mean > want*102/100 {
			t.Errorf("pause %d is %v in the mean, want about %v", n, mean, want)
		}
		if least > whole*52/100 || most < whole*98/100 {
			t.Errorf("pause %d is not spread: %v to %v of %v", n, least, most, whole)
		}
	}
	if p := b.Pause(1 << 20); p > b.Max {
		t.Errorf("far out it is %v", p)
	}
}
