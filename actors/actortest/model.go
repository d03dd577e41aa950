package actortest

import (
	"context"
	"errors"
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

func protoreflectValue(m proto.Message) protoreflect.Value {
	return protoreflect.ValueOfMessage(m.ProtoReflect())
}

// Reply is what a Model answers.
type Reply struct {
	Text  string
	Calls []*messages.ToolCall
	Err   error           // after Text
	Then  func() error    // runs after Text was taken; its error ends the stream
	Usage *messages.Usage // nil: one token each
	Late  func()          // runs after the last event was taken, before the stream ends
}

// Model is a function of the request: the same question gets the same answer.
type Model func(ctx context.Context, r *model.Request) Reply

// Stream implements model.Model.
func (m Model) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		a := m(ctx, r)
		if a.Text != "" && !yield(model.Event{Kind: model.Text, Text: a.Text}, nil) {
			return
		}
		if a.Err == nil && a.Then != nil {
			a.Err = a.Then()
		}
		if a.Err != nil {
			yield(model.Event{}, a.Err)
			return
		}
		for i, c := range a.Calls {
			if !yield(model.Event{Kind: model.CallStart, Index: i, CallID: c.GetId(), Name: c.GetName()}, nil) ||
				!yield(model.Event{Kind: model.CallArgs, Index: i, Text: c.GetArguments()}, nil) {
				return
			}
		}
		reason := "stop"
		if len(a.Calls) > 0 {
			reason = "tool_calls"
		}
		if a.Usage == nil {
			a.Usage = &messages.Usage{InputTokens: 1, OutputTokens: 1}
		}
		yield(model.Event{Kind: model.UsageSeen, Usage: a.Usage}, nil)
		yield(model.Event{Kind: model.Finish, Reason: reason, Meta: model.Meta{RequestID: "req", Attempts: 1}}, nil)
		if a.Late != nil {
			a.Late()
		}
	}
}

// Say answers everything with one text.
func Say(text string) Model {
	return func(context.Context, *model.Request) Reply { return Reply{Text: text} }
}

// CallThenSay makes calls first, and answers with the text of their results, joined.
func CallThenSay(calls ...*messages.ToolCall) Model {
	return func(_ context.Context, r *model.Request) Reply {
		results := Results(r)
		if results == nil {
			return Reply{Calls: calls}
		}
		text := ""
		for _, m := range results {
			text += m.Text + "\n"
		}
		return Reply{Text: text}
	}
}

// Results are the tool messages at the end of a prompt.
func Results(r *model.Request) []*messages.Message {
	all := r.Prompt.Messages
	i := len(all)
	for i > 0 && all[i-1].Role == messages.ToolRole {
		i--
	}
	if i == len(all) {
		return nil
	}
	return all[i:]
}

// Asked is the newest thing that the user said.
func Asked(r *model.Request) string {
	for i := len(r.Prompt.Messages) - 1; i >= 0; i-- {
		if m := r.Prompt.Messages[i]; m.Role == messages.User {
			return m.Text
		}
	}
	return ""
}

// Call makes a tool call.
func Call(id, tool, args string) *messages.ToolCall {
	return &messages.ToolCall{Id: id, Name: tool, Arguments: args}
}

// One answers every name with one model, of provider "default".
type One struct{ Model model.Model }

// Resolve implements actors.Models.
func (o One) Resolve(name string) (*actors.Resolved, error) {
	if o.Model == nil {
		return nil, errors.New("no model is configured")
	}
	return &actors.Resolved{Model: o.Model, Provider: "default", Name: name}, nil
}

// Providers implements actors.Models.
func (One) Providers() []string { return []string{"default"} }

// Gate stops who passes until it is opened.
type Gate struct {
	Came chan struct{} // one element for each that arrived
	open chan struct{}
}

// NewGate makes a closed gate for at most 1024 visitors.
func NewGate() *Gate { return &Gate{Came: make(chan struct{}, 1024), open: make(chan struct{})} }

// Pass waits until the gate is open or ctx ends.
func (g *Gate) Pass(ctx context.Context) error {
	g.Came <- struct{}{}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Open lets everybody through, once and for all.
func (g *Gate) Open() { close(g.open) }
