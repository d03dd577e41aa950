package tools

import (
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed request_write_access.md
var requestWriteAccessDoc string

// WriteAccessName is the tool by which an agent asks a person to trust its workspace. Whoever decides about calls lets no rule
// allow it: it is a person's to answer.
const WriteAccessName = "request_write_access"

// RequestWriteAccess is that tool. What it does is its caller's (Context.WriteAccess): to raise the workspace for the session.
func RequestWriteAccess() Tool {
	return &writeAccessTool{spec: &Spec{
		Name: WriteAccessName, Description: requestWriteAccessDoc, Effect: messages.Effect_IDEMPOTENT,
		Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["reason"],"properties":{
"reason":{"type":"string","minLength":1,"maxLength":1000,"description":"What the access is needed for, for the user."},
` + workspaceArg + `}}`),
	}}
}

type writeAccessTool struct{ spec *Spec }

type writeAccessArgs struct {
	Reason    string `json:"reason"`
	Workspace string `json:"workspace_id"`
}

// Spec implements Tool.
func (t *writeAccessTool) Spec() *Spec { return t.spec }

func (t *writeAccessTool) decode(args json.RawMessage) (writeAccessArgs, error) {
	var a writeAccessArgs
	if err := Decode(t.spec, args, &a); err != nil {
		return a, err
	}
	if a.Reason = strings.TrimSpace(cleanText(a.Reason)); a.Reason == "" {
		return a, Errorf(CodeValidationFailed, "say in \"reason\" what the access is needed for")
	}
	return a, nil
}

// Preview implements Previewer. The reason is the model's, on one line: it cannot pass for another part of what is shown.
func (t *writeAccessTool) Preview(tc *Context, args json.RawMessage) (*Preview, error) {
	a, err := t.decode(args)
	if err != nil {
		return nil, err
	}
	where := "this workspace"
	if tc.Workspace != nil {
		where = tc.Workspace.HostDir()
	}
	text := "trust " + where + " for the rest of this session: every tool, commands included, runs there unasked\nthe agent's reason: " + a.Reason
	return &Preview{Kind: PreviewArguments, Text: text}, nil
}

// Run implements Tool.
func (t *writeAccessTool) Run(tc *Context, args json.RawMessage) (*Result, error) {
	if _, err := t.decode(args); err != nil {
		return nil, err
	}
	meta := map[string]any{"trust": "full"}
	if tc.Trust == messages.Trust_FULL {
		return &Result{Content: "The workspace is trusted already: nothing needs to be asked for.", Meta: meta}, nil
	}
	if tc.WriteAccess == nil {
		return nil, Errorf(CodePermissionDenied, "Access denied: there is no session here whose workspace could be raised")
	}
	if err := tc.WriteAccess(); err != nil {
		return nil, err
	}
	return &Result{Content: "The user has agreed: the workspace is trusted for the rest of the session. Calls run there without questions from now on.", Meta: meta}, nil
}
