package tools

import (
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed git_commit.md
var gitCommitDoc string

// GitCommit is the tool that commits what is staged, or all changes when nothing is.
func GitCommit() Tool {
	return &fileTool[gitCommitArgs]{
		spec: &Spec{Name: "git_commit", Description: gitCommitDoc, Effect: messages.Effect_AT_MOST_ONCE, Commands: true, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["message"],"properties":{
"message":{"type":"string","minLength":1,"maxLength":20000,"description":"Message: a line that says what the commit does, and after an empty line why."},
` + workspaceArg + `}}`)},
		run: gitCommit,
	}
}

type gitCommitArgs struct {
	Message   string `json:"message"`
	Workspace string `json:"workspace_id"`
}

func gitCommit(c *fileCall, a gitCommitArgs) (*Result, error) {
	if strings.ContainsRune(a.Message, 0) || strings.TrimSpace(a.Message) == "" {
		return nil, refuse("argument \"message\" is empty or holds a NUL")
	}
	if err := c.repository(""); err != nil {
		return nil, err
	}
	staged, err := c.git(gitCall{args: []string{"diff", "--cached", "--quiet", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"}})
	if err != nil {
		return nil, err
	}
	switch staged.exit.Code {
	case 1: // something is
	case 0:
		added, err := c.git(gitCall{write: true, args: append([]string{"-c", "core.safecrlf=false", "add", "--all"}, gitSpecs("")...)})
		if err != nil {
			return nil, err
		}
		if err := added.failed(); err != nil {
			return nil, err
		}
	default:
		if err := staged.failed(); err != nil {
			return nil, err
		}
		return nil, Errorf(CodeValidationFailed, "git does not say what is staged")
	}
	who, err := c.committer()
	if err != nil {
		return nil, err
	}
	out, err := c.git(gitCall{write: true, args: append(who, "commit", "--no-verify", "--no-gpg-sign", "--no-edit", "--no-status", "--cleanup=whitespace", "--message="+a.Message)})
	if err != nil {
		return nil, err
	}
	if out.exit.Code == 1 && strings.Contains(out.text, "nothing to commit") {
		return nil, Errorf(CodeNoChange, "There is nothing to commit")
	}
	return c.gitResult(out, "(committed)")
}

// committer are the options that name one where the repository does not. The user's own configuration is not read.
func (c *fileCall) committer() ([]string, error) {
	out, err := c.git(gitCall{args: []string{"config", "--get", "user.email"}})
	if err != nil {
		return nil, err
	}
	if out.exit.Code == 0 && strings.TrimSpace(out.text) != "" {
		return nil, nil
	}
	return []string{"-c", "user.name=" + cleanName("agent "+c.Agent), "-c", "user.email=agent@troupe.invalid"}, nil
}
