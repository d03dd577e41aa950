package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// pricedModel is a model with a price.
type pricedModel struct{ m model.Model }

func (p pricedModel) Resolve(name string) (*actors.Resolved, error) {
	return &actors.Resolved{Model: p.m, Provider: "default", Name: name, Price: actors.Price{Input: 1, Output: 10}}, nil
}

func (pricedModel) Providers() []string { return []string{"default"} }

func TestCallsBeyondTheBudgetOfToolCallsAreNotRun(t *testing.T) {
	var calls []*messages.ToolCall
	for i := range 5 {
		calls = append(calls, actortest.Call(fmt.Sprint(i), "list_files", `{}`))
	}
	h := actortest.New(t, actortest.Options{Model: actortest.CallThenSay(calls...)})
	s, w := h.Create(&messages.CreateSession{Budget: &messages.Budget{Most: &messages.Amounts{ToolCalls: 3}}})
	res := h.Run(s, "go")
	if res.GetOutcome() != messages.TurnCompleted_BUDGET || !strings.Contains(res.GetReason(), "3 of 3 tool calls") {
		t.Errorf("the turn: %v", res)
	}
	ran := 0
	for _, f := range finishedCalls(h, w) {
		switch {
		case f.GetStatus() == messages.ToolFinished_OK:
			ran++
		case f.GetErrorCode() != "budget_exceeded":
			t.Errorf("%v", f)
		}
	}
	if v := budgetOf(h, s); ran != 3 || v.GetSpent().GetToolCalls() != 3 {
		t.Errorf("%d calls ran, and the budget is %v", ran, v)
	}
}

func TestDollarsAreReckonedWithThePriceOfTheModel(t *testing.T) {
	const most = 60_000
	h := actortest.New(t, actortest.Options{Models: pricedModel{costing(actortest.Say("yes"), 1000, 100)}})
	s, w := h.Create(&messages.CreateSession{Budget: &messages.Budget{Most: &messages.Amounts{MicroUsd: most}}})
	turns := int64(0)
	for {
		res := h.Run(s, "go")
		if res.GetOutcome() == messages.TurnCompleted_BUDGET {
			break
		}
		if turns++; res.GetOutcome() != messages.TurnCompleted_DONE || turns > 60 {
			t.Fatalf("turn %d: %v", turns, res)
		}
	}
	if v := budgetOf(h, s); turns < 5 || v.GetSpent().GetMicroUsd() != turns*2000 || v.GetSpent().GetMicroUsd() > most {
		t.Errorf("after %d turns the budget is %v", turns, v)
	}
	spent := int64(0)
	for _, f := range h.Facts(w) {
		switch f := f.(type) {
		case *messages.BudgetReserved:
			if spent+f.GetMicroUsd() > most {
				t.Errorf("%d is set aside when %d is spent", f.GetMicroUsd(), spent)
			}
		case *messages.BudgetSettled:
			spent += f.GetMicroUsd()
		}
	}
}

func TestATurnEndsWhenTheTimeOfItsSessionIsUp(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
		return actortest.Reply{Text: "yes", Err: gate.Pass(ctx)}
	})})
	s, _ := h.Create(&messages.CreateSession{Budget: &messages.Budget{Most: &messages.Amounts{WallMs: 50}}})
	if res := h.Run(s, "go"); res.GetOutcome() != messages.TurnCompleted_BUDGET || !strings.Contains(res.GetReason(), "has passed") {
		t.Errorf("the turn: %v", res)
	}
	if res := h.Run(s, "again"); res.GetOutcome() != messages.TurnCompleted_BUDGET || len(gate.Came) != 1 {
		t.Errorf("the next turn, after %d requests: %v", len(gate.Came), res)
	}
	actortest.Ask[*messages.BudgetView](h, s, &messages.AddBudget{Add: &messages.Amounts{WallMs: time.Hour.Milliseconds()}})
	gate.Open()
	if res := h.Run(s, "and now"); res.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("with more time: %v", res)
	}
}

func TestTheSummaryOfACompactionIsPaidToo(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: costing(func(_ context.Context, r *model.Request) actortest.Reply {
		if r.Agent == actors.CompactionAgent {
			if r.MaxTokens <= 0 {
				t.Error("the summary is not bounded")
			}
			return actortest.Reply{Text: "short"}
		}
		return actortest.Reply{Text: strings.Repeat("a long answer ", 200)}
	}, 700, 7)})
	s, w := h.Create(&messages.CreateSession{Budget: tokenBudget(200_000)})
	for range 3 {
		h.Run(s, strings.Repeat("a long prompt ", 200))
	}
	if c := actortest.Ask[*messages.Compacted](h, s, &messages.CompactHistory{WorkerId: w}); c.GetUptoSeq() == 0 || c.GetFallback() {
		t.Fatalf("%v", c)
	}
	if sum := keptWithin(t, h.Store, s, 200_000); sum.GetTokens() != 4*707 {
		t.Errorf("%v is spent", sum)
	}
}

func TestABudgetIsTheSameAfterARestart(t *testing.T) {
	store := stored(t)
	dir := t.TempDir()
	m := costing(actortest.Say("yes"), 9000, 500)
	h := actortest.New(t, actortest.Options{Model: m, Store: store, DataDir: dir})
	s, _ := h.Create(&messages.CreateSession{Budget: tokenBudget(30_000)})
	h.Run(s, "go")
	h.Stop()
	h = actortest.New(t, actortest.Options{Model: m, Store: store, DataDir: dir})
	actortest.Until(t, "the budget is known again", func() bool {
		v := budgetOf(h, s)
		return v.GetSpent().GetTokens() == 9500 && v.GetReserved().Zero() && v.GetMost().GetTokens() == 30_000
	})
	h.Run(s, "go")
	if res := h.Run(s, "go"); res.GetOutcome() != messages.TurnCompleted_BUDGET {
		t.Errorf("%v", res)
	}
}
