package canned

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// The answers of the API, as far as clients read them.
type chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []chunkChoice `json:"choices"`
	Usage   *wireUsage    `json:"usage,omitempty"`
}

type chunkChoice struct {
	Index   int          `json:"index"`
	Delta   *wireMessage `json:"delta,omitempty"`
	Message *wireMessage `json:"message,omitempty"`
	Finish  *string      `json:"finish_reason"`
}

type wireMessage struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []wireCall `json:"tool_calls,omitempty"`
}

type wireCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type wireUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	PromptBy   struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionBy struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func wireOf(u *messages.Usage) *wireUsage {
	w := &wireUsage{Prompt: u.GetInputTokens(), Completion: u.GetOutputTokens(), Total: u.GetInputTokens() + u.GetOutputTokens()}
	w.PromptBy.Cached = u.GetCachedTokens()
	w.CompletionBy.Reasoning = u.GetReasoningTokens()
	return w
}

const garbage = "data: {not json}\n\n"

// sse writes the events of one stream.
type sse struct {
	w    http.ResponseWriter
	flow *http.ResponseController
	room int // bytes left before the stream is cut; -1: no limit
	slow bool
}

// send writes one event; false when the stream ends here.
func (s *sse) send(c any) bool {
	b, err := JSON(c)
	if err != nil {
		return false
	}
	return s.write(bytes.Join([][]byte{[]byte("data: "), b, []byte("\n\n")}, nil))
}

func (s *sse) write(b []byte) bool {
	cut := s.room >= 0 && len(b) >= s.room
	if cut {
		b = b[:s.room]
	}
	if _, err := s.w.Write(b); err != nil {
		return false
	}
	if s.room >= 0 {
		s.room -= len(b)
	}
	if s.slow { // else the end of the response flushes
		return s.flow.Flush() == nil && !cut
	}
	return !cut
}

// form is how an API streams.
type form interface {
	begin() bool
	event(ev *model.Event) bool
	end(a *Answer) bool
}

// chatForm is that of Chat Completions.
type chatForm struct {
	*sse
	base  chunk
	usage bool // is asked for
}

func (s *chatForm) begin() bool {
	empty := ""
	return s.delta(wireMessage{Role: "assistant", Content: &empty})
}

func (s *chatForm) end(a *Answer) bool {
	finish := a.finish()
	last := s.base
	last.Choices = []chunkChoice{{Delta: &wireMessage{}, Finish: &finish}}
	if !s.send(last) {
		return false
	}
	if s.usage {
		c := s.base
		c.Choices, c.Usage = []chunkChoice{}, wireOf(a.Usage)
		if !s.send(c) {
			return false
		}
	}
	return s.write([]byte("data: [DONE]\n\n"))
}

func (s *chatForm) delta(d wireMessage) bool {
	c := s.base
	c.Choices = []chunkChoice{{Delta: &d}}
	return s.send(c)
}

// stream answers as an event stream; true when it was given to its end.
func (e *endpoint) stream(ctx context.Context, w http.ResponseWriter, req *chatRequest, a *Answer) bool {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	s := &sse{
		w: w, flow: http.NewResponseController(w), room: -1, slow: a.Pause+e.opts.ChunkDelay > 0,
	}
	if e.opts.TruncateAfter > 0 {
		s.room = e.opts.TruncateAfter
	}
	var f form = &chatForm{
		sse: s, base: chunk{ID: "chatcmpl-" + w.Header().Get("X-Request-Id"), Object: "chat.completion.chunk", Model: req.Model},
		usage: req.Options != nil && req.Options.Usage,
	}
	if req.responses {
		f = &responsesForm{sse: s, of: response{ID: "resp-" + w.Header().Get("X-Request-Id"), Object: "response", Model: req.Model}}
	}
	if !f.begin() {
		return false
	}
	if a.Garbage {
		_, _ = io.WriteString(w, garbage) // the client has gone
		return false
	}
	whole, _ := a.events(func(ev *model.Event) bool {
		return wait(ctx, a.Pause+e.opts.ChunkDelay) == nil && f.event(ev)
	})
	return whole && f.end(a)
}

// event writes a piece of the answer.
func (s *chatForm) event(ev *model.Event) bool {
	switch ev.Kind {
	case model.Text:
		return s.delta(wireMessage{Content: &ev.Text})
	case model.Reasoning:
		return s.delta(wireMessage{Reasoning: ev.Text})
	case model.CallStart:
		return s.delta(wireMessage{ToolCalls: []wireCall{{Index: &ev.Index, ID: ev.CallID, Type: "function", Function: wireFunction{Name: ev.Name}}}})
	case model.CallArgs:
		return s.delta(wireMessage{ToolCalls: []wireCall{{Index: &ev.Index, Function: wireFunction{Arguments: ev.Text}}}})
	case model.UsageSeen, model.Finish:
	}
	return true
}

// whole answers as one JSON document; true when it was given to its end.
func (e *endpoint) whole(w http.ResponseWriter, req *chatRequest, a *Answer) bool {
	m := &wireMessage{Role: "assistant", Content: &a.Text, Reasoning: a.Reasoning}
	for _, c := range a.Calls {
		m.ToolCalls = append(m.ToolCalls, wireCall{ID: c.GetId(), Type: "function", Function: wireFunction{Name: c.GetName(), Arguments: c.GetArguments()}})
	}
	finish := a.finish()
	var said any = chunk{
		ID: "chatcmpl-" + w.Header().Get("X-Request-Id"), Object: "chat.completion", Model: req.Model,
		Choices: []chunkChoice{{Message: m, Finish: &finish}}, Usage: wireOf(a.Usage),
	}
	if req.responses {
		r := response{ID: "resp-" + w.Header().Get("X-Request-Id"), Object: "response", Model: req.Model}
		r.take(a)
		said = r
	}
	doc, err := JSON(said)
	if err != nil {
		e.fail(w, http.StatusInternalServerError, problem{Message: err.Error(), Type: "server_error"})
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case a.Garbage:
		_, _ = io.WriteString(w, "{not json}") // the client has gone
	case a.Cut >= 0 || (e.opts.TruncateAfter > 0 && e.opts.TruncateAfter < len(doc)):
		n := max(a.Cut, e.opts.TruncateAfter)
		w.Header().Set("Content-Length", strconv.Itoa(len(doc)))
		_, _ = w.Write(doc[:min(n, len(doc)-1)])
	default:
		_, err := w.Write(append(doc, '\n'))
		return err == nil
	}
	return false
}
