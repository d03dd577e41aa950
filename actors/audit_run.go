package actors

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// ofRun takes who began, changed and ended the pipeline run that a session was made for, and who answered its questions: that stands in the run's own journal.
func (a *audited) ofRun(ctx context.Context, store persistence.Store) error {
	err := store.Read(ctx, messages.RunStream(messages.RunOf(a.session)), a.runSeq+1, func(e persistence.Entry) error {
		f, err := messages.RunFactIn(e.Record)
		if err != nil {
			return fmt.Errorf("record %d: %w: %w", e.Record.GetSeq(), persistence.ErrCorrupt, err)
		}
		a.runSeq, e.Cursor = e.Record.GetSeq(), 0 // it counts for the session's none
		switch x := f.(type) {
		case *messages.RunStarted:
			a.runName = x.GetName()
			a.run(e, a.runName, auditStarted, x.GetBy())
		case *messages.RunResumed:
			a.run(e, a.runName, auditResumed, x.GetBy())
		case *messages.PlanChanged:
			a.run(e, a.runName, auditChanged, x.GetBy())
		case *messages.RunCancelled:
			a.run(e, a.runName, conversation.DecisionName(messages.Decision_CANCELLED), x.GetBy()).Why = x.GetReason()
		case *messages.HumanAnswered:
			v := a.run(e, x.GetStep(), x.GetChoice(), x.GetBy())
			if v.ApprovalId, v.Message = x.GetApprovalId(), x.GetMessage(); x.GetExpired() {
				v.Why = "nobody answered in time"
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the run of %s: %w", a.session, err)
	}
	return nil
}

func (a *audited) run(e persistence.Entry, what, decision, by string) *messages.AuditView {
	v := a.add(e, auditRun, "")
	v.What, v.Decision, v.By = what, decision, by
	return v
}
