package main

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// errUnpaid ends the walk along the events of a turn that waits for more budget.
var errUnpaid = fmt.Errorf("%w to add to its budget", errWaiting)

// watchRun says what the facts of a run do not: that calls of its agents and tools wait for an approval, and steps for more budget. Where nobody sits at a
// terminal, it ends the walk when a step waits for budget.
func (a *app) watchRun(ctx context.Context, n node, run string, view *runView, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	soon := time.NewTimer(lookSoon) // most questions come early
	defer soon.Stop()
	told, asked := make(map[string]bool), make(map[string]bool)
	for {
		v, err := ask[*messages.RunView](ctx, n, &messages.AwaitRun{RunId: run, Changes: true, Brief: true})
		for _, s := range v.GetStepViews() {
			waits := err == nil && s.GetBudget().GetWaiting() > 0
			if waits && !told[s.GetStep()] {
				j := s.GetBudget().JSON()
				view.note("troupe: step %s waits for more budget (%s): %s", visible(s.GetStep()), budgetText(j), addBudgetCommand(v.GetSessionId(), s.GetStep(), j))
			}
			told[s.GetStep()] = waits
			if waits && !a.canAsk() {
				cancel(errUnpaid)
				return
			}
		}
		if err == nil {
			a.noteCalls(ctx, n, v, view, asked)
		}
		select {
		case <-tick.C:
		case <-soon.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookSoon is how soon one looks for the second time.
const lookSoon = 300 * time.Millisecond

// noteCalls says once of each call in a run that it waits for an approval. What the run itself asks stands in its view.
func (a *app) noteCalls(ctx context.Context, n node, v *messages.RunView, view *runView, asked map[string]bool) {
	found, err := ask[*messages.Approvals](ctx, n, &messages.ListApprovals{SessionId: v.GetSessionId()})
	if err != nil {
		return // it is tried again
	}
	for _, q := range found.JSON() {
		if asked[q.ID] || q.Worker == v.GetRunId() {
			continue
		}
		asked[q.ID] = true
		what := summary(q.Arguments)
		if q.Kind == "command" {
			what = q.Preview
		}
		view.note("  %s waits for an approval: troupe approve %s (or deny)", visible(q.Tool+"("+oneLine(what, 60)+")"), q.ID)
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
