package actors

import (
	"context"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/policy"
)

// The Session pays its workers' model calls from its budget (ADR 55). Up to where each of them may spend is in the session's journal before it is told;
// what it has spent is in its own. The two are brought together when a worker asks, when it reports, and when the session comes into memory: what is
// granted and not spent is then free again, and the sum never exceeds the budget.

// till is the budget as its Session keeps it.
type till struct {
	ledger policy.Ledger
	queue  []*payment // in order of arrival
}

// payment is one ask that waits.
type payment struct {
	*messages.AskBudget
	who   *actor.PID
	short bool // it waits for more budget, and for nothing else
}

// budgetWritten is the end of an append about the budget.
type budgetWritten struct {
	asker   *actor.PID
	again   any // what came to it, and is taken again
	paid    *payment
	granted *messages.Amounts
	journal *persistence.Journal
	fact    proto.Message
	record  *messages.Record
	receipt persistence.Receipt
	fail    *messages.Failure
}

// aboutBudget is what workers and the till itself say about it.
func (s *Session) aboutBudget(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.AskBudget:
		s.askBudget(c, m)
	case *messages.ReportBudget:
		s.reportBudget(c, m)
	case *budgetWritten:
		s.budgetWritten(c, m)
	}
}

func (f *sessionFacts) applyBudget(fact proto.Message) {
	switch x := fact.(type) {
	case *messages.BudgetChanged:
		if x.GetStep() != "" {
			f.changeStep(x)
		} else {
			f.budget = x.GetBudget()
		}
		f.budgetChanges = append(f.budgetChanges[:len(f.budgetChanges):len(f.budgetChanges)], x.GetChangeId())
	case *messages.BudgetAllotted:
		all := make(map[string]*messages.Amounts, len(f.allotted)+1) // others may read the one before
		for id, a := range f.allotted {
			all[id] = a
		}
		all[x.GetWorkerId()] = x.GetUntil()
		f.allotted = all
	}
}

// openTill takes the budget up. Workers that start report what they have spent; of the others the listing says it. asleep are those.
func (s *Session) openTill(asleep map[string]*messages.Amounts) {
	s.till.ledger.Set(s.facts.budget)
	s.openSteps()
	for id, upto := range s.facts.allotted {
		switch w := s.workers[id]; {
		case w == nil: // deleted
			s.till.ledger.Report(id, false, upto)
		case asleep[id] != nil:
			s.till.ledger.Report(id, s.isChild(id), asleep[id])
		default:
			s.till.ledger.Assume(id, s.isChild(id), upto)
		}
	}
}

// spentAsleep is what those have spent that have no turn to go on with, as they are listed.
func spentAsleep(svc *Services, f *sessionFacts, amid map[string]bool) map[string]*messages.Amounts {
	out := make(map[string]*messages.Amounts)
	for _, w := range f.workers {
		if id := w.GetWorkerId(); dormantFact(w, amid) && f.allotted[id] != nil {
			v := listed(context.Background(), svc, f.created.GetSessionId(), id)
			out[id] = v.GetSpent().Plus(v.GetReserved())
		}
	}
	return out
}

func (s *Session) isChild(worker string) bool {
	w := s.workers[worker]
	return w != nil && w.spawned.GetParent() != "" && !w.spawned.GetBackground() // whose time is its own
}

// askBudget takes a worker's wish for its next call into the queue.
func (s *Session) askBudget(c actor.Context, m *messages.AskBudget) {
	w := s.workers[m.GetWorkerId()]
	if w == nil || w.pid == nil {
		return // its successor asks again
	}
	s.unqueue(m.GetWorkerId())
	s.till.ledger.Report(m.GetWorkerId(), s.isChild(m.GetWorkerId()), m.GetSpent())
	s.till.queue = append(s.till.queue, &payment{AskBudget: m, who: w.pid})
	s.pay(c)
}

// reportBudget takes note of what a worker has spent.
func (s *Session) reportBudget(c actor.Context, m *messages.ReportBudget) {
	if s.workers[m.GetWorkerId()] == nil {
		return
	}
	s.unqueue(m.GetWorkerId())
	s.till.ledger.Report(m.GetWorkerId(), s.isChild(m.GetWorkerId()), m.GetSpent())
	s.pay(c)
}

// unqueue forgets what a worker has asked for.
func (s *Session) unqueue(worker string) {
	kept := s.till.queue[:0:0]
	for _, p := range s.till.queue {
		if p.GetWorkerId() != worker {
			kept = append(kept, p)
		}
	}
	s.till.queue = kept
}

// lostPayer forgets what a worker that is down has asked for. What it was granted counts until its successor reports, or for good.
func (s *Session) lostPayer(c actor.Context, w *member) {
	s.unqueue(w.id)
	if w.quarantined != "" {
		s.till.ledger.Still(w.id)
	}
	s.pay(c)
}

// pay serves those who wait, in order. Who waits for more budget holds nobody up, and who waits for others of its step holds up those who work for it.
func (s *Session) pay(c actor.Context) {
	behind := make(map[string]bool) // of these steps somebody waits for others
	for i := 0; i < len(s.till.queue) && !s.building; {
		p := s.till.queue[i]
		steps := s.till.ledger.Steps(p.GetWorkerId())
		if slices.ContainsFunc(steps, func(step string) bool { return behind[step] }) {
			i++
			continue
		}
		granted, answer := s.till.ledger.Ask(p.GetWorkerId(), p.GetWant(), p.GetLeast())
		step, pause := "", false
		if answer == policy.Exceeded {
			step, pause = s.till.ledger.Short(p.GetWorkerId(), p.GetLeast())
		}
		switch {
		case answer == policy.Later:
			return
		case answer == policy.Aside:
			for _, step := range steps {
				behind[step] = true
			}
			i++
			continue
		case pause:
			if !p.short {
				p.short = true
				c.Send(p.who, &messages.BudgetShort{Ask: p.GetAsk(), Reason: s.till.ledger.Why(step, p.GetLeast()), Step: step})
			}
			i++
			continue
		}
		s.till.queue = append(s.till.queue[:i:i], s.till.queue[i+1:]...)
		if answer == policy.Exceeded {
			c.Send(p.who, &messages.BudgetRefused{Ask: p.GetAsk(), Reason: s.till.ledger.Why(step, p.GetLeast()), Step: step})
			continue
		}
		s.allot(c, p, granted)
	}
}

// allot tells a worker what it was granted, once its allotment is in the session's journal.
func (s *Session) allot(c actor.Context, p *payment, granted *messages.Amounts) {
	upto := s.till.ledger.Upto(p.GetWorkerId())
	if s.facts.allotted[p.GetWorkerId()].Covers(upto) {
		s.deliver(c, p, granted)
		return
	}
	s.writeBudget(c, &budgetWritten{paid: p, granted: granted, fact: &messages.BudgetAllotted{WorkerId: p.GetWorkerId(), Until: upto}})
}

func (s *Session) deliver(c actor.Context, p *payment, granted *messages.Amounts) {
	left, step := s.till.ledger.WallLeft(p.GetWorkerId())
	c.Send(p.who, &messages.BudgetGranted{Ask: p.GetAsk(), Amounts: granted, WallLeftMs: left.Milliseconds(), Step: step})
}

// addBudget gives the session more.
func (s *Session) addBudget(c actor.Context, m *messages.AddBudget) {
	if s.building {
		s.builds.Put(c)
		return
	}
	now, whose := s.facts.budget, "of the session"
	if m.GetStep() != "" {
		now, whose = s.facts.steps[m.GetStep()].now(), "of step "+m.GetStep()
	}
	fail := m.GetAdd().Refuse()
	switch {
	case fail != nil:
	case m.GetStep() != "" && now == nil:
		fail = s.noStep(m.GetStep())
	case !now.Bounds():
		fail = messages.Fail(messages.CodeBadRequest, fmt.Sprintf("session %s has no budget: what it spends is not bounded", s.id), "")
	case m.GetAdd().Zero():
		fail = messages.Fail(messages.CodeBadRequest, "nothing is to be added to the budget", "say how much, for example tokens=50000")
	case now.More(m.GetAdd()).GetMost().Same(now.GetMost()):
		fail = messages.Fail(messages.CodeBadRequest, "the budget "+whose+" does not bound what is to be added", "see `troupe show "+s.id+"` for what it bounds")
	}
	if fail != nil {
		s.answer(c, fail)
		return
	}
	for _, id := range s.facts.budgetChanges {
		if id != "" && id == m.GetChangeId() {
			s.answer(c, s.viewOf(m.GetStep()))
			return
		}
	}
	s.writeBudget(c, &budgetWritten{asker: c.Sender(), fact: &messages.BudgetChanged{Budget: now.More(m.GetAdd()), Added: m.GetAdd(), By: m.GetBy(), ChangeId: m.GetChangeId(), Step: m.GetStep()}})
}

// writeBudget appends a fact about the budget.
func (s *Session) writeBudget(c actor.Context, w *budgetWritten) {
	s.building = true
	svc, journal, facts, grant := s.svc, s.journal, s.facts, s.grant
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		w.fail = messages.Fail(messages.CodeInternal, p.Error(), "")
		return w
	}, func() any {
		if err := w.write(svc, journal, facts, grant); err != nil {
			w.fail = messages.Fail(messages.CodeUnavailable, "change the budget of the session: "+err.Error(), "try again")
		}
		return w
	})
}

func (w *budgetWritten) write(svc *Services, journal *persistence.Journal, facts sessionFacts, g *messages.Grant) error {
	var err error
	if w.journal, w.record, err = oneRecord(svc, journal, facts.seq, w.fact); err != nil {
		return err
	}
	var index []persistence.IndexOp
	if f, changed := w.fact.(*messages.BudgetChanged); changed && f.GetStep() == "" {
		facts.applyBudget(w.fact)
		if index, err = relisted(svc, &facts, g); err != nil {
			return err
		}
	}
	w.receipt, err = appendAndWait(svc, persistence.Part{Journal: w.journal, Draft: persistence.Draft{Records: []*messages.Record{w.record}, Index: index}})
	return err
}

// budgetWritten answers, and goes on.
func (s *Session) budgetWritten(c actor.Context, m *budgetWritten) {
	s.building = false
	if m.journal != nil {
		s.journal = m.journal
	}
	if m.fail == nil {
		s.written(c, []proto.Message{m.fact}, []*messages.Record{m.record}, m.receipt)
	}
	switch {
	case m.paid != nil && m.fail != nil:
		s.till.ledger.Report(m.paid.GetWorkerId(), s.isChild(m.paid.GetWorkerId()), m.paid.GetSpent())
		c.Send(m.paid.who, &messages.BudgetRefused{Ask: m.paid.GetAsk(), Reason: m.fail.GetMessage(), Unavailable: true})
	case m.paid != nil:
		s.deliver(c, m.paid, m.granted)
	case m.fail != nil:
		if plan, ok := m.again.(*planBudgets); ok {
			s.replanLater(c, plan, m.fail)
		}
		s.tell(c, m.asker, m.fail)
	default:
		f, _ := m.fact.(*messages.BudgetChanged)
		if step := f.GetStep(); step != "" {
			s.till.ledger.SetStep(step, s.facts.steps[step].now())
			s.rejoin()
		}
		s.till.ledger.Set(s.facts.budget)
		g := proto.CloneOf(s.grant)
		g.Budget = s.facts.budget
		s.grant = g
		s.tellAll(c, &messages.Configure{Grant: g, Watched: len(s.watchers) > 0})
		if m.again != nil {
			c.RequestWithCustomSender(c.Self(), m.again, m.asker)
		} else {
			s.tell(c, m.asker, s.viewOf(f.GetStep()))
		}
	}
	s.goOn(c)
}

// accounts are what the till knows and the views of workers do not say.
type accounts struct {
	parts   map[string]*messages.BudgetView // of workers
	gone    *messages.Amounts               // spent by those that were deleted
	waiting int32
}

func (s *Session) accounts() *accounts {
	a := &accounts{parts: s.till.ledger.Parts(), gone: &messages.Amounts{}, waiting: s.budgetView().GetWaiting()}
	for id, v := range a.parts {
		if s.workers[id] == nil {
			a.gone = a.gone.Plus(v.GetSpent())
			a.gone.WallMs = 0
		}
	}
	return a
}

// fill is for workers that are not open yet.
func (a *accounts) fill(views []*messages.WorkerView) {
	for _, v := range views {
		if part := a.parts[v.GetId()]; v.GetSpent() == nil && part != nil {
			v.Spent, v.Reserved = part.GetSpent(), part.GetReserved()
		}
	}
}

func (a *accounts) add(v *messages.SessionView) {
	if v.GetBudget() != nil {
		v.Budget.Spent, v.Budget.Waiting = v.GetBudget().GetSpent().Plus(a.gone), a.waiting
	}
}

// viewOf is the budget of a step, or the session's.
func (s *Session) viewOf(step string) *messages.BudgetView {
	if step != "" {
		return s.stepView(step)
	}
	return s.budgetView()
}

// budgetView is the budget as it stands; nil when there is none.
func (s *Session) budgetView() *messages.BudgetView {
	waiting := 0
	for _, p := range s.till.queue {
		if p.short {
			waiting++
		}
	}
	return s.till.ledger.View(waiting)
}
