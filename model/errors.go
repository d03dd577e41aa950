package model

import (
	"fmt"
	"time"
)

// Class is the closed set of ways in which a call fails.
type Class string

// The classes of error.
const (
	RateLimited   Class = "rate_limited"
	Overloaded    Class = "overloaded"     // 5xx, connection refused or reset
	ContextLength Class = "context_length" // the request is larger than the model's window
	Auth          Class = "auth"
	BadRequest    Class = "bad_request" // the provider refuses the request as such
	NotFound      Class = "not_found"   // no such model
	Truncated     Class = "truncated"   // the stream ended without a finish
	Protocol      Class = "protocol"    // the answer is not what the protocol says
	Timeout       Class = "timeout"
	Unmatched     Class = "unmatched" // a script has no rule for the prompt
)

// Error is a failed call.
type Error struct {
	Class      Class
	Message    string // for people; redacted
	Hint       string // what to do
	Status     int    // HTTP status, 0 when there was none
	RetryAfter time.Duration
	RequestID  string
	Attempts   int
	Err        error
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (HTTP %d): %s", e.Class, e.Status, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Class, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }
