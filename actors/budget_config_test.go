package actors_test

import (
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// twoPrices is a cheap model, and one that costs ten times as much.
type twoPrices struct{ m model.Model }

func (p twoPrices) Resolve(name string) (*actors.Resolved, error) {
	r := &actors.Resolved{Model: p.m, Provider: "default", Name: name, Price: actors.Price{Input: 1, Output: 1}}
	if name == "dear" {
		r.Price = actors.Price{Input: 10, Output: 10}
	}
	return r, nil
}

func (twoPrices) Providers() []string { return []string{"default"} }

// The least that a call of the cheap model is asked for with is about 500 micro-dollars, and the most about 4,500; of the dear one ten times that.
func TestWhatWaitsForBudgetIsAskedForAnewWhenTheModelChanges(t *testing.T) {
	for _, c := range []struct {
		from, to string
		most     int64
		add      []int64
		least    int64 // that is set aside for the call
	}{
		{"cheap", "dear", 1, []int64{3000, 200_000}, 40_000}, // what pays for a cheap call pays for no dear one
		{"dear", "cheap", 3000, nil, 500},                    // a cheap one does not wait for the price of a dear one
	} {
		t.Run(c.from+" to "+c.to, func(t *testing.T) {
			h := actortest.New(t, actortest.Options{Agents: plain(), Models: twoPrices{costing(actortest.Say("yes"), 10, 10)}})
			s, w := h.Create(&messages.CreateSession{Model: c.from, Budget: &messages.Budget{Most: &messages.Amounts{MicroUsd: c.most}, Answer: 4096, Pause: true}})
			in := submit(h, s, "go")
			actortest.Until(t, "the turn waits for more", func() bool {
				v := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{})
				return v.GetWorkers()[0].GetWaiting().GetReason() != ""
			})
			actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{WorkerId: w, Model: c.to})
			for _, n := range c.add {
				actortest.Ask[*messages.BudgetView](h, s, &messages.AddBudget{Add: &messages.Amounts{MicroUsd: n}})
			}
			if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: w, InputId: in}); r.GetOutcome() != messages.TurnCompleted_DONE {
				t.Errorf("the turn: %v", r)
			}
			facts := h.Facts(w)
			set, made := actortest.Of[*messages.BudgetReserved](facts), actortest.Of[*messages.GenerationStarted](facts)
			if len(set) != 1 || len(made) != 1 || made[0].GetModel() != c.to || set[0].GetMicroUsd() < c.least {
				t.Errorf("set aside is %v for %v", set, made)
			}
		})
	}
}
