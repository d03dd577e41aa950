package canned

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/model"
)

// responsesRequest is the body of POST /v1/responses, as far as it is looked at.
type responsesRequest struct {
	Model        string          `json:"model"`
	Instructions string          `json:"instructions"`
	Input        json.RawMessage `json:"input"`
	Tools        []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"tools"`
	Stream    bool  `json:"stream"`
	MaxTokens int64 `json:"max_output_tokens"`
}

// responsesItem is one of the input, and of the output.
type responsesItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	Summary   json.RawMessage `json:"summary,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments *string         `json:"arguments,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
}

// readResponses reads a request of the Responses API as the chat completion that says the same, and checks it in the same way.
func readResponses(body []byte) (*chatRequest, error) {
	if !utf8.Valid(body) {
		return nil, refuse("", "the body is not UTF-8")
	}
	var r responsesRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, refuse("", "the body is not the JSON of a request for a response: %v", err)
	}
	out := &chatRequest{Model: r.Model, Stream: r.Stream, MaxTokens: r.MaxTokens, responses: true}
	if r.Instructions != "" {
		out.add("system", jsonText(r.Instructions))
	}
	var items []responsesItem
	if len(r.Input) > 0 && r.Input[0] == '"' {
		items = []responsesItem{{Type: "message", Role: "user", Content: r.Input}}
	} else if err := json.Unmarshal(r.Input, &items); err != nil {
		return nil, refuse("input", "input is neither text nor a list of items: %v", err)
	}
	for i := range items {
		if err := out.item(&items[i]); err != nil {
			return nil, err
		}
	}
	for _, t := range r.Tools {
		c := chatTool{Type: t.Type}
		function := map[string]any{"name": t.Name, "description": t.Description}
		if len(t.Parameters) > 0 {
			function["parameters"] = t.Parameters
		}
		if err := json.Unmarshal(jsonOf(function), &c.Function); err != nil {
			return nil, refuse("tools", "the tool %q cannot be read: %v", t.Name, err)
		}
		out.Tools = append(out.Tools, c)
	}
	return out, out.check()
}

func (r *chatRequest) add(role string, content json.RawMessage) *chatMessage {
	r.Messages = append(r.Messages, chatMessage{Role: role, Content: content})
	return &r.Messages[len(r.Messages)-1]
}

// item takes an item of the input. Calls belong to what the assistant has said right before.
func (r *chatRequest) item(i *responsesItem) error {
	switch i.Type {
	case "", "message":
		r.add(i.Role, i.Content)
	case "function_call":
		if n := len(r.Messages); n == 0 || r.Messages[n-1].Role != "assistant" {
			r.add("assistant", nil)
		}
		c := chatCall{ID: i.CallID, Type: "function"}
		c.Function.Name, c.Function.Arguments = i.Name, i.Arguments
		m := &r.Messages[len(r.Messages)-1]
		m.ToolCalls = append(m.ToolCalls, c)
	case "function_call_output":
		r.add("tool", i.Output).ToolCallID = &i.CallID
	case "reasoning": // what was thought is not asked for again
	default:
		return refuse("input", "%q is no type of item", i.Type)
	}
	return nil
}

func jsonOf(v any) json.RawMessage {
	b, err := JSON(v)
	if err != nil { // of texts, and of JSON that was read: cannot happen
		return json.RawMessage("null")
	}
	return b
}

func jsonText(s string) json.RawMessage { return jsonOf(s) }

// response is the answer of the Responses API.
type response struct {
	ID         string          `json:"id"`
	Object     string          `json:"object"`
	Model      string          `json:"model"`
	Status     string          `json:"status"`
	Output     []responsesItem `json:"output"`
	Incomplete *incomplete     `json:"incomplete_details,omitempty"`
	Usage      *responsesUsage `json:"usage,omitempty"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type responsesUsage struct {
	Input   int64 `json:"input_tokens"`
	Output  int64 `json:"output_tokens"`
	Total   int64 `json:"total_tokens"`
	InputBy struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputBy struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
}

// take makes the response of an answer.
func (r *response) take(a *Answer) {
	r.Status, r.Output = "completed", []responsesItem{}
	switch a.finish() {
	case "length":
		r.Status, r.Incomplete = "incomplete", &incomplete{"max_output_tokens"}
	case "content_filter":
		r.Status, r.Incomplete = "incomplete", &incomplete{"content_filter"}
	}
	if a.Reasoning != "" {
		r.Output = append(r.Output, responsesItem{Type: "reasoning", Summary: jsonOf([]map[string]string{{"type": "summary_text", "text": a.Reasoning}})})
	}
	if a.Text != "" || len(a.Calls) == 0 {
		r.Output = append(r.Output, responsesItem{Type: "message", Role: "assistant", Content: jsonOf([]map[string]string{{"type": "output_text", "text": a.Text}})})
	}
	for _, c := range a.Calls {
		r.Output = append(r.Output, responsesItem{Type: "function_call", CallID: c.GetId(), Name: c.GetName(), Arguments: &c.Arguments})
	}
	u := &responsesUsage{Input: a.Usage.GetInputTokens(), Output: a.Usage.GetOutputTokens(), Total: a.Usage.GetInputTokens() + a.Usage.GetOutputTokens()}
	u.InputBy.Cached, u.OutputBy.Reasoning = a.Usage.GetCachedTokens(), a.Usage.GetReasoningTokens()
	r.Usage = u
}

// responsesForm is how the Responses API streams.
type responsesForm struct {
	*sse
	of response
}

// responsesEvent is one of its events.
type responsesEvent struct {
	Type     string         `json:"type"`
	Output   int            `json:"output_index"`
	Delta    string         `json:"delta,omitempty"`
	Item     *responsesItem `json:"item,omitempty"`
	Response *response      `json:"response,omitempty"`
}

// firstCall is the place of the first call in the output: reasoning and text go before.
const firstCall = 2

func (s *responsesForm) begin() bool {
	began := s.of
	began.Status, began.Output = "in_progress", []responsesItem{}
	return s.send(responsesEvent{Type: "response.created", Response: &began})
}

func (s *responsesForm) event(ev *model.Event) bool {
	switch ev.Kind {
	case model.Text:
		return s.send(responsesEvent{Type: "response.output_text.delta", Output: 1, Delta: ev.Text})
	case model.Reasoning:
		return s.send(responsesEvent{Type: "response.reasoning_summary_text.delta", Delta: ev.Text})
	case model.CallStart:
		empty := ""
		return s.send(responsesEvent{
			Type: "response.output_item.added", Output: firstCall + ev.Index, Item: &responsesItem{Type: "function_call", CallID: ev.CallID, Name: ev.Name, Arguments: &empty},
		})
	case model.CallArgs:
		return s.send(responsesEvent{Type: "response.function_call_arguments.delta", Output: firstCall + ev.Index, Delta: ev.Text})
	case model.UsageSeen, model.Finish:
	}
	return true
}

func (s *responsesForm) end(a *Answer) bool {
	s.of.take(a)
	return s.send(responsesEvent{Type: "response." + s.of.Status, Response: &s.of})
}
