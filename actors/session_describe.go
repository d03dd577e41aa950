package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// slot is one worker of a description: the live one, or what is known of one that is down.
type slot struct {
	id   string
	pid  *actor.PID
	down *messages.WorkerView

	restarts  int32
	lastError string
}

// slots lists the workers, the first one first.
func (s *Session) slots() []slot {
	out := make([]slot, 0, len(s.order))
	for _, id := range s.order {
		w := s.workers[id]
		x := slot{id: id, pid: w.pid, restarts: w.restarts, lastError: w.lastError}
		switch {
		case w.dormant || w.retiring: // as it was listed
		case w.pid == nil:
			x.down = &messages.WorkerView{State: stateWaiting, Restarts: w.restarts, LastError: w.lastError} // for its restart
			if w.quarantined != "" {
				x.down.State, x.down.Quarantined, x.down.LastError = stateFailed, true, w.quarantined
			}
		}
		out = append(out, x)
	}
	return out
}

// view asks a worker for its view. One that is down, begins or ends at this moment is shown as it was listed last.
func (x slot) view(ctx context.Context, svc *Services, sys *actor.ActorSystem, session string) *messages.WorkerView {
	opening := false
	if x.pid != nil {
		v, err := act.AskSoon[*messages.WorkerView](ctx, sys, x.pid, &messages.DescribeWorker{})
		if err == nil {
			return v
		}
		var reads *messages.Failure
		opening = errors.As(err, &reads)
		x.down = &messages.WorkerView{State: stateWaiting, Restarts: x.restarts, LastError: x.lastError}
	}
	v := listed(ctx, svc, session, x.id)
	if opening && v.GetTurn() == "" {
		x.down.State = stateInactive
	}
	if x.down == nil {
		return v
	}
	v.State, v.Quarantined, v.Restarts, v.LastError = x.down.GetState(), x.down.GetQuarantined(), x.down.GetRestarts(), x.down.GetLastError()
	return v
}

// gather asks all workers for their views off the mailbox, and answers the asker with what make makes of them.
func (s *Session) gather(c actor.Context, make func([]*messages.WorkerView) any) {
	if c.Sender() == nil {
		return
	}
	svc, sys, asker, id, slots, away := s.svc, c.ActorSystem(), c.Sender(), s.id, s.slots(), &s.rest.away
	away.Add(1)
	svc.spawn(sys, asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var views []*messages.WorkerView
		for _, x := range slots {
			views = append(views, x.view(ctx, svc, sys, id))
		}
		return make(views)
	})
}

// describe answers with the session and the live views of its workers.
func (s *Session) describe(c actor.Context) {
	view, accounts := s.facts.view(s.grant), s.accounts()
	view.StepBudgets = s.stepViews()
	s.gather(c, func(views []*messages.WorkerView) any {
		view.Workers = views
		accounts.fill(views)
		SumUp(view)
		accounts.add(view)
		return view
	})
}

// SumUp fills in what a session's view takes from its workers'.
func SumUp(v *messages.SessionView) {
	rank := []string{stateInactive, stateFailed, stateWaiting, stateWorking, stateRequesting, stateReceiving, stateUsingTool}
	best := 0
	v.Turns, v.Usage = 0, &messages.Usage{}
	if v.GetBudget() != nil {
		v.Budget.Spent, v.Budget.Reserved = &messages.Amounts{}, &messages.Amounts{}
	}
	for _, w := range v.GetWorkers() {
		if v.GetBudget() != nil {
			spent := w.GetSpent().Plus(nil)
			if w.GetParent() != "" && !w.GetBackground() {
				spent.WallMs = 0 // it is a part of somebody else's
			}
			v.Budget.Spent, v.Budget.Reserved = v.Budget.GetSpent().Plus(spent), v.Budget.GetReserved().Plus(w.GetReserved())
		}
		v.Turns += w.GetTurns()
		v.Usage = sumUsage(v.GetUsage(), w.GetUsage())
		v.UpdatedAtUnixMs = max(v.GetUpdatedAtUnixMs(), w.GetUpdatedAtUnixMs())
		for i, name := range rank {
			if w.GetState() == name {
				best = max(best, i)
			}
		}
	}
	v.State = rank[best]
}
