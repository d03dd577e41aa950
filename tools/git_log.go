package tools

import (
	_ "embed"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed git_log.md
var gitLogDoc string

// GitLog is the tool that lists commits, the newest first.
func GitLog() Tool {
	return &fileTool[gitLogArgs]{
		spec: &Spec{Name: "git_log", Description: gitLogDoc, Effect: messages.Effect_PURE, Commands: true, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"properties":{
"max_count":{"type":"integer","minimum":1,"maximum":1000,"description":"Most commits to list (default 20)."},
` + workspaceArg + `}}`)},
		run: gitLog,
	}
}

type gitLogArgs struct {
	MaxCount  int    `json:"max_count"`
	Workspace string `json:"workspace_id"`
}

func gitLog(c *fileCall, a gitLogArgs) (*Result, error) {
	if a.MaxCount == 0 {
		a.MaxCount = 20
	}
	if err := c.repository(""); err != nil {
		return nil, err
	}
	out, err := c.git(gitCall{args: []string{
		"log", "--no-show-signature", "--no-color", "--no-ext-diff", "--no-textconv", "--no-patch", "--no-mailmap", "--date=iso-strict",
		"--max-count=" + strconv.Itoa(a.MaxCount), "--format=%h %ad %an: %s",
	}})
	if err != nil {
		return nil, err
	}
	if out.exit.Code == 128 && strings.Contains(out.text, "does not have any commits yet") {
		return &Result{Content: "(no commits yet)", Meta: map[string]any{"sandbox": c.Sandbox.Name()}}, nil
	}
	return c.gitResult(out, "(no commits yet)")
}
