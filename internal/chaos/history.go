// Package chaos kills a runtime while it works and holds what comes of it to rules R1 to R13 of the
// house. It has two halves that meet in a History: a runner, which makes one, and a checker, a pure
// function over it.
//
// It is a black box above the root package: it sends prompts as a client does, answers as a model
// does, registers tools as a program does, and reads the journal afterwards.
package chaos

import (
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// History is everything that is known of a run after its end. Empty fields are not checked.
type History struct {
	Streams   map[string][]persistence.Entry // every stream, in order of its records
	Snapshots []*messages.Snapshot           // all that are kept
	Findings  []persistence.Finding          // what the store itself found wrong

	Effects  []Effect          // the log of the test tools, in the order of its lines
	Files    map[string]string // what the workspaces hold at the end, by path
	Requests []Request         // what the model was asked, in order of arrival

	Acks    []Ack     // inputs that were acknowledged, in order
	Results []Result  // turns that were awaited
	Seen    []Seen    // events that a client was shown, in order per session
	Answers []Answer  // that were given to approvals, in order
	Listed  []string  // approvals that are listed as waiting after the end
	Guarded []string  // addresses of workspaces where nobody is there to be asked
	Refused []Refusal // requests that were refused, or should have been

	Before, After *Counts // of the process, before it began and after it drained
	EndedMs       int64   // when the run ended, by the clock of the journal
	Whole         bool    // the run came to its end: what is open now stays open
}

// Phase is a line of the effect log.
type Phase string

// The phases of an effect: it begins, it happens, it ends. A tool that finds that it happened before
// has no Happened.
const (
	Begun    Phase = "begin"
	Happened Phase = "effect"
	Ended    Phase = "end"
)

// Effect is one line that a test tool wrote to the effect log, which lies outside the data directory
// and survives every kill.
type Effect struct {
	Phase    Phase  `json:"phase"`
	Exec     string `json:"exec"`
	Tool     string `json:"tool"`
	Name     string `json:"name"` // what it was called with
	Class    string `json:"class"`
	Session  string `json:"session"`
	Boot     uint64 `json:"boot"`               // of the store: which life of the process it was
	Dispatch uint64 `json:"dispatch,omitempty"` // seq of the call's ToolDispatched that was durable by then; 0: none
	AtMs     int64  `json:"at_ms"`
}

// Request is one request that reached the model.
type Request struct {
	Model    string
	Messages []Message
	Served   string // ok, or the fault that it met
}

// Message is one message of a request, as it came over the wire.
type Message struct {
	Role    string
	Content string
	Calls   []Call // of an assistant
	CallID  string // of a tool's result
}

// Call is a tool call within a request.
type Call struct{ ID, Name, Arguments string }

// Ack is the acknowledgement of one input, as its sender got it.
type Ack struct {
	Session   string
	Input     string
	Text      string
	Seq       uint64 // session cursor
	Duplicate bool
	Outcome   string // that its turn must come to; "" is any
}

// Result is what a client was told that a turn came to.
type Result struct {
	Session, Input, Turn, Outcome, Text string
}

// Seen is one event that a client was shown.
type Seen struct {
	Session string
	Life    int // of the process; the client resumes by cursor
	Event   *messages.Event
}

// Acknowledged is what a person was told whose answer counts.
const Acknowledged = "ack"

// Answer is what was said to an approval.
type Answer struct {
	Approval  string
	Decision  messages.Decision_Value
	Arguments string // of the person's own
	By        string
	Told      string // Acknowledged, or the code of the refusal; "" when no reply came: it may count or not
}

// Refusal is a request that must be refused and leave nothing behind.
type Refusal struct {
	What   string // for people
	Marker string // stands in everything that the request could have left
	Code   string // of the Failure; "" when it was not refused
}

// Counts are resources of one process.
type Counts struct {
	Goroutines int
	Files      int   // open descriptors; 0 where they cannot be counted
	HeapBytes  int64 // in use after a collection
	Pending    int   // messages that wait in mailboxes
}
