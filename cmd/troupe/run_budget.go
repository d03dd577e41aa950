package main

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// errUnpaid ends the walk along the events of a turn that waits for more budget.
var errUnpaid = fmt.Errorf("%w to add to its budget", errWaiting)

// watchRun says that a run or its steps wait for more budget. Where nobody sits at a terminal, it ends the walk then.
func (a *app) watchRun(ctx context.Context, n node, run string, view *runView, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	soon := time.NewTimer(lookSoon) // most questions come early
	defer soon.Stop()
	told := make(map[string]bool)
	for {
		v, err := ask[*messages.RunView](ctx, n, &messages.AwaitRun{RunId: run, Changes: true, Brief: true})
		for _, s := range budgetsOf(ctx, n, v) {
			waits := err == nil && s.GetBudget().GetWaiting() > 0
			if waits && !told[s.GetStep()] {
				what, j := "run "+run, s.GetBudget().JSON()
				if s.GetStep() != "" {
					what = "step " + visible(s.GetStep())
				}
				view.note("troupe: %s waits for more budget (%s): %s", what, budgetText(j), addBudgetCommand(v.GetSessionId(), s.GetStep(), j))
			}
			told[s.GetStep()] = waits
			if waits && !a.canAsk() {
				cancel(errUnpaid)
				return
			}
		}
		select {
		case <-tick.C:
		case <-soon.C:
		case <-ctx.Done():
			return
		}
	}
}

// budgetsOf are the budgets that a run spends: its own, which is its session's and has no name here, and those of its steps.
func budgetsOf(ctx context.Context, n node, v *messages.RunView) []*messages.StepBudgetView {
	if v == nil {
		return nil
	}
	var all []*messages.StepBudgetView
	s, err := ask[*messages.SessionView](ctx, n, inSession(v.GetSessionId(), &messages.ToSession{Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}}))
	if err == nil { // else it is asked again
		all = append(all, &messages.StepBudgetView{Budget: s.GetBudget()})
	}
	for _, step := range v.GetStepViews() {
		all = append(all, &messages.StepBudgetView{Step: step.GetStep(), Budget: step.GetBudget()})
	}
	return all
}

// lookSoon is how soon one looks for the second time.
const lookSoon = 300 * time.Millisecond

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
