package messages

// ProblemType is the content type of a ProblemJSON (RFC 9457).
const ProblemType = "application/problem+json"

// ProblemJSON is a refusal over HTTP: a problem detail (RFC 9457) whose code is the Failure's.
type ProblemJSON struct {
	Type   string `json:"type"` // about:blank: the code says all
	Title  string `json:"title"`
	Status int    `json:"status"` // of HTTP
	Code   string `json:"code"`   // closed set, for programs
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
	Retry  int64  `json:"retry_after_ms,omitempty"` // when it is worth trying again

	// Of events that were trimmed away: the cursor after which they are there, and the address of what is left of the session.
	ResumeAfter uint64 `json:"resume_after,omitempty"`
	Snapshot    string `json:"snapshot,omitempty"`
}

// Failure is what was refused, as the house says it.
func (j ProblemJSON) Failure() *Failure {
	f := Fail(j.Code, j.Detail, j.Hint)
	f.RetryAfterMs, f.ResumeAfter = j.Retry, j.ResumeAfter
	return f
}
