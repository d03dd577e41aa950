package tools

import (
	_ "embed"
	"encoding/json"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed git_diff.md
var gitDiffDoc string

// GitDiff is the tool that shows changes since the last commit, or those that are staged.
func GitDiff() Tool {
	return &fileTool[gitDiffArgs]{
		spec: &Spec{Name: "git_diff", Description: gitDiffDoc, Effect: messages.Effect_PURE, Commands: true, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"properties":{
"path":{"type":"string","minLength":1,"description":"File or folder to look at (default: the working directory)."},
"staged":{"type":"boolean","description":"Show what is staged for the next commit instead of what is not (default false)."},
` + workspaceArg + `}}`)},
		run: gitDiff,
	}
}

type gitDiffArgs struct {
	Path      string `json:"path"`
	Staged    bool   `json:"staged"`
	Workspace string `json:"workspace_id"`
}

func gitDiff(c *fileCall, a gitDiffArgs) (*Result, error) {
	dir, spec, err := c.gitPath(a.Path)
	if err == nil {
		err = c.repository(dir)
	}
	if err != nil {
		return nil, err
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty"}
	if a.Staged {
		args = append(args, "--cached")
	}
	out, err := c.git(gitCall{dir: dir, args: append(args, gitSpecs(spec)...)})
	if err != nil {
		return nil, err
	}
	return c.gitResult(out, "(no differences)")
}
