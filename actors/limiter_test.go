package actors_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

func (p *probe) permit(t testing.TB) uint64 {
	t.Helper()
	g, ok := actortest.Wait(t, "a permit", p.seen).(*messages.PermitGranted)
	if !ok {
		t.Fatalf("no permit")
	}
	return g.GetRequest()
}

func TestPermitsAreGivenInOrderOfArrivalAndNeverMoreThanThereAre(t *testing.T) {
	h := actortest.New(t, actortest.Options{Limits: actors.Limits{ModelCalls: 2}})
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	// One probe for all: the order in which it hears of its requests is the order of the grants.
	p, dying := newProbe(h), newProbe(h)
	defer p.die(t)
	dying.send(limiter, &messages.AcquirePermit{Request: 100})
	dying.permit(t)
	for i := uint64(1); i <= 6; i++ {
		p.send(limiter, &messages.AcquirePermit{Request: i})
		if i == 3 {
			dying.send(limiter, &messages.AcquirePermit{Request: 101}) // a waiter that dies in the queue
		}
	}
	if got := p.permit(t); got != 1 {
		t.Fatalf("first permit to %d", got)
	}
	p.send(limiter, &messages.ReleasePermit{Request: 4}) // leaves the queue
	p.send(limiter, &messages.ReleasePermit{Request: 1})
	if got := p.permit(t); got != 2 {
		t.Fatalf("second permit to %d", got)
	}
	select {
	case m := <-p.seen:
		t.Fatalf("a third permit at once: %v", m)
	default:
	}
	dying.die(t) // what it held goes on
	for i, want := range []uint64{3, 5, 6} {
		if got := p.permit(t); got != want {
			t.Fatalf("permit %d to %d, want %d", i, got, want)
		}
		p.send(limiter, &messages.ReleasePermit{Request: want - 1})
		if want == 5 {
			p.send(limiter, &messages.ReleasePermit{Request: 3})
		}
	}
}

func TestNeverMoreModelCallsThanPermits(t *testing.T) {
	var now, most atomic.Int32
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{ModelCalls: 3},
		Model: actortest.Model(func(context.Context, *model.Request) actortest.Reply {
			n := now.Add(1)
			for m := most.Load(); n > m; m = most.Load() {
				if most.CompareAndSwap(m, n) {
					break
				}
			}
			return actortest.Reply{Text: "ok", Late: func() { now.Add(-1) }}
		}),
	})
	var waits []<-chan actortest.Answer[*messages.TurnResult]
	for range 30 {
		v := actortest.Ask[*messages.SessionView](h, "", &messages.CreateSession{First: &messages.SubmitInput{Parts: actortest.Text("go")}})
		waits = append(waits, actortest.Later[*messages.TurnResult](h, v.GetId(), &messages.AwaitTurn{}))
	}
	for _, w := range waits {
		if a := actortest.Wait(t, "a turn", w); a.Err != nil || a.Reply.GetText() != "ok" {
			t.Errorf("%v %v", a.Reply, a.Err)
		}
	}
	if m := most.Load(); m > 3 || m < 1 {
		t.Errorf("%d calls at once, with 3 permits", m)
	}
}

func TestADeadWorkersPermitGoesToTheNext(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{ModelCalls: 1},
		Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
			if actortest.Asked(r) == "hang" {
				return actortest.Reply{Err: gate.Pass(ctx)}
			}
			return actortest.Reply{Text: "ok"}
		}),
	})
	hanging, worker := h.Create(&messages.CreateSession{First: &messages.SubmitInput{Parts: actortest.Text("hang")}})
	actortest.Wait(t, "the model call", gate.Came)
	free, _ := h.Create(&messages.CreateSession{First: &messages.SubmitInput{Parts: actortest.Text("go")}})
	h.Generating(free)
	h.Sys.Root.Stop(h.Sys.NewLocalPID("troupe/" + hanging + "/" + worker))
	if r := actortest.Ask[*messages.TurnResult](h, free, &messages.AwaitTurn{}); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
}

func TestAProviderWithoutPermitsIsAnErrorOfTheTurn(t *testing.T) {
	h := actortest.New(t, actortest.Options{Models: strangeModels{}})
	s, _ := h.Create(&messages.CreateSession{})
	if r := h.Run(s, "go"); r.GetOutcome() != messages.TurnCompleted_ERROR || r.GetErrorCode() != string(model.NotFound) {
		t.Errorf("%v", r)
	}
}

func TestALimiterThatDiesDoesNotHoldUpTheTurnsThatWait(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{ModelCalls: 1},
		Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	var waits []<-chan actortest.Answer[*messages.TurnResult]
	for i := range 3 {
		v := actortest.Ask[*messages.SessionView](h, "", &messages.CreateSession{First: &messages.SubmitInput{Parts: actortest.Text("go")}})
		waits = append(waits, actortest.Later[*messages.TurnResult](h, v.GetId(), &messages.AwaitTurn{}))
		if i == 0 {
			actortest.Wait(t, "the first call", gate.Came)
		} else {
			h.Generating(v.GetId())
		}
	}
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	if _, err := act.Ask[*messages.Ack](context.Background(), h.Sys, limiter, &messages.Ack{}); actortest.Code(err) != messages.CodeBadRequest {
		t.Fatalf("what it does not know: %v", err) // and with that, what came before has been handled
	}
	if err := h.Sys.Root.StopFuture(limiter).Wait(); err != nil {
		t.Fatal(err)
	}
	gate.Open()
	for _, w := range waits {
		if a := actortest.Wait(t, "a turn", w); a.Err != nil || a.Reply.GetText() != "ok" {
			t.Errorf("%v %v", a.Reply, a.Err)
		}
	}
}

// strangeModels names a provider that it does not list.
type strangeModels struct{}

func (strangeModels) Resolve(name string) (*actors.Resolved, error) {
	return &actors.Resolved{Model: actortest.Say("ok"), Provider: "elsewhere", Name: name}, nil
}
func (strangeModels) Providers() []string { return []string{"default"} }

// TestWhoWaitsForAPermitIsListedInOrder: in the tree the limiter names them, and each says of itself since when it waits.
func TestWhoWaitsForAPermitIsListedInOrder(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{ModelCalls: 1},
		Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	var workers []string
	for range 3 {
		s, w := h.Create(&messages.CreateSession{})
		submit(h, s, "go")
		if len(workers) == 0 {
			actortest.Wait(t, "the call", gate.Came)
			if on := h.Worker(s).GetWaiting(); on.GetKind() != "model" || on.GetSinceUnixMs() == 0 {
				t.Errorf("who asks the model waits on %v", on)
			}
		} else {
			actortest.Until(t, "it waits", func() bool { return h.Worker(s).GetWaiting().GetKind() == "permit" })
			if on := h.Worker(s).GetWaiting(); on.GetSinceUnixMs() == 0 || on.GetSubject() == "" {
				t.Errorf("who waits for a permit waits on %v", on)
			}
		}
		workers = append(workers, w)
	}
	tree := actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{Deep: true})
	for _, v := range tree.GetRoot().GetChildren() {
		if v.GetKind() == "limiter" && !slices.Equal(v.GetWaiting(), workers[1:]) {
			t.Errorf("%v wait, want %v", v.GetWaiting(), workers[1:])
		}
	}
	gate.Open()
}
