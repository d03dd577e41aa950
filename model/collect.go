package model

import (
	"fmt"
	"iter"

	"github.com/troupe-dev/troupe/messages"
)

// maxCalls bounds the tool calls of one answer: a hostile stream must not grow memory by index.
const maxCalls = 1024

// Collect reads a stream to its end and puts the whole answer together. on, when it is not
// nil, sees each event before it is added. The Completion is never nil: when the stream fails,
// it holds what had arrived by then, and the error is the stream's own. A stream that stops
// without a Finish, or speaks of a call that it never started, is an error too.
func Collect(stream iter.Seq2[Event, error], on func(Event)) (*Completion, error) {
	a := &assembly{on: on}
	a.calls = a.first[:0]
	stream(a.take) // and no range over it: that would take its variables to the heap one by one
	if a.err == nil && !a.ended {
		a.err = &Error{Class: Truncated, Message: "the stream ended without a finish"}
	}
	return a.completion(), a.err
}

// assembly is an answer under construction.
type assembly struct {
	on    func(Event)
	ended bool
	err   error

	text, reasoning fragments
	calls           []callParts
	first           [1]callParts // room for them: most answers have one at most
	usage           *messages.Usage
	reason          string
	meta            Meta
}

// take takes one step of the stream; false when it was the last.
func (a *assembly) take(ev Event, err error) bool {
	if err != nil {
		a.err = err
		return false
	}
	if a.on != nil {
		a.on(ev)
	}
	if err := a.add(&ev); err != nil {
		a.err = err
		return false
	}
	a.ended = ev.Kind == Finish
	return !a.ended
}

type callParts struct {
	id, name string
	args     fragments
}

func (a *assembly) add(ev *Event) error {
	switch ev.Kind {
	case Text:
		a.text.add(ev.Text)
	case Reasoning:
		a.reasoning.add(ev.Text)
	case CallStart:
		// Calls are dense from 0, so that a position means the same to journal and provider.
		if ev.Index != len(a.calls) || ev.Index >= maxCalls {
			return &Error{Class: Protocol, Message: fmt.Sprintf("tool call %d started where call %d was due", ev.Index, len(a.calls))}
		}
		a.calls = append(a.calls, callParts{id: ev.CallID, name: ev.Name})
	case CallArgs:
		if ev.Index < 0 || ev.Index >= len(a.calls) {
			return &Error{Class: Protocol, Message: fmt.Sprintf("arguments for tool call %d, which never started", ev.Index)}
		}
		a.calls[ev.Index].args.add(ev.Text)
	case UsageSeen:
		a.usage = ev.Usage
	case Finish:
		a.reason, a.meta = ev.Reason, ev.Meta
	}
	return nil
}

func (a *assembly) completion() *Completion {
	c := &Completion{
		Text: a.text.String(), Reasoning: a.reasoning.String(),
		Usage: a.usage, Reason: a.reason, Meta: a.meta,
	}
	if len(a.calls) > 0 {
		c.ToolCalls = make([]*messages.ToolCall, len(a.calls))
		for i := range a.calls {
			p := &a.calls[i]
			c.ToolCalls[i] = &messages.ToolCall{Id: p.id, Name: p.name, Arguments: p.args.String()}
		}
	}
	return c
}

// fragments joins strings. Most answers of tool calls are one piece, which is then kept
// without a copy.
type fragments struct {
	one  string
	many []byte
}

func (f *fragments) add(s string) {
	switch {
	case s == "":
	case f.many != nil:
		f.many = append(f.many, s...)
	case f.one == "":
		f.one = s
	default:
		f.many = make([]byte, 0, 2*(len(f.one)+len(s))+64)
		f.many = append(append(f.many, f.one...), s...)
	}
}

// String returns what was added so far.
func (f *fragments) String() string {
	if f.many != nil {
		return string(f.many)
	}
	return f.one
}
