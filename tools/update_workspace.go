package tools

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed update_workspace.md
var updateWorkspaceDoc string

// UpdateWorkspaceName is the tool that edits the fields of a workspace: they are kept beside it, wherever its files are.
const UpdateWorkspaceName = "update_workspace"

// UpdateWorkspace is the tool by which an agent sets a field of its workspace (acceptance rows 51 to 59). It touches no file.
func UpdateWorkspace() Tool {
	return &updateWorkspaceTool{spec: &Spec{
		Name: UpdateWorkspaceName, Description: updateWorkspaceDoc, Effect: messages.Effect_IDEMPOTENT,
		Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["field_name","value"],"properties":{
"field_name":{"type":"string","minLength":1,"description":"Name of the field, which must be marked [EDITABLE] in the workspace context."},
"value":{"description":"The new value, as the field's schema takes it; null clears it to its default, or to unset."},
` + workspaceArg + `}}`),
	}}
}

type updateWorkspaceTool struct{ spec *Spec }

type updateWorkspaceArgs struct {
	Field     string          `json:"field_name"`
	Value     json.RawMessage `json:"value"`
	Workspace string          `json:"workspace_id"`
}

// Spec implements Tool.
func (t *updateWorkspaceTool) Spec() *Spec { return t.spec }

// Run implements Tool.
func (t *updateWorkspaceTool) Run(tc *Context, args json.RawMessage) (*Result, error) {
	var a updateWorkspaceArgs
	if err := Decode(t.spec, args, &a); err != nil {
		return nil, err
	}
	if tc.Fields == nil {
		return nil, Errorf(CodeWorkspaceNotAvailable, "Error: Workspace not available: the call has no workspace whose fields it could set")
	}
	set, err := tc.Fields.Set(tc.Signal, a.Field, a.Value)
	if err != nil {
		return nil, err
	}
	meta := map[string]any{"field": set.GetField(), "rev": set.GetRev()}
	if len(set.GetDerived()) > 0 {
		followed := map[string]any{}
		for _, d := range set.GetDerived() {
			followed[d.GetField()] = json.RawMessage(shownField(d.GetNew()))
		}
		meta["derived"] = followed
	}
	return &Result{
		Content: fmt.Sprintf("Successfully updated field '%s':\n- Previous value: %s\n- New value: %s", set.GetField(), shownField(set.GetOld()), shownField(set.GetNew())),
		Meta:    meta,
	}, nil
}

// shownField writes a value; one that is unset is null.
func shownField(v string) string {
	if v == "" {
		return "null"
	}
	return v
}
