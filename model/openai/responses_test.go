package openai_test

import (
	"net/http"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
)

func item(inner string) string { return "event: x\ndata: {" + inner + "}\n\n" }

const (
	created   = `"type":"response.created","sequence_number":0,"response":{"id":"r","tools":"whatever"}`
	completed = `"type":"response.completed","response":{"id":"r","model":"gpt-real","output":[],"usage":{"input_tokens":9,"output_tokens":4,"input_tokens_details":{"cached_tokens":3}}}`
)

func TestResponsesAreReadAsTheSameEvents(t *testing.T) {
	body := item(created) +
		item(`"type":"response.reasoning_summary_text.delta","delta":"why"`) +
		item(`"type":"response.output_text.delta","output_index":1,"delta":"Hel"`) + ": ping\n\n" +
		item(`"type":"response.output_text.delta","output_index":1,"delta":"lo"`) +
		item(`"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"fc","call_id":"a","name":"f","arguments":""}`) +
		item(`"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"x\""`) +
		item(`"type":"response.function_call_arguments.delta","output_index":2,"delta":":1}"`) +
		item(`"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"a","name":"f","arguments":"{\"x\":1}"}`) +
		item(`"type":"response.output_item.done","output_index":4,"item":{"type":"function_call","call_id":"b","name":"g","arguments":"{}"}`) +
		item(completed)
	for _, size := range []int{0, 3} {
		got, err := ask(t, provider(t, openai.Options{API: openai.Responses}, says(body, size)))
		if err != nil {
			t.Fatal(err)
		}
		if got.Text != "Hello" || got.Reasoning != "why" || got.Reason != "tool_calls" || got.Usage.GetCachedTokens() != 3 || got.Meta.Model != "gpt-real" || got.Meta.RequestID != "req-1" {
			t.Errorf("got %+v", got)
		}
		if len(got.ToolCalls) != 2 || got.ToolCalls[0].GetArguments() != `{"x":1}` || got.ToolCalls[1].GetId() != "b" || got.ToolCalls[1].GetArguments() != "{}" {
			t.Errorf("calls %v", got.ToolCalls)
		}
	}
}

func TestResponsesEndOnlyByTheirTerminalEvent(t *testing.T) {
	half := item(`"type":"response.output_text.delta","delta":"half"`)
	for name, tc := range map[string]struct {
		body   string
		want   model.Class
		reason string
	}{
		"no end":       {half, model.Truncated, ""},
		"only [DONE]":  {half + done, model.Truncated, ""},
		"cut":          {half + `data: {"type":"respo`, model.Truncated, ""},
		"failed":       {half + item(`"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"no"}}`), model.RateLimited, ""},
		"failed, mute": {half + item(`"type":"response.failed"`), model.Overloaded, ""},
		"error":        {half + item(`"type":"error","code":"server_error","message":"no"`), model.Overloaded, ""},
		"garbage":      {half + "data: x\n\n", model.Protocol, ""},
		"incomplete":   {half + item(`"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}`), "", "length"},
		"filtered":     {half + item(`"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}`), "", "content_filter"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(t, provider(t, openai.Options{API: openai.Responses, MaxAttempts: 1}, says(tc.body, 0)))
			if class(err) != tc.want || got.Text != "half" || got.Reason != tc.reason {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestTheResponsesRequestSaysTheWholeConversation(t *testing.T) {
	var path string
	req := &model.Request{
		Model: "m", MaxTokens: 5, Prompt: &messages.Prompt{System: "be brief", Messages: history()},
		Tools: []model.ToolDef{{Name: "f", Description: "does"}},
	}
	doc := capture(t, openai.Options{API: openai.Responses}, req, func(r *http.Request) { path = r.URL.Path }, item(completed))
	same(t, doc["input"], `[{"type":"message","role":"user","content":"do \"it\"\n<now>\u0001\ufffd é😀"},
		{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},
		{"type":"function_call","call_id":"b","name":"g","arguments":"{}"},
		{"type":"function_call","call_id":"c","name":"h","arguments":"{\"x\":1}"},
		{"type":"function_call","call_id":"d","name":"i","arguments":"{\"invalid_json\":\"{\\\"x\\\":\"}"},
		{"type":"function_call_output","call_id":"a","output":"(no output)"},
		{"type":"function_call_output","call_id":"b","output":"out"},
		{"type":"message","role":"assistant","content":"done"}]`)
	same(t, doc["tools"], `[{"type":"function","name":"f","description":"does","parameters":{"type":"object","properties":{}}}]`)
	if path != "/v1/responses" || doc["instructions"] != "be brief" || doc["store"] != false || doc["max_output_tokens"] != 5.0 {
		t.Errorf("got %s %v", path, doc)
	}
}
