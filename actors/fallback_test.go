package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// several answers names, each of a provider of the same name.
type several map[string]actortest.Model

func (s several) Resolve(name string) (*actors.Resolved, error) {
	m, ok := s[name]
	if !ok {
		return nil, fmt.Errorf("no model %q", name)
	}
	return &actors.Resolved{Model: m, Provider: name, Name: name}, nil
}

func (s several) Providers() (all []string) {
	for name := range s {
		all = append(all, name)
	}
	return all
}

// fails is a model that always fails so.
func fails(class model.Class) actortest.Model {
	return func(context.Context, *model.Request) actortest.Reply {
		return actortest.Reply{Err: &model.Error{Class: class, Message: "it fails"}}
	}
}

// asked are the models that a worker's journal says were asked, and the one that answered.
func asked(h *actortest.House, worker string) (all, answered string) {
	facts := h.Facts(worker)
	var list []string
	for _, g := range actortest.Of[*messages.GenerationStarted](facts) {
		list = append(list, strings.TrimSpace(g.GetModel()+" "+g.GetInsteadOf()))
	}
	for _, g := range actortest.Of[*messages.GenerationCompleted](facts) {
		answered += "instead of " + g.GetInsteadOf()
	}
	return strings.Join(list, ", "), answered
}

func TestTheModelsThatAnAgentNamesStandInInTheirOrderAndItIsWrittenDown(t *testing.T) {
	for first, class := range map[string]model.Class{"overloaded": model.Overloaded, "limited": model.RateLimited, "refused": model.Auth, "gone": model.NotFound} {
		h := actortest.New(t, actortest.Options{
			Models: several{first: fails(class), "second": fails(class), "third": actortest.Say("I stand in")},
			Agents: []actors.Agent{{Name: "careful", Model: first, Fallback: []string{"second", "none", "third"}}},
		})
		s, w := h.Create(&messages.CreateSession{Agent: "careful"})
		if r := h.Run(s, "go"); r.GetText() != "I stand in" {
			t.Errorf("%s: %v", first, r)
		}
		want := fmt.Sprintf("%s, second %s, third %s", first, first, first)
		if got, answered := asked(h, w); got != want || answered != "instead of "+first {
			t.Errorf("asked were %s; answered %s", got, answered)
		}
		h.Stop()
	}
}

func TestEachModelThatFailsForGoodIsAskedOnce(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Models: several{"first": fails(model.Auth), "second": fails(model.NotFound)},
		Agents: []actors.Agent{{Name: "careful", Model: "first", Fallback: []string{"second"}}, {Name: "plain", Model: "first"}},
	})
	for agent, want := range map[string]string{"careful": "first, second first", "plain": "first"} {
		s, w := h.Create(&messages.CreateSession{Agent: agent})
		r := h.Run(s, "go")
		if got, _ := asked(h, w); got != want || r.GetOutcome() != messages.TurnCompleted_ERROR {
			t.Errorf("%s: asked were %s: %v", agent, got, r)
		}
	}
}

func TestABadRequestIsNotPutToAnotherModel(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Models: several{"first": fails(model.BadRequest), "second": actortest.Say("no")},
		Agents: []actors.Agent{{Name: "careful", Model: "first", Fallback: []string{"second"}}},
	})
	s, w := h.Create(&messages.CreateSession{Agent: "careful"})
	h.Run(s, "go")
	if got, _ := asked(h, w); got != "first" {
		t.Errorf("asked were %s", got)
	}
}

// TestWhoHasAStandInDoesNotWaitForAProviderThatIsOutOfOrder opens the circuit of the first provider, and closes it by the call of somebody who has
// no other model.
func TestWhoHasAStandInDoesNotWaitForAProviderThatIsOutOfOrder(t *testing.T) {
	clock := actortest.NewClock(time.UnixMilli(1_700_000_000_000))
	var mu sync.Mutex
	calls, well := 0, false
	h := actortest.New(t, actortest.Options{
		Clock: clock, Now: clock.Now,
		Models: several{"first": func(context.Context, *model.Request) actortest.Reply {
			mu.Lock()
			defer mu.Unlock()
			if calls++; well {
				return actortest.Reply{Text: "back"}
			}
			return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "HTTP 500"}}
		}, "second": actortest.Say("I stand in")},
		Agents: []actors.Agent{{Name: "careful", Model: "first", Fallback: []string{"second"}}},
	})
	p := newProbe(h)
	defer p.die(t)
	limiter := h.Sys.NewLocalPID("troupe/limiter-first")
	for i := uint64(1); i <= 5; i++ {
		p.send(limiter, &messages.AcquirePermit{Request: i})
		p.permit(t)
		p.send(limiter, &messages.ReleasePermit{Request: i, Outcome: messages.ReleasePermit_OVERLOADED})
	}
	s, w := h.Create(&messages.CreateSession{Agent: "careful"})
	if r := h.Run(s, "go"); r.GetText() != "I stand in" {
		t.Fatalf("%v", r)
	}
	if got, _ := asked(h, w); got != "first, second first" || calls != 0 {
		t.Errorf("asked were %s, with %d calls of the first", got, calls)
	}
	if f := actortest.Of[*messages.GenerationFailed](h.Facts(w)); len(f) != 1 || !f[0].GetNotMade() {
		t.Errorf("the attempt that was not made is no such one: %v", f)
	}
	mu.Lock()
	well = true
	mu.Unlock()
	clock.Advance(time.Minute) // it is time for one that tries
	if r := h.Run(s, "go on"); r.GetText() != "back" || calls != 1 {
		t.Errorf("after %d calls: %v", calls, r)
	}
	if r := h.Run(s, "and on"); r.GetText() != "back" || calls != 2 {
		t.Errorf("after %d calls: %v", calls, r)
	}
}
