package tools

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

//go:embed move_file.md
var moveFileDoc string

// MoveFile is the tool that moves or renames a file or directory within the workspace.
func MoveFile() Tool {
	return &changeTool[moveFileArgs]{
		fileTool: fileTool[moveFileArgs]{
			spec: &Spec{Name: "move_file", Description: moveFileDoc, Effect: messages.Effect_RECONCILABLE, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["source","destination"],"properties":{
"source":{"type":"string","description":"File or directory to move, relative to the working directory."},
"destination":{"type":"string","description":"Its whole new path; not the directory to put it into."},
"overwrite":{"type":"boolean","description":"Replace a file that is there (default false)."},
` + workspaceArg + `}}`)},
			run: moveFile,
		},
		prepare: prepareMove,
		settle:  settleMove,
	}
}

type moveFileArgs struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Overwrite   bool   `json:"overwrite"`
}

func moveFile(c *fileCall, a moveFileArgs) (*Result, error) {
	from, to, err := c.ws.Rename(c.ctx, c.at(a.Source), c.at(a.Destination), workspace.MoveOptions{Overwrite: a.Overwrite, Parents: true})
	if err != nil {
		name := a.Source // what is wrong is with it, unless the destination is named
		var w *workspace.Error
		if errors.As(err, &w) && (w.Op == "make" || w.Path == c.at(a.Destination)) {
			name = a.Destination
		}
		return nil, c.fail(name, err)
	}
	return moved(c, from.Path, to.Path), nil
}

// moved is the result. A file that was read before counts as read under its new name.
func moved(c *fileCall, from, to string) *Result {
	files := hashed(from, "")
	if sum := c.known(from); sum != "" {
		files = append(files, &messages.FileHash{Path: to, Sha256: sum})
	}
	return &Result{
		Content: fmt.Sprintf("Moved %s to %s", c.show(from), c.show(to)),
		Meta:    map[string]any{"source": from, "destination": to},
		Files:   files,
	}
}

func prepareMove(c *fileCall, a moveFileArgs) ([]*messages.FileHash, error) {
	if _, err := c.ws.Lstat(c.at(a.Source)); err != nil {
		return nil, c.fail(a.Source, err)
	}
	was, from, err := c.ws.Hash(c.ctx, c.at(a.Source), false)
	if err != nil {
		return nil, c.fail(a.Source, err)
	}
	there, to, err := c.ws.Hash(c.ctx, c.at(a.Destination), false)
	if err != nil {
		return nil, c.fail(a.Destination, err)
	}
	return []*messages.FileHash{{Path: from, Sha256: was}, {Path: to, Sha256: there, PlannedSha256: was}}, nil
}

func settleMove(c *fileCall, _ moveFileArgs, pre []*messages.FileHash) (*Result, error) {
	if len(pre) != 2 {
		return nil, undecided(c, pre[0].Path)
	}
	from, to := pre[0], pre[1]
	now, _, err := c.ws.Hash(c.ctx, from.Path, false)
	if err != nil {
		return nil, c.fail(from.Path, err)
	}
	there, _, err := c.ws.Hash(c.ctx, to.Path, false)
	switch {
	case err != nil:
		return nil, c.fail(to.Path, err)
	case now == "" && there == to.PlannedSha256:
		return moved(c, from.Path, to.Path), nil
	case now == from.Sha256 && there == to.Sha256:
		return nil, ErrNotDone
	}
	return nil, undecided(c, to.Path)
}
