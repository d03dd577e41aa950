package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// rules lists the rules that answers to approvals left behind.
func (a *api) rules(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "session")
	if err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Rules](r.Context(), a, &messages.ListRules{SessionId: q.Get("session")})
	if err != nil {
		return answer{}, err
	}
	return ok(l.JSON())
}

// revoke takes a rule back: no content once it counts no longer.
func (a *api) revoke(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "by")
	if err != nil {
		return answer{}, err
	}
	return a.done(r, &messages.RevokeRule{RuleId: r.PathValue("rule"), By: q.Get("by")})
}
