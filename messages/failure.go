package messages

import (
	"errors"
	"time"
)

// Codes of a Failure: the closed set. Tool error codes (tools.Code...) are another set, on results.
const (
	CodeNotFound      = "not_found"      // no such session, worker, input or call
	CodeBadRequest    = "bad_request"    // the command itself is wrong
	CodeConflict      = "conflict"       // the same input id with other content
	CodeCommitted     = "committed"      // the input is part of the conversation already
	CodeBusy          = "busy"           // a turn is open and the mode says reject; or, with a time to try again, there is no room now
	CodeNoTurn        = "no_turn"        // nothing to wait for
	CodeModel         = "model"          // the model is not configured or cannot be used
	CodeAgent         = "agent"          // the agent profile is missing
	CodeUnavailable   = "unavailable"    // try again: restarting, stopping, the disk does not keep up
	CodeFull          = "full"           // too little free disk space to begin something new
	CodeQuarantined   = "quarantined"    // stopped after repeated failures or a damaged journal
	CodeCorrupt       = "corrupt"        // stored data does not hold together
	CodeClosed        = "closed"         // the session or runtime was closed
	CodeStaleLease    = "stale_lease"    // a newer holder has the workspace
	CodeWithdrawn     = "withdrawn"      // the input was taken back before its turn
	CodeInternal      = "internal_error" // a defect of troupe
	CodeInvalidURI    = "invalid_uri"
	CodeInvalidPath   = "invalid_path" // it leads out of the workspace, or is no file's
	CodeAlreadyExists = "already_exists"
	CodeTooLarge      = "too_large"        // a request over its limit
	CodeResolved      = "already_resolved" // somebody was first
	CodeTrimmed       = "trimmed"          // records that are needed for it were removed for good
	CodeNoWorkspace   = "workspace_not_found"
	CodeNotAvailable  = "workspace_not_available"

	CodeFieldNotFound    = "field_not_found"
	CodeFieldReadOnly    = "field_read_only"
	CodeValidationFailed = "validation_failed"

	CodeNetwork       = "network_error"     // another machine was not reached, or did not answer as it should
	CodeNetworkDenied = "network_denied"    // it may not be reached
	CodeDenied        = "permission_denied" // it does not let us in
	CodeTimeout       = "timeout"
	CodeSandbox       = "sandbox_unavailable" // nothing can run commands in the way that is asked for

	CodeUnauthorized = "unauthorized" // no token, or one that does not count
	CodeForbidden    = "forbidden"    // the token does not reach so far
	CodeRate         = "rate_limited" // too many requests of one token
)

// Fail makes a Failure. hint says what to do and may be empty.
func Fail(code, message, hint string) *Failure {
	return &Failure{Code: code, Message: message, Hint: hint}
}

// ErrBusy is what errors.Is finds in a refusal of code busy: there is no room now, or a turn is open.
var ErrBusy = errors.New("busy")

// Busy is a refusal for want of room, which passes: after tells when it is worth trying again.
func Busy(message, hint string, after time.Duration) *Failure {
	f := Fail(CodeBusy, message, hint)
	f.RetryAfterMs = max(after.Milliseconds(), 1)
	return f
}

// Is says whether errors.Is finds a sentinel in the refusal.
func (x *Failure) Is(target error) bool { return target == ErrBusy && x.GetCode() == CodeBusy }

// Error makes a Failure an error for callers in Go.
func (x *Failure) Error() string {
	if x.GetHint() == "" {
		return x.GetMessage()
	}
	return x.GetMessage() + ": " + x.GetHint()
}
