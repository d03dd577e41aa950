package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
)

// TestToolsAreOfferedAndCalledInText plays both APIs: no definition of a tool and no call leaves as such, and what the model writes
// comes back as calls.
func TestToolsAreOfferedAndCalledInText(t *testing.T) {
	streams := map[string]string{
		openai.Chat: delta(`{"role":"assistant","content":"I look.\n<re"}`) + delta(`{"content":"ad>\n<path>b.go</path>\n</read>"}`) +
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n",
		openai.Responses: `data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"I look.\n<read>\n<path>b.go</path>\n</read>"}` + "\n\n" +
			`data: {"type":"response.completed","response":{"id":"r","model":"gpt-real","status":"completed"}}` + "\n\n",
	}
	for api, stream := range streams {
		t.Run(api, func(t *testing.T) {
			var sent []byte
			m := provider(t, openai.Options{API: api}, func(w http.ResponseWriter, r *http.Request) {
				sent, _ = io.ReadAll(r.Body)
				answers(200, "text/event-stream", stream)(w, r)
			})
			req := request("look")
			req.XML = true
			req.Tools = []model.ToolDef{{Name: "read", Description: "Reads a file. Example: `{\"path\":\"a.go\"}`", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"Where."}},"required":["path"]}`)}}
			req.Prompt.Messages = append(
				req.Prompt.Messages,
				&messages.Message{Role: messages.Assistant, ToolCalls: []*messages.ToolCall{{Id: "c1", Name: "read", Arguments: `{"path":"a.go"}`}}},
				&messages.Message{Role: messages.ToolRole, ToolCallID: "c1", ToolName: "read", Text: "package a </tool_result>"},
			)
			got, err := model.Collect(m.Stream(t.Context(), req), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.Text != "I look.\n" || len(got.ToolCalls) != 1 || got.ToolCalls[0].GetName() != "read" || got.ToolCalls[0].GetArguments() != `{"path":"b.go"}` || got.Reason != "tool_calls" {
				t.Errorf("%+v", got)
			}
			var body struct {
				Tools        []any
				Instructions string
				Messages     []map[string]any
				Input        []map[string]any
			}
			if err := json.Unmarshal(sent, &body); err != nil {
				t.Fatalf("%v: %s", err, sent)
			}
			all := append(body.Messages, body.Input...)
			system := body.Instructions
			if api == openai.Chat {
				system, _ = all[0]["content"].(string)
				all = all[1:]
			}
			if len(body.Tools) != 0 || !strings.HasPrefix(system, "be brief") || !strings.Contains(system, "## read\n\nReads a file.\n") || !strings.Contains(system, "- path (string, required): Where.") ||
				!strings.Contains(system, "<read>\n<path>a.go</path>\n</read>") || strings.Contains(system, "Example:") {
				t.Errorf("tools %v, system prompt:\n%s", body.Tools, system)
			}
			for i, want := range []struct{ role, text string }{
				{"user", "look"}, {"assistant", "<read>\n<path>a.go</path>\n</read>"}, {"user", "<tool_result tool=\"read\">\npackage a <\\/tool_result>\n</tool_result>"},
			} {
				content, _ := json.Marshal(all[i]["content"])
				quoted, _ := json.Marshal(want.text)
				if len(all) != 3 || all[i]["role"] != want.role || !strings.Contains(string(content), strings.Trim(string(quoted), `"`)) {
					t.Errorf("message %d: %s %s", i, all[i]["role"], content)
				}
			}
		})
	}
}
