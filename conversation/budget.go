package conversation

import (
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// What a conversation spends of its session's budget. A call is paid from what was reserved for it in the append that started it; a
// reservation that is there when no call is under way is one that a crash cut off, and counts whole: nobody knows what the provider has billed.

// foldBudget applies the facts of the budget. They stand outside of turns, too: a compaction is paid as well. It is false for other facts.
func (s *State) foldBudget(fact proto.Message) bool {
	switch f := fact.(type) {
	case *messages.BudgetReserved:
		if s.reserved != nil {
			s.spent = s.spent.Plus(s.reserved.Amounts())
		}
		s.reserved = f
	case *messages.BudgetSettled:
		s.spent, s.reserved = s.spent.Plus(f.Amounts()), nil
		if s.turn != nil {
			s.turn.BilledMs += f.GetWallMs()
		}
	default:
		return false
	}
	return true
}

// Spent is what was settled so far, ever.
func (s *State) Spent() *messages.Amounts { return s.spent.Plus(nil) }

// Committed is Spent with what is reserved.
func (s *State) Committed() *messages.Amounts { return s.spent.Plus(s.reserved.Amounts()) }

// Reserved is what was set aside and is not settled; nil when nothing is.
func (s *State) Reserved() *messages.BudgetReserved { return s.reserved }

// BudgetExceeded is the code of a turn that its budget ended.
const BudgetExceeded = "budget_exceeded"

// OverBudget ends the open turn for want of budget.
func OverBudget(why string) Complete {
	return Complete{messages.TurnCompleted_BUDGET, why, BudgetExceeded}
}
