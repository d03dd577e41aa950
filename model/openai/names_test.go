package openai_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
)

// A model may call what was never a tool; a provider that checks names must not refuse the
// conversation for ever after.
func TestOddNamesAndLongIDsOfPastCallsAreSentAsProvidersTakeThem(t *testing.T) {
	long := strings.Repeat("i", 5_000)
	names := []string{"read_file", "read file", "../x", "läs💥", "a\x1b\x00\nb", strings.Repeat("x", 100), "\xff", ""}
	call := &messages.Message{Role: messages.Assistant}
	history := []*messages.Message{{Role: messages.User, Text: "x"}, call}
	for i, n := range names {
		id := fmt.Sprint(i, long)
		call.ToolCalls = append(call.ToolCalls, &messages.ToolCall{Id: id, Name: n, Arguments: "{}"})
		history = append(history, &messages.Message{Role: messages.ToolRole, ToolCallID: id, Text: "out"})
	}
	req := &model.Request{Model: "m", Prompt: &messages.Prompt{Messages: history}}
	want := []string{"read_file", "read_file", "___x", "l_s_", "a___b", strings.Repeat("x", 64), "_", "_"}

	var got, ids, answered []string
	doc, _ := sent(t, openai.Options{}, req)
	for _, m := range doc["messages"].([]any) {
		m := m.(map[string]any)
		if id, ok := m["tool_call_id"].(string); ok {
			answered = append(answered, id)
		}
		calls, _ := m["tool_calls"].([]any)
		for _, c := range calls {
			c := c.(map[string]any)
			ids = append(ids, c["id"].(string))
			got = append(got, c["function"].(map[string]any)["name"].(string))
		}
	}
	check := func(api string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: names %q, want %q", api, got, want)
		}
		seen := map[string]bool{}
		for _, id := range ids {
			if !regexp.MustCompile(`^[a-z0-9_]{1,40}$`).MatchString(id) || seen[id] {
				t.Errorf("%s: id %.60q is odd, or given twice", api, id)
			}
			seen[id] = true
		}
		if fmt.Sprint(ids) != fmt.Sprint(answered) {
			t.Errorf("%s: calls %q are answered as %q", api, ids, answered)
		}
	}
	check("chat")

	got, ids, answered = nil, nil, nil
	doc = capture(t, openai.Options{API: openai.Responses}, req, func(*http.Request) {}, item(completed))
	for _, m := range doc["input"].([]any) {
		switch m := m.(map[string]any); m["type"] {
		case "function_call":
			ids, got = append(ids, m["call_id"].(string)), append(got, m["name"].(string))
		case "function_call_output":
			answered = append(answered, m["call_id"].(string))
		}
	}
	check("responses")
}
