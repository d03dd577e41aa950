package troupe

import (
	"context"
	"math"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Budget bounds what a session may spend. 0 is no limit. Every model call is paid before it is made: what it may cost at most is
// set aside, so that the sum of all workers never exceeds the budget, and what it did not cost is free again.
type Budget struct {
	USD       float64       // needs a price for each model
	Tokens    int64         // input and output
	ToolCalls int64         // that models ask for
	Wall      time.Duration // of turns, those that were delegated not counted, nor what waits for people
	Pause     bool          // a turn for which it does not suffice waits for more (AddBudget) instead of ending with outcome budget
	Answer    int64         // tokens that are set aside for each answer, which cannot be longer; 0: 4096
}

// BudgetView is a budget as it stands.
type BudgetView = messages.BudgetView

func (b Budget) bounds() bool { return !b.message().GetMost().Zero() }

func (b Budget) message() *messages.Budget {
	return &messages.Budget{
		Most:  &messages.Amounts{Tokens: b.Tokens, MicroUsd: microUSD(b.USD), ToolCalls: b.ToolCalls, WallMs: messages.WallMs(b.Wall)},
		Pause: b.Pause, Answer: b.Answer,
	}
}

// microUSD never makes nothing of something: 0 is no limit.
func microUSD(usd float64) int64 {
	if math.IsNaN(usd) || usd < 0 || usd > 1e9 {
		return -1 // refused
	}
	return max(int64(math.Ceil(usd*1e6-1e-6)), messages.MicroUSD(usd))
}

// AddBudget gives the session more of what its budget bounds; turns that wait for it go on. Pause and Answer stay as they are.
func (s *Session) AddBudget(ctx context.Context, more Budget) (*BudgetView, error) {
	return ask[*messages.BudgetView](ctx, s.rt, s.session, &messages.AddBudget{Add: more.message().GetMost(), By: "program", ChangeId: messages.NewID("bgt_")})
}

// AddBudget gives a step of the run more of what its own budget bounds: those who wait for it go on. A step that failed for want of it is tried again with Resume.
func (r *Run) AddBudget(ctx context.Context, step string, more Budget) (*BudgetView, error) {
	return ask[*messages.BudgetView](ctx, r.rt, r.session, &messages.AddBudget{Step: step, Add: more.message().GetMost(), By: "program", ChangeId: messages.NewID("bgt_")})
}

// Budget is the session's budget as it stands; nil when it has none.
func (s *Session) Budget(ctx context.Context) (*BudgetView, error) {
	v, err := ask[*messages.SessionView](ctx, s.rt, s.session, &messages.DescribeSession{})
	return v.GetBudget(), err
}
