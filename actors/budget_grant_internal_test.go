package actors

import (
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestALateGrantLeavesTheNewerAskAlone gives a worker the answer to an ask that it has taken back since: it goes on waiting for its newest.
func TestALateGrantLeavesTheNewerAskAlone(t *testing.T) {
	w := &Worker{purse: purse{asks: 2, asking: true}}
	w.budgetGranted(nil, &messages.BudgetGranted{Ask: 1, Amounts: &messages.Amounts{Tokens: 10}})
	w.budgetRefused(nil, &messages.BudgetRefused{Ask: 1})
	if p := &w.purse; !p.asking || p.granted != nil {
		t.Errorf("asking: %v, granted: %v", p.asking, p.granted)
	}
}
