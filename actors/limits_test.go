package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// fastClock runs a thousand times as fast as time does.
func fastClock() func() time.Time {
	start := time.Now()
	return func() time.Time { return start.Add(1000 * time.Since(start)) }
}

func TestRequestsOfAProviderAreSpreadOverMinutesInOrderOfArrival(t *testing.T) {
	now := fastClock()
	h := actortest.New(t, actortest.Options{Now: now, ProviderLimits: map[string]actors.ProviderLimits{"default": {Requests: 2}}})
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	p := newProbe(h)
	defer p.die(t)
	began := now()
	for i := uint64(1); i <= 5; i++ {
		p.send(limiter, &messages.AcquirePermit{Request: i})
	}
	for i := uint64(1); i <= 5; i++ {
		if got := p.permit(t); got != i {
			t.Fatalf("permit %d went to %d", i, got)
		}
		if least := time.Duration((i-1)/2) * time.Minute; now().Sub(began) < least {
			t.Errorf("permit %d came after %s", i, now().Sub(began))
		}
		p.send(limiter, &messages.ReleasePermit{Request: i})
	}
}

func TestTokensAndRepeatedRequestsCountWhenTheyAreKnown(t *testing.T) {
	now := fastClock()
	h := actortest.New(t, actortest.Options{Now: now, ProviderLimits: map[string]actors.ProviderLimits{"default": {Tokens: 100, Requests: 3}}})
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	p := newProbe(h)
	defer p.die(t)
	began := now()
	for i, spent := range []*messages.ReleasePermit{{Tokens: 200}, {Tokens: 1, Requests: 3}, {}} {
		p.send(limiter, &messages.AcquirePermit{Request: uint64(i)})
		p.permit(t)
		if least := time.Duration(i) * 50 * time.Second; now().Sub(began) < least {
			t.Errorf("permit %d came after %s", i, now().Sub(began))
		}
		spent.Request = uint64(i)
		p.send(limiter, spent)
	}
}

func TestATurnThatGoesRoundInCirclesIsStuck(t *testing.T) {
	var asked atomic.Int32
	same := actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		asked.Add(1)
		return actortest.Reply{Calls: []*messages.ToolCall{{Id: fmt.Sprint("c", asked.Load()), Name: "list_files", Arguments: `{}`}}}
	})
	h := actortest.New(t, actortest.Options{
		Model: same, Limits: actors.Limits{Repeats: 4}, Agents: []actors.Agent{{Name: "hasty", Limits: actors.AgentLimits{Repeats: 2}}},
	})
	for agent, want := range map[string]int32{"": 4, "hasty": 2} {
		asked.Store(0)
		s, _ := h.Create(&messages.CreateSession{Agent: agent})
		r := h.Run(s, "go")
		if r.GetOutcome() != messages.TurnCompleted_STUCK || asked.Load() != want || !strings.Contains(r.GetReason(), "list_files") {
			t.Errorf("agent %q: %v after %d calls: %s", agent, r.GetOutcome(), asked.Load(), r.GetReason())
		}
	}
}

func TestAnAgentsOwnBoundsAreTighterAndNeverWider(t *testing.T) {
	var asked atomic.Int32
	busy := actortest.Model(func(context.Context, *model.Request) actortest.Reply {
		n := asked.Add(1)
		return actortest.Reply{Calls: []*messages.ToolCall{{Id: fmt.Sprint("c", n), Name: "list_files", Arguments: fmt.Sprintf(`{"max_results":%d}`, n)}}}
	})
	h := actortest.New(t, actortest.Options{
		Model: busy, Limits: actors.Limits{Steps: 5},
		Agents: []actors.Agent{{Name: "short", Limits: actors.AgentLimits{Steps: 2}}, {Name: "long", Limits: actors.AgentLimits{Steps: 50}}},
	})
	for agent, want := range map[string]int32{"": 5, "short": 2, "long": 5} {
		asked.Store(0)
		s, _ := h.Create(&messages.CreateSession{Agent: agent})
		if r := h.Run(s, "go"); r.GetOutcome() != messages.TurnCompleted_LIMIT || asked.Load() != want {
			t.Errorf("agent %q: %v after %d steps", agent, r.GetOutcome(), asked.Load())
		}
	}
}

func TestAFullQueueAndAFullSessionRefuseMore(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m, Limits: actors.Limits{Queue: 2, Workers: 2}})
	s, _ := h.Create(&messages.CreateSession{})
	for i := range 3 { // one is answered, two wait
		actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text(fmt.Sprint("input ", i))})
	}
	_, err := actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("one too many")})
	if actortest.Code(err) != messages.CodeBusy || !strings.Contains(err.Error(), "2 inputs wait") {
		t.Errorf("a fourth input: %v", err)
	}
	actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{})
	_, err = actortest.Try[*messages.WorkerView](h, s, &messages.SpawnWorker{})
	if actortest.Code(err) != messages.CodeBusy || !strings.Contains(err.Error(), "2 workers") {
		t.Errorf("a third worker: %v", err)
	}
	gate.Open()
}
