package tools

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed todo.md
var todoDoc string

// Todo is the tool by which an agent writes down its plan. Each call replaces the whole list,
// and nothing is kept beside the conversation: the list is the last result of this tool.
func Todo() Tool {
	return &todoTool{spec: &Spec{
		Name: "todo", Description: todoDoc, Effect: messages.Effect_IDEMPOTENT, NoWorkspace: true,
		Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["items"],"properties":{
"items":{"type":"array","maxItems":100,"description":"The whole list, in order; it replaces the one before.","items":{
"type":"object","additionalProperties":false,"required":["content","status"],"properties":{
"id":{"type":"string","minLength":1,"maxLength":64,"description":"Name of the item, to keep from call to call (default: its number)."},
"content":{"type":"string","minLength":1,"maxLength":1000,"description":"What is to be done."},
"status":{"type":"string","enum":["pending","in_progress","completed"],"description":"How far it is."}}}},
` + workspaceArg + `}}`),
	}}
}

type todoTool struct{ spec *Spec }

type todoArgs struct {
	Items []struct {
		ID      string `json:"id"`
		Content string `json:"content"`
		Status  string `json:"status"`
	} `json:"items"`
	Workspace string `json:"workspace_id"`
}

// Spec implements Tool.
func (t *todoTool) Spec() *Spec { return t.spec }

// Run implements Tool.
func (t *todoTool) Run(_ *Context, args json.RawMessage) (*Result, error) {
	var a todoArgs
	if err := Decode(t.spec, args, &a); err != nil {
		return nil, err
	}
	marks := map[string]string{"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
	counts, seen := map[string]int{}, map[string]int{}
	var list strings.Builder
	for i, item := range a.Items {
		content := strings.TrimSpace(cleanText(item.Content))
		if content == "" {
			return nil, Errorf(CodeValidationFailed, "items[%d] has no content", i)
		}
		id := item.ID
		if id == "" {
			id = fmt.Sprint(i + 1)
		}
		if before, twice := seen[id]; twice {
			return nil, Errorf(CodeValidationFailed, "items[%d] and items[%d] have the same id %q", before, i, id)
		}
		seen[id] = i
		counts[item.Status]++
		fmt.Fprintf(&list, "%s %s. %s\n", marks[item.Status], cleanText(id), content)
	}
	if len(a.Items) == 0 {
		return &Result{Content: "The list is empty.", Meta: todoMeta(counts)}, nil
	}
	head := fmt.Sprintf("%d of %d done, %d in progress\n", counts["completed"], len(a.Items), counts["in_progress"])
	return &Result{Content: head + strings.TrimSuffix(list.String(), "\n"), Meta: todoMeta(counts)}, nil
}

func todoMeta(counts map[string]int) map[string]any {
	return map[string]any{"pending": counts["pending"], "in_progress": counts["in_progress"], "completed": counts["completed"]}
}
