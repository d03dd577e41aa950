package openai

import (
	"errors"
	"io"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// responses makes the request to the Responses API and emits its answer. Nothing is kept at
// the provider: each request carries the whole conversation, as with Chat Completions.
func (t *try) responses(emit func(*model.Event) bool) error {
	keep := false
	stream, err := t.m.client.CreateResponseStream(t, goopenai.CreateResponseRequest{
		Model:           t.req.Model,
		Instructions:    t.system(),
		MaxOutputTokens: int(t.req.MaxTokens),
		Store:           &keep,
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	d := responsesDecoder{t: t}
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return d.end(emit)
		}
		if err != nil {
			return err
		}
		if !d.event(&ev, emit) {
			return errStopped
		}
	}
}

// responsesDecoder turns the events of the Responses API into ours.
type responsesDecoder struct {
	t     *try
	calls []responsesCall
	last  *goopenai.CreateResponseResponse
	cut   string // why the answer is incomplete
}

type responsesCall struct {
	output int // the provider's output_index
	args   bool
}

func (d *responsesDecoder) event(ev *goopenai.ResponseStreamEvent, emit func(*model.Event) bool) bool {
	switch ev.Type {
	case goopenai.ResponseStreamEventOutputTextDelta, goopenai.ResponseStreamEventRefusalDelta:
		return ev.Delta == "" || emit(&model.Event{Kind: model.Text, Text: ev.Delta})
	case goopenai.ResponseStreamEventReasoningSummaryTextDelta, goopenai.ResponseStreamEventReasoningTextDelta:
		return ev.Delta == "" || emit(&model.Event{Kind: model.Reasoning, Text: ev.Delta})
	case goopenai.ResponseStreamEventOutputItemAdded:
		return d.item(ev, false, emit)
	case goopenai.ResponseStreamEventOutputItemDone:
		return d.item(ev, true, emit)
	case goopenai.ResponseStreamEventFunctionArgumentsDelta:
		return d.arguments(ev.OutputIndex, ev.Delta, emit)
	case goopenai.ResponseStreamEventCompleted, goopenai.ResponseStreamEventIncomplete:
		d.last = ev.Response
		if ev.Type == goopenai.ResponseStreamEventIncomplete {
			d.cut = "length"
			if ev.Response != nil && ev.Response.IncompleteDetails != nil {
				d.cut = ev.Response.IncompleteDetails.Reason
			}
		}
	default: // the repairing layer lets nothing else through
	}
	return true
}

// item starts a call, and at its end gives the arguments that no delta brought.
func (d *responsesDecoder) item(ev *goopenai.ResponseStreamEvent, done bool, emit func(*model.Event) bool) bool {
	if ev.Item == nil || ev.Item.Type != "function_call" {
		return true
	}
	i := d.at(ev.OutputIndex)
	if i < 0 {
		i = len(d.calls)
		d.calls = append(d.calls, responsesCall{output: ev.OutputIndex})
		if !emit(&model.Event{Kind: model.CallStart, Index: i, CallID: orElse(ev.Item.CallID, ev.Item.ID), Name: ev.Item.Name}) {
			return false
		}
	}
	if !done || d.calls[i].args {
		return true
	}
	return d.arguments(ev.OutputIndex, ev.Item.Arguments, emit)
}

func (d *responsesDecoder) arguments(output int, piece string, emit func(*model.Event) bool) bool {
	i := d.at(output)
	if i < 0 || piece == "" {
		return true
	}
	d.calls[i].args = true
	return emit(&model.Event{Kind: model.CallArgs, Index: i, Text: piece})
}

func (d *responsesDecoder) at(output int) int {
	for i := range d.calls {
		if d.calls[i].output == output {
			return i
		}
	}
	return -1
}

func (d *responsesDecoder) end(emit func(*model.Event) bool) error {
	name := ""
	if r := d.last; r != nil {
		name = r.Model
		if r.Usage != nil && !emit(&model.Event{Kind: model.UsageSeen, Usage: responsesUsage(r.Usage)}) {
			return errStopped
		}
	}
	if done := d.t.finish(d.cut, name, len(d.calls) > 0); !emit(&done) {
		return errStopped
	}
	return nil
}

func responsesUsage(u *goopenai.ResponseUsage) *messages.Usage {
	out := &messages.Usage{InputTokens: int64(u.InputTokens), OutputTokens: int64(u.OutputTokens)}
	if u.InputTokensDetails != nil {
		out.CachedTokens = int64(u.InputTokensDetails.CachedTokens)
	}
	if u.OutputTokensDetails != nil {
		out.ReasoningTokens = int64(u.OutputTokensDetails.ReasoningTokens)
	}
	return out
}

// responsesItems encodes a message as input items of the Responses API, each with a comma
// before it.
func responsesItems(m *messages.Message) []byte {
	b := make([]byte, 0, len(m.Text)+len(m.Text)/8+64)
	switch m.Role {
	case messages.ToolRole:
		b = append(b, `,{"type":"function_call_output","call_id":`...)
		b = append(appendString(b, sendableID(m.ToolCallID)), `,"output":`...)
		return append(appendString(b, model.Result(m.Text)), '}')
	case messages.Assistant:
		if m.Text != "" || len(m.ToolCalls) == 0 {
			b = append(b, `,{"type":"message","role":"assistant","content":`...)
			b = append(appendString(b, m.Text), '}')
		}
		for _, c := range m.ToolCalls {
			b = append(b, `,{"type":"function_call","call_id":`...)
			b = append(appendString(b, sendableID(c.GetId())), `,"name":`...)
			b = append(appendString(b, model.CallName(c.GetName())), `,"arguments":`...)
			b = append(appendString(b, model.CallArguments(c.GetArguments())), '}')
		}
		return b
	case messages.User:
	}
	b = append(b, `,{"type":"message","role":"user","content":`...)
	return append(appendString(b, m.Text), '}')
}

func responsesTools(defs []model.ToolDef) []byte {
	b := []byte{'['}
	for i, d := range defs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendFunction(append(b, `{"type":"function","name":`...), d), '}')
	}
	return append(b, ']')
}
