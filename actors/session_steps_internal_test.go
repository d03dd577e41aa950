package actors

import (
	"log/slog"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestAnOlderPlanThatIsHeardAgainCountsNoMore, as happens while its budgets are written down one after the other: else two plans would take turns for ever.
func TestAnOlderPlanThatIsHeardAgainCountsNoMore(t *testing.T) {
	budget := func(tokens int64) *messages.Budget { return &messages.Budget{Most: &messages.Amounts{Tokens: tokens}} }
	newest := &planBudgets{plan: 2, budgets: map[string]*messages.Budget{"a": budget(2)}}
	s := newSession(&Services{Log: slog.New(slog.DiscardHandler)})
	s.run = &runner{plan: newest}
	s.facts.steps = map[string]*stepBudget{"a": {plan: budget(2)}}
	for _, building := range []bool{false, true} {
		s.building = building
		s.replan(nil, &planBudgets{plan: 1, budgets: map[string]*messages.Budget{"a": budget(1)}}) // it would need what it is not given
	}
	if s.run.plan != newest || s.builds.Len() != 0 {
		t.Errorf("the plan is %v, and %d wait", s.run.plan, s.builds.Len())
	}
}
