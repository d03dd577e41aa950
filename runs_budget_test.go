package troupe_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// bounded has budgets of steps, one of a step in another, and none of the run's.
const bounded = `version: 1
name: flow
agents: {writer: {system: You write.}}
steps:
  - {id: each, foreach: '["a", "b", "c"]', agent: writer, prompt: "part ${{ item }} of it", budget: {tokens: 30000}}
  - {id: last, needs: [each], agent: writer, prompt: "draft of ${{ steps.each.output[0][:1] }}", budget: {tokens: 10000, on_exceed: pause}}
outputs: {parts: "${{ steps.each.output }}", last: "${{ steps.last.output }}"}
`

// stepsPay walks a session's records: no step has more spent and set aside than its budget has. It gives what each has spent.
func stepsPay(t *testing.T, store persistence.Store, session string, cut int) map[string]*messages.Amounts {
	t.Helper()
	spent, set, most, of := map[string]*messages.Amounts{}, map[string]*messages.Amounts{}, map[string]int64{}, map[string][]string{}
	sums := func() map[string]*messages.Amounts {
		out := map[string]*messages.Amounts{}
		for worker, steps := range of {
			for _, step := range steps {
				out[step] = out[step].Plus(spent[worker]).Plus(set[worker])
			}
		}
		return out
	}
	err := store.ReadSession(context.Background(), session, 0, func(e persistence.Entry) error {
		if strings.HasPrefix(e.Stream, "ses/") {
			f, err := messages.SessionFactIn(e.Record)
			if w, ok := f.(*messages.WorkerSpawned); ok {
				for _, b := range w.GetBudgets() {
					of[w.GetWorkerId()], most[b.GetStep()] = append(of[w.GetWorkerId()], b.GetStep()), b.GetBudget().GetMost().GetTokens()
				}
			}
			return err
		}
		worker, ok := strings.CutPrefix(e.Stream, "wrk/")
		if !ok {
			return nil
		}
		f, err := messages.WorkerFactIn(e.Record)
		switch f := f.(type) {
		case *messages.BudgetReserved:
			set[worker] = f.Amounts()
		case *messages.BudgetSettled:
			spent[worker] = spent[worker].Plus(f.Amounts())
			delete(set, worker)
		case *messages.GenerationCompleted:
			if len(of[worker]) > 0 && set[worker] == nil {
				t.Errorf("cut after append %d: nothing was set aside for a call of %s", cut, worker)
			}
		}
		for step, sum := range sums() {
			if sum.GetTokens() > most[step] {
				t.Errorf("cut after append %d: %d of %d tokens of %s", cut, sum.GetTokens(), most[step], step)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(set) > 0 {
		t.Errorf("cut after append %d: %v is still set aside", cut, set)
	}
	return sums()
}

// TestNoCutOfARunSpendsMoreThanABudgetOfItsSteps: the next process comes to the same outputs, repeats nothing that is over, and shows of each budget what the journals have.
func TestNoCutOfARunSpendsMoreThanABudgetOfItsSteps(t *testing.T) {
	plan, want := planOf(t, bounded), ""
	for cut := 1; ; cut++ {
		store := memoryOf(t)
		run, died := dies(t, store, cut, plan, flowModel)
		var shown *messages.RunView
		got := finish(t, store, func(ctx context.Context, rt *troupe.Runtime) (*troupe.Run, error) {
			again, err := rt.OpenRun(ctx, run.ID())
			if err == nil {
				shown, err = again.Wait(ctx)
			}
			return again, err
		})
		if want == "" {
			want = got
		}
		if got != want || !strings.Contains(got, "a: it") {
			t.Errorf("cut after append %d: outputs %s, want %s", cut, got, want)
		}
		began(t, store, run.ID(), cut)
		sums := stepsPay(t, store, shown.GetSessionId(), cut)
		if steps := []string{"each", "last"}; len(sums) != 2 || !slices.ContainsFunc(steps, func(s string) bool { return sums[s].GetTokens() > 0 }) {
			t.Fatalf("cut after append %d: the budgets are %v", cut, sums)
		}
		for _, s := range shown.GetStepViews() {
			if b := s.GetBudget(); !b.GetSpent().Same(sums[s.GetStep()]) || !b.GetReserved().Zero() {
				t.Errorf("cut after append %d: %s is shown as %v, and the parts are %v", cut, s.GetStep(), b, sums[s.GetStep()])
			}
		}
		if !died {
			t.Logf("%d appends", cut)
			return
		}
	}
}
