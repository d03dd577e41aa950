package gateway

import (
	"maps"
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

// showApproval notes that somebody sees an approval, for as long as the request is open: a long poll. No content when the approval waits
// no longer.
func (a *api) showApproval(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.ShowJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	ctx, cancel := a.untilStopped(r.Context())
	defer cancel()
	_, err := ask[*messages.Ack](ctx, a, &messages.ShowApproval{ApprovalId: r.PathValue("approval"), By: body.By})
	if err != nil {
		return answer{}, err
	}
	return nothing()
}

// audit tells who let what run.
func (a *api) audit(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "session", "limit", "before")
	if err != nil {
		return answer{}, err
	}
	limit, err := number("limit", q.Get("limit"), 30)
	if err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Audit](r.Context(), a, &messages.ListAudit{SessionId: q.Get("session"), Limit: int32(limit), Before: q.Get("before")}) //nolint:gosec // of 30 bits
	if err != nil {
		return answer{}, err
	}
	header := map[string]string{}
	if l.GetNext() != "" { // leads to the entries before (RFC 8288)
		q.Set("before", l.GetNext())
		header["Link"] = "<" + r.URL.EscapedPath() + "?" + q.Encode() + `>; rel="next"`
	}
	maps.Copy(header, trimmedHeader(l.GetTrimmed()))
	return answer{status: http.StatusOK, body: l.JSON(), header: header}, nil
}

// trimmedHeader says of a listing that its beginning is gone for good.
func trimmedHeader(trimmed bool) map[string]string {
	if !trimmed {
		return nil
	}
	return map[string]string{messages.TrimmedHeader: "true"}
}
