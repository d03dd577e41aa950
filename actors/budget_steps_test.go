package actors_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
)

// keptWithinSteps walks a session's records in the order in which they became durable: never has a step, with those to whom its workers delegated, more spent and set
// aside than its budget has by then. It returns what each has spent in the end, and "" for all together.
func keptWithinSteps(t *testing.T, store persistence.Store, session string) map[string]*messages.Amounts {
	t.Helper()
	spent, set := map[string]*messages.Amounts{}, map[string]*messages.Amounts{}
	most, of := map[string]int64{}, map[string][]string{}
	sum := func(step string) *messages.Amounts {
		out := &messages.Amounts{}
		for worker, steps := range of {
			if step == "" || slices.Contains(steps, step) {
				out = out.Plus(spent[worker]).Plus(set[worker])
			}
		}
		return out
	}
	err := store.ReadSession(t.Context(), session, 0, func(e persistence.Entry) error {
		worker, ofWorker := strings.CutPrefix(e.Stream, "wrk/")
		switch {
		case strings.HasPrefix(e.Stream, "ses/"):
			fact, err := messages.SessionFactIn(e.Record)
			switch f := fact.(type) {
			case *messages.SessionCreated:
				most[""] = f.GetBudget().GetMost().GetTokens()
			case *messages.WorkerSpawned:
				of[f.GetWorkerId()] = of[f.GetParent()]
				for _, b := range f.GetBudgets() {
					of[f.GetWorkerId()] = append(of[f.GetWorkerId()], b.GetStep())
					most[b.GetStep()] = max(most[b.GetStep()], b.GetBudget().GetMost().GetTokens())
				}
			case *messages.BudgetChanged:
				most[f.GetStep()] = f.GetBudget().GetMost().GetTokens()
			}
			return err
		case !ofWorker:
			return nil
		}
		fact, err := messages.WorkerFactIn(e.Record)
		switch f := fact.(type) {
		case *messages.BudgetReserved:
			set[worker] = f.Amounts()
		case *messages.BudgetSettled:
			spent[worker] = spent[worker].Plus(f.Amounts())
			delete(set, worker)
		}
		for step, n := range most {
			if got := sum(step).GetTokens(); n > 0 && got > n {
				t.Errorf("%d of %d tokens of %q are spent or set aside at record %d of %s", got, n, step, e.Record.GetSeq(), e.Stream)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(set) > 0 {
		t.Errorf("%v is still set aside", set)
	}
	out := map[string]*messages.Amounts{}
	for step := range most {
		out[step] = sum(step)
	}
	return out
}

// endOf waits for the end of a run.
func endOf(h *actortest.House, session, run string) *messages.RunView {
	return actortest.Ask[*messages.RunView](h, session, &messages.AwaitRun{RunId: run})
}

func TestTheItemsOfAStepNeverSpendMoreThanItsBudgetTogether(t *testing.T) {
	for _, most := range []int64{900, 1_500, 6_000, 100_000} {
		for _, whole := range []string{"", "budget: {tokens: 120000}\n"} {
			t.Run(fmt.Sprint(most, whole), func(t *testing.T) {
				t.Parallel()
				h := actortest.New(t, actortest.Options{Model: costing(actortest.Say("ok"), 60, 140)})
				s, _, run := startRun(t, h, whole+fmt.Sprintf(`agents: {plain: {system: You are plain.}}
steps:
  - {id: a, foreach: "1..12", concurrency: 12, agent: plain, prompt: "x ${{ item }}", budget: {tokens: %d}, on_error: continue, quorum: 1}
  - {id: b, foreach: "1..3", agent: plain, prompt: "y ${{ item }}"}
`, most))
				v := endOf(h, s, run)
				sums := keptWithinSteps(t, h.Store, s)
				a := stepOf(h, s, run, "a")
				if !a.GetBudget().GetSpent().Same(sums["a"]) || !a.GetBudget().GetReserved().Zero() || a.GetBudget().GetMost().GetTokens() != most {
					t.Errorf("it is shown as %v, and the parts are %v", a.GetBudget(), sums["a"])
				}
				done := int64(a.GetDone())
				if enough := most >= 6_000; enough != (done == 12) || v.GetState() != pipeline.Succeeded || done == 0 || sums["a"].GetTokens() != done*200 {
					t.Errorf("with %d tokens the run is %s %s, and %d items are done, for %v", most, v.GetState(), v.GetError(), done, sums["a"])
				}
				for _, it := range a.GetItemViews() {
					if it.GetState() == pipeline.Failed && !strings.Contains(it.GetError(), "the budget of step a does not suffice") {
						t.Errorf("an item failed with: %s", it.GetError())
					}
				}
				if b := stepOf(h, s, run, "b"); b.GetBudget() != nil || b.GetDone() != 3 {
					t.Errorf("what has no budget is shown as %v", b)
				}
				if all := budgetOf(h, s); whole != "" && (!all.GetSpent().Same(sums[""]) || sums[""].GetTokens() != (done+3)*200) {
					t.Errorf("all together are shown as %v, and the parts are %v", all, sums[""])
				}
			})
		}
	}
}

// TestItemsThatTakeTurnsInAFolderGetTheirPartsOfAStepsBudget though nobody else of their session has one.
func TestItemsThatTakeTurnsInAFolderGetTheirPartsOfAStepsBudget(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: costing(actortest.Say("ok"), 60, 140)})
	s, _, run := startRun(t, h, `
steps:
  - {id: a, foreach: "1..12", concurrency: 12, agent: default, prompt: "x ${{ item }}", budget: {tokens: 20000}}
  - {id: b, foreach: "1..3", agent: default, prompt: "y ${{ item }}"}
`)
	if v := endOf(h, s, run); v.GetState() != pipeline.Succeeded {
		t.Errorf("the run is %s: %s", v.GetState(), v.GetError())
	}
	if sums := keptWithinSteps(t, h.Store, s); sums["a"].GetTokens() != 12*200 {
		t.Errorf("the parts are %v", sums)
	}
}

func TestThoseWhomAStepDelegatesToSpendFromItsBudget(t *testing.T) {
	for _, most := range []int64{13_000, 100_000} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			h := actortest.New(t, actortest.Options{
				Limits: actors.Limits{Children: 8},
				Model:  costing(family(actortest.Say("done"), delegate("1", "one"), delegate("2", "two"), delegate("3", "three"), delegate("4", "four")), 1500, 300),
			})
			s, _, run := startRun(t, h, fmt.Sprintf("steps: [{id: a, agent: default, prompt: x, budget: {tokens: %d}}]\n", most))
			v := endOf(h, s, run)
			sums := keptWithinSteps(t, h.Store, s)
			if got := stepOf(h, s, run, "a").GetBudget().GetSpent(); !got.Same(sums["a"]) {
				t.Errorf("it is shown as %v, and the parts are %v", got, sums["a"])
			}
			if most == 100_000 && (v.GetState() != pipeline.Succeeded || sums["a"].GetTokens() != 6*1800) {
				t.Errorf("with enough for all the run is %s: %s; %v", v.GetState(), v.GetError(), sums)
			}
		})
	}
}

// TestThePipelineOfAStepSpendsFromAllBudgetsAboveIt: that of the step, that of its file, and those of the steps in it.
func TestThePipelineOfAStepSpendsFromAllBudgetsAboveIt(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: costing(actortest.Say("ok"), 60, 140)})
	m, err := (&messages.StartRunJSON{Pipeline: `version: 1
name: t
steps: [{id: sub, foreach: '["p", "q"]', pipeline: inner.yaml, budget: {tokens: 14000}, on_error: continue, quorum: 1}]
`, Files: []messages.RunFileJSON{{Path: "inner.yaml", Text: `version: 1
name: inner
budget: {tokens: 9000}
agents: {plain: {system: You are plain.}}
steps:
  - {id: one, agent: plain, prompt: x, budget: {tokens: 8000}}
  - {id: two, needs: [one], agent: plain, prompt: x}
`}}}).Proto()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := h.Create(m)
	run := messages.RunOf(s)
	if v := endOf(h, s, run); v.GetState() != pipeline.Succeeded {
		t.Fatalf("the run is %s: %s", v.GetState(), v.GetError())
	}
	sums := keptWithinSteps(t, h.Store, s)
	want := map[string]int64{"": 800, "sub": 800, "sub[p]": 400, "sub[q]": 400, "sub[p]/one": 200, "sub[q]/one": 200}
	for step, n := range want {
		if sums[step].GetTokens() != n {
			t.Errorf("%q has spent %v, want %d", step, sums[step], n)
		}
	}
	if got := slices.Sorted(maps.Keys(sums)); len(got) != len(want) {
		t.Errorf("these have budgets: %q", got)
	}
}

// TestAStepThatIsToPauseWaitsForMoreOfItsBudget also in the next process, and what is added is added once.
func TestAStepThatIsToPauseWaitsForMoreOfItsBudget(t *testing.T) {
	o := actortest.Options{Store: stored(t), DataDir: t.TempDir(), Model: costing(actortest.Say("ok"), 300, 300)}
	h := actortest.New(t, o)
	s, _, run := startRun(t, h, `
budget: {tokens: 90000}
agents: {plain: {system: You are plain.}}
steps:
  - {id: a, foreach: "1..4", concurrency: 1, agent: plain, prompt: "x ${{ item }}", budget: {tokens: 1400, on_exceed: pause}}
  - {id: b, agent: plain, prompt: y}
`)
	waits := func() {
		t.Helper()
		actortest.Until(t, "a step waits for more", func() bool { return stepOf(h, s, run, "a").GetBudget().GetWaiting() == 1 })
		for _, w := range workers(h, s) {
			if on := w.GetWaiting(); on.GetKind() == "budget" && (on.GetStep() != "a" || w.GetWaitsFor() != "the budget of step a" || !strings.Contains(on.GetReason(), "of 1400 tokens")) {
				t.Errorf("it waits for %q: %v", w.GetWaitsFor(), on)
			}
		}
	}
	waits()
	spent := stepOf(h, s, run, "a").GetBudget().GetSpent()
	h.Stop()
	h = actortest.New(t, o)
	waits()
	if again := stepOf(h, s, run, "a").GetBudget().GetSpent(); !again.Same(spent) || spent.Zero() {
		t.Errorf("%v are spent in the next process, and were %v", again, spent)
	}
	for name, m := range map[string]*messages.AddBudget{
		"of an unknown step": {Step: "c", Add: &messages.Amounts{Tokens: 1}}, "of another kind": {Step: "a", Add: &messages.Amounts{MicroUsd: 1}}, "nothing": {Step: "a", Add: &messages.Amounts{}},
	} {
		if _, err := actortest.Try[*messages.BudgetView](h, s, m); err == nil {
			t.Errorf("more %s is not refused", name)
		}
	}
	more := &messages.AddBudget{Step: "a", Add: &messages.Amounts{Tokens: 20_000}, By: "user", ChangeId: "once"}
	for range 2 {
		if v := actortest.Ask[*messages.BudgetView](h, s, more); v.GetMost().GetTokens() != 21_400 {
			t.Errorf("the budget is %v", v)
		}
	}
	if all := budgetOf(h, s); all.GetMost().GetTokens() != 90_000 {
		t.Errorf("the session's is %v", all)
	}
	if v := endOf(h, s, run); v.GetState() != pipeline.Succeeded {
		t.Errorf("the run is %s: %s", v.GetState(), v.GetError())
	}
	h.Stop()
	h = actortest.New(t, o)
	if a := stepOf(h, s, run, "a").GetBudget(); a.GetMost().GetTokens() != 21_400 || a.GetSpent().GetTokens() != 4*600 {
		t.Errorf("afterwards it is %v", a)
	}
	keptWithinSteps(t, h.Store, s)
}

func TestWhoWaitsForABudgetOfAStepHoldsUpNobodyElse(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{Model: costing(func(ctx context.Context, r *model.Request) actortest.Reply {
		if strings.HasPrefix(actortest.Asked(r), "slow") {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}
		return actortest.Reply{Text: "ok"}
	}, 60, 140)})
	s, _, run := startRun(t, h, `
budget: {tokens: 90000}
agents: {plain: {system: You are plain.}}
steps:
  - {id: a, foreach: "1..3", agent: plain, prompt: "slow ${{ item }}", budget: {tokens: 6000}}
  - {id: b, agent: plain, prompt: quick}
  - {id: c, needs: [b], agent: plain, prompt: quick}
`)
	actortest.Wait(t, "a slow call", gate.Came)
	actortest.Until(t, "another one is done", func() bool { return stepOf(h, s, run, "c").GetState() == pipeline.Succeeded })
	if n := len(gate.Came); n > 0 {
		t.Errorf("%d more calls of a step whose budget is set aside", n)
	}
	gate.Open()
	if v := endOf(h, s, run); v.GetState() != pipeline.Succeeded {
		t.Errorf("the run is %s: %s", v.GetState(), v.GetError())
	}
	keptWithinSteps(t, h.Store, s)
}

func TestATurnWhoseStepHasNoTimeLeftEndsAndOthersGoOn(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
		if strings.HasPrefix(actortest.Asked(r), "slow") {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}
		return actortest.Reply{Text: "ok"}
	})})
	s, _, run := startRun(t, h, `
budget: {wall: 1h, on_exceed: pause}
steps:
  - {id: a, agent: default, prompt: slow, budget: {wall: 50ms}, on_error: continue}
  - {id: b, needs: [a], agent: default, prompt: quick}
`)
	v := endOf(h, s, run)
	a := stepOf(h, s, run, "a")
	if v.GetState() != pipeline.Succeeded || a.GetState() != pipeline.Failed || !strings.Contains(a.GetError(), "the budget of step a does not suffice: its time has passed") {
		t.Errorf("the run is %s, and a: %s", v.GetState(), a.GetError())
	}
	if a.GetBudget().GetSpent().GetWallMs() < 50 {
		t.Errorf("it is shown as %v", a.GetBudget())
	}
}

// TestABudgetThatAChangedPlanGivesAStepCountsFromTheNextAttemptOn also for a member of a group, who has been there, and what was added stays added.
func TestABudgetThatAChangedPlanGivesAStepCountsFromTheNextAttemptOn(t *testing.T) {
	const text = "version: 1\nname: t\nagents: {x: {system: You are x.}, y: {system: You are y.}}\nsteps: [{id: g, group: [x, y], rounds: 2, quorum: 2, prompt: talk, budget: {tokens: 1000}}]\n"
	h := actortest.New(t, actortest.Options{Model: costing(actortest.Say("ok"), 300, 300)})
	m, err := (&messages.StartRunJSON{Pipeline: text}).Proto()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := h.Create(m)
	run := messages.RunOf(s)
	if v := endOf(h, s, run); v.GetState() != pipeline.Failed || !strings.Contains(v.GetError(), "600 of 1000 tokens") {
		t.Fatalf("the run is %s: %s", v.GetState(), v.GetError())
	}
	actortest.Ask[*messages.BudgetView](h, s, &messages.AddBudget{Step: "g", Add: &messages.Amounts{Tokens: 100}, ChangeId: "more"})
	plan, err := pipeline.Parse("t.yaml", strings.Replace(text, "tokens: 1000", "tokens: 50000", 1), pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	actortest.Ask[*messages.RunView](h, s, &messages.ResumeRun{RunId: run, PlanHash: plan.Hash, Sources: plan.Sources, AcceptChanges: true})
	v := endOf(h, s, run)
	b := stepOf(h, s, run, "g").GetBudget()
	if v.GetState() != pipeline.Succeeded || b.GetMost().GetTokens() != 50_100 || b.GetSpent().GetTokens() != 4*600 {
		t.Errorf("the run is %s: %s; %v", v.GetState(), v.GetError(), b)
	}
	keptWithinSteps(t, h.Store, s)
}

// Who waits for more of a budget that a changed plan takes away, or makes larger, goes on, in this process and the next one.
func TestABudgetThatAChangedPlanTakesAwayBoundsNobodyAnyMore(t *testing.T) {
	const text = "version: 1\nname: t\nagents: {x: {system: You are x.}}\nsteps: [{id: a, foreach: '1..4', agent: x, prompt: 'talk ${{ item }}', budget: {tokens: 1000, on_exceed: pause}}]\n"
	for name, c := range map[string]struct {
		was, is string
		most    int64
	}{
		"taken away":  {", budget: {tokens: 1000, on_exceed: pause}", "", 0},
		"made larger": {"tokens: 1000", "tokens: 50000", 50_000},
		"of the run":  {"steps: [{", "budget: {tokens: 90000}\nsteps: [{", 1000}, // which it has for good: nothing changes
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := actortest.Options{Store: stored(t), DataDir: t.TempDir(), Model: costing(actortest.Say("ok"), 300, 300)}
			h := actortest.New(t, o)
			m, err := (&messages.StartRunJSON{Pipeline: text}).Proto()
			if err != nil {
				t.Fatal(err)
			}
			s, _ := h.Create(m)
			run := messages.RunOf(s)
			waits := func() bool { return stepOf(h, s, run, "a").GetBudget().GetWaiting() == 3 }
			actortest.Until(t, "three wait", waits)
			plan, err := pipeline.Parse("t.yaml", strings.Replace(text, c.was, c.is, 1), pipeline.Options{})
			if err != nil {
				t.Fatal(err)
			}
			actortest.Ask[*messages.RunView](h, s, &messages.ResumeRun{RunId: run, PlanHash: plan.Hash, Sources: plan.Sources, AcceptChanges: true})
			if c.most == 1000 {
				actortest.Until(t, "three wait still", waits)
				return
			}
			if v := endOf(h, s, run); v.GetState() != pipeline.Succeeded || v.GetUsage().GetInputTokens() != 4*300 {
				t.Errorf("the run is %s: %s; %v", v.GetState(), v.GetError(), v.GetUsage())
			}
			for range 2 {
				if b := stepOf(h, s, run, "a").GetBudget(); b.GetMost().GetTokens() != c.most || (c.most > 0) != (b.GetSpent().GetTokens() == 4*600) {
					t.Errorf("its budget is %v", b)
				}
				if _, err := actortest.Try[*messages.BudgetView](h, s, &messages.AddBudget{Step: "a", Add: &messages.Amounts{Tokens: 1}}); (err != nil) != (c.most == 0) {
					t.Errorf("more of it: %v", err)
				}
				if c.most > 0 {
					c.most++
				}
				h.Stop()
				h = actortest.New(t, o)
			}
		})
	}
}

// Who asks for a worker by the plan before may be heard after the change: it was on its way then.
func TestABudgetThatWasTakenAwayDoesNotComeBackByWhoWasOnTheWay(t *testing.T) {
	const text = "version: 1\nname: t\nagents: {x: {system: You are x.}}\nsteps: [{id: a, agent: x, prompt: talk, budget: {tokens: 1000}}, {id: ask, needs: [a], human: {message: 'Go on?'}}]\n"
	h := actortest.New(t, actortest.Options{Model: costing(actortest.Say("ok"), 300, 300)})
	m, err := (&messages.StartRunJSON{Pipeline: text}).Proto()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := h.Create(m)
	run := messages.RunOf(s)
	actortest.Until(t, "it is over", func() bool { return stepOf(h, s, run, "a").GetState() == pipeline.Succeeded })
	session := actor.NewPID(h.Sys.Address(), h.Root.GetId()+"/"+s)
	has := func() bool {
		v, err := act.Ask[*messages.StepBudgets](t.Context(), h.Sys, session, &messages.ReadStepBudgets{})
		if err != nil {
			t.Fatal(err)
		}
		return len(v.GetSteps()) > 0 && v.GetSteps()[0].GetBudget().GetMost().GetTokens() == 1000
	}
	if !has() {
		t.Fatal("it has no budget")
	}
	budget := []*messages.StepBudget{{Step: "a", Budget: &messages.Budget{Most: &messages.Amounts{Tokens: 1000}}}}
	plan, err := pipeline.Parse("t.yaml", strings.Replace(text, ", budget: {tokens: 1000}", "", 1), pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	actortest.Ask[*messages.RunView](h, s, &messages.ResumeRun{RunId: run, PlanHash: plan.Hash, Sources: plan.Sources, AcceptChanges: true})
	actortest.Until(t, "it has no budget", func() bool { return !has() })
	for _, exec := range []string{messages.ExecPrefix + strings.TrimPrefix(stepOf(h, s, run, "a").GetItemViews()[0].GetWorkerId(), messages.WorkerPrefix), messages.NewID(messages.ExecPrefix)} {
		late := &messages.SpawnStep{RunId: run, ExecId: exec, Agent: actors.DefaultAgent, InputId: "in_" + exec, Prompt: "talk", Budgets: budget}
		if _, err := act.Ask[*messages.ChildReady](t.Context(), h.Sys, session, late); err != nil {
			t.Fatal(err)
		}
		if has() {
			t.Errorf("%s: its budget is back", exec)
		}
	}
}

// What a run says of its changed plan it says once: when it cannot be written down then, it is written down later.
func TestABudgetThatCouldNotBeTakenAwayIsTakenAwayLater(t *testing.T) {
	const text = "version: 1\nname: t\nagents: {x: {system: You are x.}}\nsteps: [{id: a, foreach: '1..2', agent: x, prompt: 'talk ${{ item }}', budget: {tokens: 1000, on_exceed: pause}}]\n"
	store := &actortest.Store{Store: stored(t)}
	h := actortest.New(t, actortest.Options{Store: store, DataDir: t.TempDir(), Model: costing(actortest.Say("ok"), 300, 300)})
	m, err := (&messages.StartRunJSON{Pipeline: text}).Proto()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := h.Create(m)
	run := messages.RunOf(s)
	actortest.Until(t, "one waits", func() bool { return stepOf(h, s, run, "a").GetBudget().GetWaiting() == 1 })
	plan, err := pipeline.Parse("t.yaml", strings.Replace(text, ", budget: {tokens: 1000, on_exceed: pause}", "", 1), pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int32
	store.Refuse(func(f proto.Message) error {
		if _, is := f.(*messages.BudgetChanged); is && refused.Add(1) <= 2 {
			return errors.New("no room")
		}
		return nil
	})
	actortest.Ask[*messages.RunView](h, s, &messages.ResumeRun{RunId: run, PlanHash: plan.Hash, Sources: plan.Sources, AcceptChanges: true})
	if v := endOf(h, s, run); v.GetState() != pipeline.Succeeded || refused.Load() != 3 {
		t.Errorf("the run is %s: %s; %d were written", v.GetState(), v.GetError(), refused.Load())
	}
}
