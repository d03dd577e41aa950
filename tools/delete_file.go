package tools

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

//go:embed delete_file.md
var deleteFileDoc string

// DeleteFile is the tool that removes a file, a link, or with recursive a directory.
func DeleteFile() Tool {
	return &changeTool[deleteFileArgs]{
		fileTool: fileTool[deleteFileArgs]{
			spec: &Spec{Name: "delete_file", Description: deleteFileDoc, Effect: messages.Effect_RECONCILABLE, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["path"],"properties":{
"path":{"type":"string","description":"File or directory to delete, relative to the working directory."},
"recursive":{"type":"boolean","description":"Also delete a directory that is not empty (default false)."},
` + workspaceArg + `}}`)},
			run: deleteFile,
		},
		prepare: prepareDelete,
		settle:  settleDelete,
	}
}

type deleteFileArgs struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
}

func deleteFile(c *fileCall, a deleteFileArgs) (*Result, error) {
	info, err := c.ws.Lstat(c.at(a.Path))
	if err != nil {
		return nil, c.fail(a.Path, err)
	}
	if info.IsDir() && a.Recursive {
		info, err = c.ws.RemoveTree(c.ctx, c.at(a.Path), c.ExecID)
	} else {
		info, err = c.ws.Remove(c.at(a.Path))
	}
	if err != nil && workspace.CodeOf(err) == workspace.CodeExists {
		return nil, refuse("%s is a directory that is not empty: set recursive to delete it with all that is in it", cleanText(a.Path))
	}
	if err != nil {
		return nil, c.fail(a.Path, err)
	}
	return deleted(c, info.Path), nil
}

func deleted(c *fileCall, real string) *Result {
	return &Result{
		Content: fmt.Sprintf("Deleted %s", c.show(real)),
		Meta:    map[string]any{"path": real},
		Files:   hashed(real, ""),
	}
}

func prepareDelete(c *fileCall, a deleteFileArgs) ([]*messages.FileHash, error) {
	info, err := c.ws.Lstat(c.at(a.Path))
	if err != nil {
		return nil, c.fail(a.Path, err)
	}
	sum, real, err := c.ws.Hash(c.ctx, info.Path, false)
	if err != nil {
		return nil, c.fail(a.Path, err)
	}
	return hashed(real, sum), nil
}

func settleDelete(c *fileCall, _ deleteFileArgs, pre []*messages.FileHash) (*Result, error) {
	switch now, _, err := c.ws.Hash(c.ctx, pre[0].Path, false); {
	case err != nil:
		return nil, c.fail(pre[0].Path, err)
	case now == "":
		return deleted(c, pre[0].Path), nil
	case now == pre[0].Sha256:
		return nil, ErrNotDone
	}
	return nil, undecided(c, pre[0].Path)
}
