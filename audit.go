package troupe

import (
	"context"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
)

// AuditEntry is one decision: that a call was allowed, denied or asked about, who answered, and what came of it; or that trust, a rule or a
// toolset was changed, and by whom.
type AuditEntry = messages.AuditView

// Audit tells who let what run, in the order of time, from the journal of a session, also one that was closed; "" for all sessions. It wakes
// none. What was trimmed away is missing, and what was deleted for good.
func (rt *Runtime) Audit(ctx context.Context, session string) ([]*AuditEntry, error) {
	all, err := rt.listAudit(ctx, &messages.ListAudit{SessionId: session})
	return all.GetEntries(), err
}

func (rt *Runtime) listAudit(ctx context.Context, m *messages.ListAudit) (*messages.Audit, error) {
	if m.GetLimit() == 0 && m.GetBefore() == "" && m.Tenant == nil {
		return actors.Audit(ctx, rt.svc.Store, m.GetSessionId())
	}
	return rt.audits.Page(ctx, m)
}
