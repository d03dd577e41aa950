package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// Budgets of steps (ADR 92). The worker of an item is written down with those that it spends from, in the append that makes it; the Session's till pays its calls,
// and those of whom it delegates to, from them and from the session's own alike.

// stepBudget is what a step may spend: as its pipeline says, and what was added.
type stepBudget struct {
	plan  *messages.Budget
	added *messages.Amounts
}

func (b *stepBudget) now() *messages.Budget {
	if b == nil || b.plan == nil {
		return nil
	}
	return b.plan.More(b.added)
}

// applyStepBudgets notes what a worker of a run was made with. The newest word of a plan counts: it may have changed.
func (f *sessionFacts) applyStepBudgets(x *messages.WorkerSpawned) {
	for _, b := range x.GetBudgets() {
		if was := f.steps[b.GetStep()]; b.GetStep() == "" || was != nil && proto.Equal(was.plan, b.GetBudget()) {
			continue
		}
		f.setStep(b.GetStep(), &stepBudget{plan: b.GetBudget(), added: f.added(b.GetStep())})
	}
}

func (f *sessionFacts) added(step string) *messages.Amounts {
	if was := f.steps[step]; was != nil {
		return was.added
	}
	return &messages.Amounts{}
}

// changeStep applies more of a budget, or another plan's.
func (f *sessionFacts) changeStep(x *messages.BudgetChanged) {
	if x.GetAdded() == nil { // without a budget: the plan has none for the step any more
		f.setStep(x.GetStep(), &stepBudget{plan: x.GetBudget(), added: f.added(x.GetStep())})
	} else if was := f.steps[x.GetStep()]; was != nil {
		f.setStep(x.GetStep(), &stepBudget{plan: was.plan, added: was.added.Plus(x.GetAdded())})
	}
}

func (f *sessionFacts) setStep(step string, b *stepBudget) {
	if f.steps = maps.Clone(f.steps); f.steps == nil { // others may read the one before
		f.steps = make(map[string]*stepBudget, 1)
	}
	f.steps[step] = b
}

// pays are the steps from whose budgets a worker spends: its own, or those of who delegated to it.
func (f *sessionFacts) pays(w *messages.WorkerSpawned) (steps []string) {
	if id := w.GetParent(); id != "" {
		parent := f.gone[id]
		if i := slices.IndexFunc(f.workers, func(p *messages.WorkerSpawned) bool { return p.GetWorkerId() == id }); i >= 0 {
			parent = f.workers[i]
		}
		w = parent
	}
	for _, b := range w.GetBudgets() {
		if f.steps[b.GetStep()].now() != nil { // a changed plan may have taken it away
			steps = append(steps, b.GetStep())
		}
	}
	return steps
}

// joinTill has a worker spend from the budgets of its steps.
func (s *Session) joinTill(w *messages.WorkerSpawned) {
	if len(s.facts.steps) == 0 {
		return
	}
	s.till.ledger.Join(w.GetWorkerId(), s.facts.pays(w))
	for _, b := range w.GetBudgets() {
		s.till.ledger.SetStep(b.GetStep(), s.facts.steps[b.GetStep()].now())
	}
}

// openSteps takes the budgets of steps up.
func (s *Session) openSteps() {
	for step, b := range s.facts.steps {
		s.till.ledger.SetStep(step, b.now())
	}
	for _, w := range s.facts.workers {
		s.joinTill(w)
	}
	for _, w := range s.facts.gone {
		s.joinTill(w)
	}
}

// planBudgets is what a run tells its session whose plan has changed: the budgets that its steps have by now.
type planBudgets struct {
	plan    int64 // how often it had changed
	budgets map[string]*messages.Budget
}

// replan makes the budgets count that a changed plan has, one after the other. A step that has none any more bounds nobody, whoever waits for more of it goes on.
// What an older plan had, which is heard again behind a newer one, counts no more.
func (s *Session) replan(c actor.Context, m *planBudgets) {
	if s.run.plan != nil && m.plan < s.run.plan.plan {
		return
	}
	if s.building {
		s.builds.Put(c)
		return
	}
	s.run.plan = m
	for _, step := range slices.Sorted(maps.Keys(s.facts.steps)) {
		if was, b := s.facts.steps[step].plan, m.budgets[step]; !proto.Equal(was, b) {
			s.writeBudget(c, &budgetWritten{again: m, fact: &messages.BudgetChanged{Step: step, Budget: b, By: "pipeline"}})
			return
		}
	}
}

// replanLater does it once more when it could not be written down: the run tells it once, and nobody else asks for it.
func (s *Session) replanLater(c actor.Context, m *planBudgets, fail *messages.Failure) {
	s.log.Error("budgets of a changed plan cannot be written", "err", fail)
	svc := s.svc
	svc.spawn(c.ActorSystem(), c.Self(), func(*act.Panic) any { return m }, func() any {
		svc.pause(postPause)
		return m
	})
}

// byPlan are the budgets that a worker is asked for with. Who asks by a plan that has changed since, as whoever was on the way then, gets what the newest one says: else
// a budget that it took away would come back.
func (s *Session) byPlan(m *messages.SpawnStep) (now []*messages.StepBudget) {
	if s.run == nil || s.run.plan == nil || m.GetPlan() >= s.run.plan.plan {
		return m.GetBudgets()
	}
	for _, b := range m.GetBudgets() {
		if is := s.run.plan.budgets[b.GetStep()]; is != nil {
			now = append(now, &messages.StepBudget{Step: b.GetStep(), Budget: is})
		}
	}
	return now
}

// rejoin looks anew at who spends from which budgets.
func (s *Session) rejoin() {
	for _, workers := range [][]*messages.WorkerSpawned{s.facts.workers, slices.Collect(maps.Values(s.facts.gone))} {
		for _, w := range workers {
			s.till.ledger.Join(w.GetWorkerId(), s.facts.pays(w))
		}
	}
}

// budgetOf is what bounds a worker: of each limit the tightest one. Nil: nothing does.
func (s *Session) budgetOf(w *member) *messages.Budget {
	b := s.facts.budget
	for _, step := range s.till.ledger.Steps(w.id) {
		b = b.Tighter(s.facts.steps[step].now())
	}
	return b
}

// budgetsChanged says whether the plan gives steps another budget than what is known of them.
func (s *Session) budgetsChanged(m *messages.SpawnStep) *messages.StepBudget {
	for _, b := range s.byPlan(m) {
		if was := s.facts.steps[b.GetStep()]; was == nil || !proto.Equal(was.plan, b.GetBudget()) {
			return b
		}
	}
	return nil
}

// noStep says that a step has no budget that could be added to.
func (s *Session) noStep(step string) *messages.Failure {
	var known []string
	for _, v := range s.stepViews() {
		known = append(known, v.GetStep())
	}
	hint := "no step of it that has begun has one: its budget is in the pipeline"
	if len(known) > 0 {
		hint = "of the steps that have begun these have one: " + strings.Join(known, ", ")
	}
	return messages.Fail(messages.CodeNotFound, fmt.Sprintf("session %s knows no budget of step %q", s.id, step), hint)
}

// stepViews are the budgets of steps as they stand.
func (s *Session) stepViews() []*messages.StepBudgetView {
	if len(s.facts.steps) == 0 {
		return nil
	}
	views := s.till.ledger.StepViews()
	for _, p := range s.till.queue {
		for _, step := range s.till.ledger.Steps(p.GetWorkerId()) {
			if v := views[step]; v != nil && p.short {
				v.Waiting++
			}
		}
	}
	out := make([]*messages.StepBudgetView, 0, len(views))
	for _, step := range slices.Sorted(maps.Keys(views)) {
		out = append(out, &messages.StepBudgetView{Step: step, Budget: views[step]})
	}
	return out
}

// stepView is the budget of one of them.
func (s *Session) stepView(step string) *messages.BudgetView {
	for _, v := range s.stepViews() {
		if v.GetStep() == step {
			return v.GetBudget()
		}
	}
	return nil
}

// tellSteps answers the run that asks how its steps' budgets stand.
func (s *Session) tellSteps(c actor.Context) {
	s.answer(c, &messages.StepBudgets{Steps: s.stepViews()})
}
