package chaos

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// TestNoCutOfADelegatingTurnSpendsMoreThanTheBudgetAndTheSumIsThatOfItsParts cuts a turn that delegates after each append. With enough for
// all of it the turn ends as it should; with less, it ends at the budget or before; what is spent is never more, and the session's view of it is the sum of
// what its workers' journals say.
func TestNoCutOfADelegatingTurnSpendsMoreThanTheBudgetAndTheSumIsThatOfItsParts(t *testing.T) {
	for _, most := range []int64{2_000_000, 60_000} {
		t.Run(fmt.Sprintf("%d tokens", most), func(t *testing.T) {
			made := func(t *testing.T) *world {
				w := newDelegating(t)
				w.budget = &messages.Budget{Most: &messages.Amounts{Tokens: most, ToolCalls: 200}}
				return w
			}
			everyCutOf(t, 16, made, func(w *world, t *testing.T, when string) {
				w.checkTill(t, when, most)
				if most > 1_000_000 && when == "recovered" {
					w.checkFamily(t, when)
				}
			})
		})
	}
}

// checkTill walks the records in the order in which they became durable.
func (w *world) checkTill(t *testing.T, when string, most int64) {
	t.Helper()
	spent, reserved := make(map[string]*messages.Amounts), make(map[string]*messages.Amounts)
	sum := func() *messages.Amounts {
		all := &messages.Amounts{}
		for _, parts := range []map[string]*messages.Amounts{spent, reserved} {
			for _, a := range parts {
				all = all.Plus(a)
			}
		}
		return all
	}
	planned, over, paid := int64(0), make(map[string]bool), make(map[string]bool)
	started := ""
	err := w.store.ReadSession(context.Background(), sessionID, 0, func(e persistence.Entry) error {
		if !strings.HasPrefix(e.Stream, "wrk/") {
			return nil
		}
		fact, err := messages.WorkerFactIn(e.Record)
		switch f := fact.(type) {
		case *messages.GenerationStarted:
			started = f.GetGenId()
		case *messages.GenerationCompleted:
			if over[f.GetGenId()] = true; !paid[f.GetGenId()] {
				t.Errorf("%s: nothing was set aside for %s", when, f.GetGenId())
			}
		case *messages.GenerationFailed:
			over[f.GetGenId()] = true
		case *messages.BudgetReserved:
			if paid[f.GetGenId()] = true; f.GetGenId() != started {
				t.Errorf("%s: what is set aside for %s stands behind the start of %s", when, f.GetGenId(), started)
			}
			if reserved[e.Stream] != nil {
				t.Errorf("%s: %s sets something aside twice", when, e.Stream)
			}
			reserved[e.Stream] = f.Amounts()
		case *messages.BudgetSettled:
			a := f.Amounts()
			a.WallMs = 0
			if r := reserved[e.Stream]; r != nil && !over[f.GetGenId()] && (!f.GetLost() || a.GetTokens() != r.GetTokens()) {
				t.Errorf("%s: a crash cut %s off, and of %v counts %v", when, f.GetGenId(), r, f)
			}
			spent[e.Stream] = spent[e.Stream].Plus(a)
			delete(reserved, e.Stream)
		case *messages.ToolPlanned:
			planned++
		}
		if all := sum(); all.GetTokens() > most {
			t.Errorf("%s: %d of %d tokens are spent or set aside at record %d of %s", when, all.GetTokens(), most, e.Record.GetSeq(), e.Stream)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(reserved) > 0 {
		t.Errorf("%s: %v is still set aside", when, reserved)
	}
	all := sum()
	if all.GetToolCalls() != planned {
		t.Errorf("%s: %d calls are planned, and %d are paid", when, planned, all.GetToolCalls())
	}
	shown := w.till.GetSpent().Plus(nil)
	shown.WallMs = 0
	if !shown.Same(all) || !w.till.GetReserved().Zero() {
		t.Errorf("%s: the session says %v, and its parts are %v", when, w.till, all)
	}
}
