package tools

import (
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed git_status.md
var gitStatusDoc string

// GitStatus is the tool that lists what differs from the last commit.
func GitStatus() Tool {
	return &fileTool[gitStatusArgs]{
		spec: &Spec{Name: "git_status", Description: gitStatusDoc, Effect: messages.Effect_PURE, Commands: true, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"properties":{
"path":{"type":"string","minLength":1,"description":"File or folder to look at (default: the working directory)."},
` + workspaceArg + `}}`)},
		run: gitStatus,
	}
}

type gitStatusArgs struct {
	Path      string `json:"path"`
	Workspace string `json:"workspace_id"`
}

func gitStatus(c *fileCall, a gitStatusArgs) (*Result, error) {
	dir, spec, err := c.gitPath(a.Path)
	if err == nil {
		err = c.repository(dir)
	}
	if err != nil {
		return nil, err
	}
	args := []string{"status", "--porcelain=v1", "--branch", "--untracked-files=normal", "--ignore-submodules=dirty", "--no-renames"}
	out, err := c.git(gitCall{dir: dir, args: append(args, gitSpecs(spec)...)})
	if err != nil {
		return nil, err
	}
	if out.exit.Code == 0 && strings.Count(out.text, "\n") == 1 && strings.HasPrefix(out.text, "## ") {
		out.text += "(nothing to commit)\n"
	}
	return c.gitResult(out, "(nothing to commit)")
}
