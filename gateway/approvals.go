package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// approvals lists the calls that wait for an answer.
func (a *api) approvals(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "session")
	if err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Approvals](r.Context(), a, &messages.ListApprovals{SessionId: q.Get("session")})
	if err != nil {
		return answer{}, err
	}
	return ok(l.JSON())
}

// approve takes a person's answer: no content once it is durable.
func (a *api) approve(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.AnswerJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto(r.PathValue("approval"))
	if err != nil {
		return answer{}, err
	}
	return a.done(r, m)
}
