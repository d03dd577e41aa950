package tools

import (
	"context"
	"errors"
	"maps"
)

// Envelope is a tool's result as programs get it: from `troupe tool run` and the API. A refused
// call has one too.
type Envelope struct {
	CallID    string         `json:"call_id"`
	Tool      string         `json:"tool"`
	OK        bool           `json:"ok"`
	Content   string         `json:"content"` // what the model sees; the failure's message if not OK
	ErrorCode string         `json:"error_code,omitempty"`
	Details   map[string]any `json:"details,omitempty"`
	Truncated bool           `json:"truncated"`
	Meta      map[string]any `json:"meta"` // never null; with `diff`, how a file was changed, when one was
}

// NewEnvelope puts the outcome of a call into an envelope. An error that is not an *Error is a
// defect: its text may name anything of this process, so only its nature goes out, and the
// caller logs the rest. The end of a context is `cancelled` or `timeout`.
func NewEnvelope(callID, tool string, res *Result, err error) *Envelope {
	e := &Envelope{CallID: callID, Tool: tool, Meta: map[string]any{}}
	if err != nil {
		failure := Failure(err)
		e.ErrorCode, e.Content, e.Details = failure.Code, failure.Message, failure.Details
		return e
	}
	e.OK = true
	if res == nil {
		return e
	}
	e.Content, e.Truncated, e.Details = res.Content, res.Truncated, res.Details
	maps.Copy(e.Meta, res.Meta)
	if res.Diff != "" {
		e.Meta["diff"] = res.Diff
	}
	return e
}

// Failure is the expected failure that an error is, or stands for.
func Failure(err error) *Error {
	var expected *Error
	switch {
	case errors.As(err, &expected):
		return expected
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(CodeTimeout, "the call took too long and was stopped")
	case errors.Is(err, context.Canceled):
		return Errorf(CodeCancelled, "the call was cancelled")
	}
	return Errorf(CodeInternalError, "Unexpected error: the tool failed in a way that it does not know")
}
