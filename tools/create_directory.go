package tools

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

//go:embed create_directory.md
var createDirectoryDoc string

// CreateDirectory is the tool that makes a directory and those on the way to it.
func CreateDirectory() Tool {
	return &changeTool[createDirectoryArgs]{
		fileTool: fileTool[createDirectoryArgs]{
			spec: &Spec{Name: "create_directory", Description: createDirectoryDoc, Effect: messages.Effect_RECONCILABLE, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["path"],"properties":{
"path":{"type":"string","description":"Directory to make, relative to the working directory."},
` + workspaceArg + `}}`)},
			run: createDirectory,
		},
		prepare: prepareDirectory,
		settle:  settleDirectory,
	}
}

type createDirectoryArgs struct {
	Path string `json:"path"`
}

func createDirectory(c *fileCall, a createDirectoryArgs) (*Result, error) {
	info, made, err := c.ws.Mkdir(c.at(a.Path), true)
	if err != nil {
		return nil, c.fail(a.Path, err)
	}
	return directoryMade(c, info.Path, made), nil
}

func directoryMade(c *fileCall, real string, made bool) *Result {
	text := "Created directory %s"
	if !made {
		text = "Directory %s is already there"
	}
	return &Result{Content: fmt.Sprintf(text, c.show(real)), Meta: map[string]any{"path": real, "created": made}}
}

func prepareDirectory(c *fileCall, a createDirectoryArgs) ([]*messages.FileHash, error) {
	sum, real, err := c.ws.Hash(c.ctx, c.at(a.Path), true)
	if err != nil {
		return nil, c.fail(a.Path, err)
	}
	return hashed(real, sum), nil
}

func settleDirectory(c *fileCall, _ createDirectoryArgs, pre []*messages.FileHash) (*Result, error) {
	info, err := c.ws.Stat(pre[0].Path)
	switch {
	case err == nil && info.IsDir():
		return directoryMade(c, info.Path, pre[0].Sha256 == ""), nil
	case err != nil && workspace.CodeOf(err) == workspace.CodeNotFound:
		return nil, ErrNotDone
	}
	return nil, undecided(c, pre[0].Path)
}
