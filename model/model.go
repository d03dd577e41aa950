// Package model is the port to language models: a request in, a stream of typed events out.
// Adapters live below it (model/openai, model/script) and are held to modeltest.Run.
package model

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/troupe-dev/troupe/messages"
)

// Model answers requests. It is safe for concurrent use.
type Model interface {
	// Stream makes one call. It yields events until a Finish event ends it, or one error,
	// always a *Error or the context's. A stream that stops without a Finish yields an error of
	// class Truncated: it is never a success. Breaking out of the loop ends the call. Once ctx is
	// done no further event is yielded, not even one that had arrived before.
	Stream(ctx context.Context, req *Request) iter.Seq2[Event, error]
}

// Attempts is how often m sends a request that nothing comes of, the first time included, unless it is asked for it once: its method of this name says so, or else
// it is 1.
func Attempts(m Model) int {
	if r, ok := m.(interface{ Attempts() int }); ok {
		return max(1, r.Attempts())
	}
	return 1
}

// Request is one model call.
type Request struct {
	Model     string // the provider's own name of it
	Prompt    *messages.Prompt
	Tools     []ToolDef // sorted by name
	XML       bool      // tools are offered and called in text (model/xmltools): for models without function calling
	MaxTokens int64     // 0: the provider's default
	Agent     string    // who asks; scripts choose their rules by it
	Session   string    // for logs and provider metadata, never for behaviour
	Once      bool      // it is sent once: who asks sends it again himself (Attempts), and holds nothing meanwhile that others wait for
}

// ToolDef is a tool as a model sees it.
type ToolDef struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments, an object
}

// EventKind tells which fields of an Event count.
type EventKind uint8

// The kinds of event.
const (
	Text      EventKind = iota + 1 // Text
	Reasoning                      // Text
	CallStart                      // Index, CallID, Name
	CallArgs                       // Index, Text (a piece of the raw arguments)
	UsageSeen                      // Usage
	Finish                         // Reason, and what Meta knows by now
)

// Event is one step of a stream.
type Event struct {
	Kind   EventKind
	Text   string
	Index  int // of a tool call in the assistant's message, dense from 0
	CallID string
	Name   string
	Usage  *messages.Usage
	Reason string // stop | tool_calls | length | content_filter
	Meta   Meta
}

// Meta is what is known about a call besides its content.
type Meta struct {
	RequestID string // the provider's
	Model     string // as the provider named it
	Attempts  int    // requests sent, retries included
	Scripted  string // name of the script when no language model is running
}

// Completion is a whole answer.
type Completion struct {
	Text      string
	Reasoning string
	ToolCalls []*messages.ToolCall
	Usage     *messages.Usage
	Reason    string
	Meta      Meta
}
