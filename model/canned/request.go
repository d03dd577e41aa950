package canned

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// chatRequest is the body of POST /v1/chat/completions, as far as a strict server looks at it.
type chatRequest struct {
	Model     string        `json:"model"`
	Messages  []chatMessage `json:"messages"`
	Tools     []chatTool    `json:"tools"`
	Stream    bool          `json:"stream"`
	MaxTokens int64         `json:"max_tokens"`
	N         *int          `json:"n"`
	Options   *struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`

	responses bool // it is one of the Responses API
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  []chatCall      `json:"tool_calls"`
	ToolCallID *string         `json:"tool_call_id"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string  `json:"name"`
		Arguments *string `json:"arguments"`
	} `json:"function"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// refusal is a request that a provider would answer with 400.
type refusal struct{ param, message string }

func (r *refusal) Error() string { return r.message }

func refuse(param, format string, a ...any) error {
	return &refusal{param, fmt.Sprintf(format, a...)}
}

// readRequest decodes a request and checks it as OpenAI's server does, and where providers
// differ, as the strictest of them: no call without its result, no result without its call,
// no empty tool result, arguments that are JSON. Whatever passes here is taken everywhere.
func readRequest(body []byte) (*chatRequest, error) {
	if !utf8.Valid(body) {
		return nil, refuse("", "the body is not UTF-8")
	}
	var r chatRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, refuse("", "the body is not the JSON of a chat completion request: %v", err)
	}
	return &r, r.check()
}

// check is what both APIs hold a request to.
func (r *chatRequest) check() error {
	switch {
	case r.Model == "":
		return refuse("model", "you must provide a model parameter")
	case len(r.Messages) == 0:
		return refuse("messages", "messages is empty: at least one is needed")
	case r.N != nil && *r.N != 1:
		return refuse("n", "n is %d: only one choice is scripted", *r.N)
	case r.Options != nil && !r.Stream:
		return refuse("stream_options", "stream_options is only allowed when stream is true")
	}
	if err := checkTools(r.Tools); err != nil {
		return err
	}
	return checkMessages(r.Messages)
}

func checkTools(tools []chatTool) error {
	seen := make(map[string]bool, len(tools))
	for i, t := range tools {
		param := fmt.Sprintf("tools[%d]", i)
		switch {
		case t.Type != "function" || t.Function == nil:
			return refuse(param+".type", "%s is no function", param)
		case !isFunctionName(t.Function.Name):
			return refuse(param+".function.name", "the name %q has other characters than letters, digits, _ and -, or more than 64", t.Function.Name)
		case seen[t.Function.Name]:
			return refuse(param+".function.name", "the name %q is given to two tools", t.Function.Name)
		}
		seen[t.Function.Name] = true
		if p := t.Function.Parameters; len(p) > 0 {
			var schema struct {
				Type string `json:"type"`
			}
			if json.Unmarshal(p, &schema) != nil || schema.Type != "object" {
				return refuse(param+".function.parameters", "the parameters of %q are no schema of an object", t.Function.Name)
			}
		}
	}
	return nil
}

// isFunctionName tells what OpenAI takes as the name of a function, of a tool as of a call.
func isFunctionName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// maxCallID is the longest id of a call that OpenAI takes back.
const maxCallID = 40

// checkMessages holds a conversation to the one rule that providers enforce and users of agent
// runtimes suffer from: right after an assistant's message with tool calls stand exactly its
// results, one for each call, in any order.
func checkMessages(msgs []chatMessage) error {
	open := map[string]int{} // calls of the last assistant message without a result yet
	for i := range msgs {
		m := &msgs[i]
		param := fmt.Sprintf("messages[%d]", i)
		if m.Role != "tool" {
			if missing := unanswered(open); missing != "" {
				return refuse(param, "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'; before %s these have none: %s", param, missing)
			}
		}
		if err := checkMessage(m, param); err != nil {
			return err
		}
		for _, c := range m.ToolCalls {
			open[c.ID]++
		}
		if m.Role == "tool" {
			if open[*m.ToolCallID] == 0 {
				return refuse(param+".tool_call_id", "messages with role 'tool' must be a response to a preceding message with 'tool_calls': %s answers %q, which is not open", param, *m.ToolCallID)
			}
			open[*m.ToolCallID]--
		}
	}
	if missing := unanswered(open); missing != "" {
		return refuse("messages", "the conversation ends with tool calls that have no response: %s", missing)
	}
	return nil
}

func unanswered(open map[string]int) string {
	var ids []string
	for id, n := range open {
		if n > 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, ", ")
}

func checkMessage(m *chatMessage, param string) error {
	text, err := m.text()
	if err != nil {
		return refuse(param+".content", "%s.content is neither text nor parts", param)
	}
	null := len(m.Content) == 0 || string(m.Content) == "null"
	switch m.Role {
	case "system", "developer", "user":
		if null {
			return refuse(param+".content", "%s has no content", param)
		}
	case "assistant":
		if null && len(m.ToolCalls) == 0 {
			return refuse(param, "%s has neither content nor tool_calls", param)
		}
		return checkCalls(m.ToolCalls, param)
	case "tool":
		if m.ToolCallID == nil || *m.ToolCallID == "" {
			return refuse(param+".tool_call_id", "%s has no tool_call_id", param)
		}
		if text == "" {
			return refuse(param+".content", "%s is a tool message with empty content", param)
		}
	default:
		return refuse(param+".role", "%q is no role", m.Role)
	}
	if len(m.ToolCalls) > 0 {
		return refuse(param+".tool_calls", "%s has tool_calls but is no assistant's message", param)
	}
	return nil
}

func checkCalls(calls []chatCall, param string) error {
	seen := make(map[string]bool, len(calls))
	for j, c := range calls {
		p := fmt.Sprintf("%s.tool_calls[%d]", param, j)
		switch {
		case c.ID == "":
			return refuse(p+".id", "%s has no id", p)
		case len(c.ID) > maxCallID:
			return refuse(p+".id", "%s has an id of %d characters, the most is %d", p, len(c.ID), maxCallID)
		case seen[c.ID]:
			return refuse(p+".id", "%s has an id that another call of the message has: %q", p, c.ID)
		case c.Type != "function":
			return refuse(p+".type", "%s is of type %q, not function", p, c.Type)
		case c.Function.Name == "":
			return refuse(p+".function.name", "%s has no name", p)
		case !isFunctionName(c.Function.Name):
			return refuse(p+".function.name", "the name %q of %s has other characters than letters, digits, _ and -, or more than 64", c.Function.Name, p)
		case c.Function.Arguments == nil || !json.Valid([]byte(*c.Function.Arguments)):
			return refuse(p+".function.arguments", "%s has arguments that are not JSON", p)
		}
		seen[c.ID] = true
	}
	return nil
}

func (m *chatMessage) text() (string, error) {
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(m.Content, &s); err == nil {
		return s, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", fmt.Errorf("read content: %w", err)
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// request is what the source sees. A result's tool is the one whose call it answers.
func (r *chatRequest) request(agent string) *model.Request {
	p := &messages.Prompt{}
	names := map[string]string{}
	for i := range r.Messages {
		m := &r.Messages[i]
		text, _ := m.text() // checked before
		switch m.Role {
		case "system", "developer":
			p.System += text
		case "user":
			p.Messages = append(p.Messages, &messages.Message{Role: messages.User, Text: text})
		case "assistant":
			out := &messages.Message{Role: messages.Assistant, Text: text}
			clear(names)
			for _, c := range m.ToolCalls {
				names[c.ID] = c.Function.Name
				out.ToolCalls = append(out.ToolCalls, &messages.ToolCall{Id: c.ID, Name: c.Function.Name, Arguments: *c.Function.Arguments})
			}
			p.Messages = append(p.Messages, out)
		case "tool":
			p.Messages = append(p.Messages, &messages.Message{Role: messages.ToolRole, Text: text, ToolCallID: *m.ToolCallID, ToolName: names[*m.ToolCallID]})
		}
	}
	out := &model.Request{Model: r.Model, Prompt: p, Agent: agent, MaxTokens: r.MaxTokens}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, model.ToolDef{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	slices.SortStableFunc(out.Tools, func(a, b model.ToolDef) int { return strings.Compare(a.Name, b.Name) })
	return out
}
