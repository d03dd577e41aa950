package main

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// errUnpaid ends the walk along the events of a turn that waits for more budget.
var errUnpaid = fmt.Errorf("%w to add to its budget", errWaiting)

// watchRunBudget says that steps of a run wait for more budget. Where nobody sits at a terminal, it ends the walk then.
func (a *app) watchRunBudget(ctx context.Context, n node, run string, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	told := make(map[string]bool)
	for {
		v, err := ask[*messages.RunView](ctx, n, &messages.AwaitRun{RunId: run, Changes: true, Brief: true})
		for _, s := range v.GetStepViews() {
			waits := err == nil && s.GetBudget().GetWaiting() > 0
			if waits && !told[s.GetStep()] {
				j := s.GetBudget().JSON()
				a.note("troupe: step %s waits for more budget (%s): %s", visible(s.GetStep()), budgetText(j), addBudgetCommand(v.GetSessionId(), s.GetStep(), j))
			}
			told[s.GetStep()] = waits
			if waits && !a.canAsk() {
				cancel(errUnpaid)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// watchBudget says that the session waits for more budget. Where nobody sits at a terminal, it ends the walk then.
func (r *runner) watchBudget(ctx context.Context, h *house, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	told := false
	for {
		v, err := ask[*messages.SessionView](ctx, h, &messages.ToSession{SessionId: r.session, Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}})
		waits := err == nil && v.GetBudget().GetWaiting() > 0
		if waits && !told {
			r.a.note("troupe: the turn waits for more budget (%s): %s", budgetText(v.GetBudget().JSON()), addBudgetCommand(r.session, "", v.GetBudget().JSON()))
		}
		told = waits
		if waits && !r.a.canAsk() {
			cancel(errUnpaid)
			return
		}
		if err == nil && v.GetBudget() == nil {
			return // it never will
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
