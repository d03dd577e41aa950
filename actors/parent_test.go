package actors_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// TestTheDeathOfASessionTakesItsTreeAlongAndNobodyElses stops a session in the middle of a call and of a model call:
// their contexts end, no actor of it is left, and the other session goes on.
func TestTheDeathOfASessionTakesItsTreeAlongAndNobodyElses(t *testing.T) {
	calls, answers := actortest.NewGate(), actortest.NewGate()
	var ended, ran atomic.Int32
	h := actortest.New(t, actortest.Options{
		Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			if actortest.Asked(r) == "use a tool" {
				return actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`))(ctx, r)
			}
			err := answers.Pass(ctx)
			if err != nil {
				ended.Add(1)
			}
			return actortest.Reply{Text: "said", Err: err}
		}),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) {
			if ran.Add(1) > 1 {
				t.Error("a call that may run once ran again")
			}
			err := calls.Pass(ctx)
			if err != nil {
				ended.Add(1)
			}
			return "", err
		})},
	})
	other, _ := h.Create(&messages.CreateSession{})
	submit(h, other, "talk")
	actortest.Wait(t, "the model call of the other session", answers.Came)
	s, w := h.Create(&messages.CreateSession{})
	actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{})
	in := submit(h, s, "use a tool")
	actortest.Wait(t, "the call", calls.Came)
	prefix := "troupe/" + s
	below := func() (n int) {
		for _, bucket := range h.Sys.ProcessRegistry.LocalPIDs.LocalPIDs {
			for _, id := range bucket.Keys() {
				if strings.HasPrefix(id, prefix) {
					n++
				}
			}
		}
		return n
	}
	if n := below(); n < 4 { // the session, two workers, an executor
		t.Fatalf("%d actors in its tree", n)
	}
	if err := h.Sys.Root.StopFuture(h.Sys.NewLocalPID(prefix)).Wait(); err != nil {
		t.Fatal(err)
	}
	if n := below(); n != 0 {
		t.Errorf("%d actors of its tree are left", n)
	}
	actortest.Until(t, "its effects were cancelled", func() bool { return ended.Load() == 1 })
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in}) // its next incarnation
	if r.GetOutcome() != messages.TurnCompleted_DONE || r.GetWorkerId() != w {
		t.Errorf("%v", r)
	}
	answers.Open()
	if r := actortest.Ask[*messages.TurnResult](h, other, &messages.AwaitTurn{}); r.GetText() != "said" {
		t.Errorf("the other session: %v", r)
	}
	works(t, h, s)
}

// TestAWorkspaceOrLimiterThatPanicsIsReplacedAndNobodyNotices panics in the handlers themselves, twice each.
func TestAWorkspaceOrLimiterThatPanicsIsReplacedAndNobodyNotices(t *testing.T) {
	left := &atomic.Int32{}
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Log: panicky{left: left},
		Model: plainOr(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	s, _ := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	behind := submit(h, s, "plain")
	ws := "workspace-" + actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{}).GetWorkspaces()[0].GetId()
	for _, name := range []string{ws, "limiter-default"} {
		for n := range int32(2) {
			left.Store(1)
			h.Sys.Root.Send(h.Sys.NewLocalPID("troupe/"+name), &messages.Ack{})
			actortest.Until(t, name+" is replaced", func() bool {
				for _, a := range actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{}).GetRoot().GetChildren() {
					switch {
					case a.GetId() == name:
						if a.GetState() == "running" && a.GetRestarts() == n+1 && a.GetLastError() == "as the test wants it" {
							return true
						}
					case a.GetState() != "running" || a.GetKind() == "session" && a.GetRestarts() != 0:
						t.Errorf("%s is %s", a.GetId(), a.GetState())
					}
				}
				return false
			})
		}
	}
	gate.Open()
	for _, in := range []string{"", behind} {
		if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in}); r.GetText() != "ok" {
			t.Errorf("%v", r)
		}
	}
	if v := h.Worker(s); v.GetRestarts() != 0 || v.GetLastError() != "" {
		t.Errorf("%v", v)
	}
	works(t, h, s)
}
