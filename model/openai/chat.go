package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// chat makes the request to Chat Completions and emits its answer.
func (t *try) chat(emit func(*model.Event) bool) error {
	stream, err := t.m.client.CreateChatCompletionStream(t, t.chatRequest())
	if err != nil {
		return err
	}
	defer stream.Close()
	d := &t.chunk
	d.t = t
	for {
		line, err := stream.RecvRaw()
		if errors.Is(err, io.EOF) { // the repairing layer says it of whole answers alone
			return d.end(emit)
		}
		if err != nil {
			return err
		}
		more, err := d.line(line, emit)
		if err != nil {
			return fmt.Errorf("decode an event: %w", err)
		}
		if !more {
			return errStopped
		}
	}
}

// chatRequest is all but the messages and tools, which the doer puts in.
func (t *try) chatRequest() goopenai.ChatCompletionRequest {
	r := goopenai.ChatCompletionRequest{
		Model:         t.req.Model,
		StreamOptions: &t.m.billed,
	}
	if n := int(t.req.MaxTokens); n > 0 {
		// OpenAI's reasoning models refuse the old name; other servers may know no other.
		if t.m.host == "api.openai.com" || reasons(t.req.Model) {
			r.MaxCompletionTokens = n
		} else {
			r.MaxTokens = n //nolint:staticcheck // deprecated by OpenAI, and all that others know
		}
	}
	return r
}

func reasons(name string) bool {
	for _, p := range []string{"o1", "o3", "o4", "gpt-5", "gpt-6"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// chatDecoder turns chunks into events.
type chatDecoder struct {
	t      *try
	model  string
	calls  int // started so far
	finish string
	usage  *messages.Usage
	said   model.Event // the last one emitted
}

// line emits what one event says; false when the caller stopped. Nearly all events tell all by their bytes; go-openai's
// types read the others.
func (d *chatDecoder) line(data []byte, emit func(*model.Event) bool) (more bool, err error) {
	s, ok := tells(data)
	if !ok {
		var r goopenai.ChatCompletionStreamResponse
		if err := json.Unmarshal(data, &r); err != nil {
			return false, err
		}
		return d.chunk(&r, emit), nil
	}
	if d.model == "" && len(s.model) > 0 {
		d.model = d.t.m.modelName(s.model)
	}
	if s.billed {
		d.usage = &messages.Usage{
			InputTokens: int64(s.spent.in), OutputTokens: int64(s.spent.out),
			CachedTokens: int64(s.spent.cached), ReasoningTokens: int64(s.spent.reasoning),
		}
	}
	if s.choice != 0 {
		return true, nil
	}
	if s.finish {
		d.finish = ended(s.word)
	}
	switch s.kind {
	case text:
		return d.say(emit, model.Event{Kind: model.Text, Text: unescape(s.body)}), nil
	case musing:
		return d.say(emit, model.Event{Kind: model.Reasoning, Text: unescape(s.body)}), nil
	case call:
		return d.piece(s.tool, string(s.id), d.t.toolName(s.name), unescape(s.body), emit), nil
	case odd, plain, args, bill:
	}
	return true, nil
}

// say emits an event, in the decoder's memory: nobody keeps it.
func (d *chatDecoder) say(emit func(*model.Event) bool, ev model.Event) bool {
	d.said = ev
	return emit(&d.said)
}

// ended gives a finish_reason, the usual ones without a copy of their own.
func ended(word []byte) string {
	switch string(word) {
	case "stop":
		return "stop"
	case "tool_calls":
		return "tool_calls"
	}
	return string(word)
}

// toolName is the name of a call, mostly that of a tool that was offered.
func (t *try) toolName(name []byte) string {
	for i := range t.req.Tools {
		if t.req.Tools[i].Name == string(name) {
			return t.req.Tools[i].Name
		}
	}
	return string(name)
}

// modelName is what the provider calls its model, mostly as in the answer before.
func (m *Model) modelName(escaped []byte) string {
	if last := m.named.Load(); last != nil && *last == string(escaped) {
		return *last
	}
	name := unescape(escaped)
	if len(name) == len(escaped) { // it was not escaped
		m.named.Store(&name)
	}
	return name
}

// chunk emits what one chunk says; false when the caller stopped.
func (d *chatDecoder) chunk(r *goopenai.ChatCompletionStreamResponse, emit func(*model.Event) bool) bool {
	d.model = orElse(d.model, r.Model)
	if r.Usage != nil {
		d.usage = usage(r.Usage)
	}
	for i := range r.Choices {
		c := &r.Choices[i]
		if c.Index != 0 {
			continue
		}
		if c.FinishReason != "" && c.FinishReason != goopenai.FinishReasonNull {
			d.finish = string(c.FinishReason)
		}
		if s := c.Delta.ReasoningContent; s != "" && !d.say(emit, model.Event{Kind: model.Reasoning, Text: s}) {
			return false
		}
		if s := c.Delta.Content; s != "" && !d.say(emit, model.Event{Kind: model.Text, Text: s}) {
			return false
		}
		if !d.toolCalls(c.Delta.ToolCalls, emit) {
			return false
		}
	}
	return true
}

// toolCalls relies on the repairing layer: every piece has a dense index, the first of a call
// its id and name.
func (d *chatDecoder) toolCalls(calls []goopenai.ToolCall, emit func(*model.Event) bool) bool {
	for i := range calls {
		c := &calls[i]
		if c.Index != nil && !d.piece(*c.Index, c.ID, c.Function.Name, c.Function.Arguments, emit) {
			return false
		}
	}
	return true
}

func (d *chatDecoder) piece(index int, id, name, args string, emit func(*model.Event) bool) bool {
	if index == d.calls {
		d.calls++
		if !d.say(emit, model.Event{Kind: model.CallStart, Index: index, CallID: id, Name: name}) {
			return false
		}
	}
	return args == "" || d.say(emit, model.Event{Kind: model.CallArgs, Index: index, Text: args})
}

func (d *chatDecoder) end(emit func(*model.Event) bool) error {
	if d.usage != nil && !d.say(emit, model.Event{Kind: model.UsageSeen, Usage: d.usage}) {
		return errStopped
	}
	if !d.say(emit, d.t.finish(d.finish, d.model, d.calls > 0)) {
		return errStopped
	}
	return nil
}

// finish is the last event. Some providers say "stop" although there are calls to make, or
// have words of their own: a cut answer must not pass for a whole one, and calls must be made.
func (t *try) finish(reason, name string, calls bool) model.Event {
	switch strings.ToLower(reason) {
	case "length", "max_tokens", "max_output_tokens", "model_length":
		reason = "length"
	case "content_filter", "safety", "recitation", "blocklist", "prohibited_content", "refusal":
		reason = "content_filter"
	default:
		reason = "stop"
		if calls {
			reason = "tool_calls"
		}
	}
	return model.Event{Kind: model.Finish, Reason: reason, Meta: model.Meta{
		RequestID: t.requestID, Model: name, Attempts: t.n, Scripted: t.scripted,
	}}
}

func usage(u *goopenai.Usage) *messages.Usage {
	out := &messages.Usage{InputTokens: int64(u.PromptTokens), OutputTokens: int64(u.CompletionTokens)}
	if u.PromptTokensDetails != nil {
		out.CachedTokens = int64(u.PromptTokensDetails.CachedTokens)
	}
	if u.CompletionTokensDetails != nil {
		out.ReasoningTokens = int64(u.CompletionTokensDetails.ReasoningTokens)
	}
	return out
}
