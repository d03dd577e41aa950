package tools

import (
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
)

// Code is the closed set of ways in which a tool call is refused or fails. Codes travel in
// journals, results and on the wire; they are never renamed.
const (
	CodeFileNotFound           = "file_not_found"
	CodePermissionDenied       = "permission_denied"
	CodeInvalidPath            = "invalid_path"
	CodeFileTooLarge           = "file_too_large"
	CodeUserRejected           = "user_rejected"
	CodeToolNotFound           = "tool_not_found"
	CodeInvalidArguments       = "invalid_arguments"
	CodeInvalidURI             = "invalid_uri"
	CodeWorkspaceNotFound      = "workspace_not_found"
	CodeWorkspaceNotAvailable  = "workspace_not_available"
	CodeClientNotConnected     = "client_not_connected"
	CodeNotText                = "not_text"
	CodeEncodingError          = "encoding_error"
	CodeEditNoMatch            = "edit_no_match"
	CodeEditNotUnique          = "edit_not_unique"
	CodeNoChange               = "no_change"
	CodeNotRead                = "not_read"
	CodeConcurrentModification = "concurrent_modification"
	CodeFieldNotFound          = "field_not_found"
	CodeFieldReadOnly          = "field_read_only"
	CodeValidationFailed       = "validation_failed"
	CodeTimeout                = "timeout"
	CodeCancelled              = "cancelled"
	CodeNetworkDenied          = "network_denied"
	CodeNetworkError           = "network_error"
	CodeAlreadyResolved        = "already_resolved"
	CodeDuplicateCallID        = "duplicate_call_id"
	CodeInvalidMessage         = "invalid_message"
	CodeUnknownCall            = "unknown_call"
	CodeMessageTooLarge        = "message_too_large"
	CodeSandboxUnavailable     = "sandbox_unavailable"
	CodeBudgetExceeded         = "budget_exceeded"
	CodeInterrupted            = "interrupted"
	CodeDelegateFailed         = "delegate_failed"
	CodeInternalError          = "internal_error"
)

// ErrNotDone is a Reconciler's answer "this call certainly did not happen".
var ErrNotDone = errors.New("the call did not happen")

// Error is an expected failure of a tool call. Message is what the model reads: it says what
// failed, with the value, and where possible what to do instead.
type Error struct {
	Code    string         // one of the Code constants
	Message string         // for the model and for people
	Details map[string]any // for programs; may be nil
	Unknown bool           // nobody knows whether the call happened: the policy for unknown outcomes counts, and it is no failure of the call
}

// Error returns the message alone: the code travels beside it.
func (e *Error) Error() string { return e.Message }

// Errorf makes an *Error of a code and a formatted message.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With returns a copy of e that carries one more detail.
func (e *Error) With(key string, value any) *Error {
	details := make(map[string]any, len(e.Details)+1)
	for k, v := range e.Details {
		details[k] = v
	}
	details[key] = value
	return &Error{Code: e.Code, Message: e.Message, Details: details, Unknown: e.Unknown}
}

// UnknownText is what a model reads of a call of which nobody knows whether it happened.
const UnknownText = "Interrupted: the outcome of this call is unknown; it may have run. Verify before repeating it."

// ErrorUnknown is the end of a call that was begun, and of which nothing was heard any more, for a reason.
func ErrorUnknown(format string, args ...any) *Error {
	return &Error{Code: CodeInterrupted, Message: fmt.Sprintf(format, args...) + ". " + UnknownText, Unknown: true}
}

// ErrorNotFound is the refusal of a tool that is not registered (acceptance row 6).
func ErrorNotFound(name string) *Error {
	return Errorf(CodeToolNotFound, "Tool '%s' not found", name)
}

// WireText is the text of a failure in a `tool_result` on the wire (acceptance rows 43 and 44).
func WireText(code, message string) string { return messages.WireText(code, message) }
