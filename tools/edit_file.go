package tools

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

//go:embed edit_file.md
var editFileDoc string

// EditFile is the tool that replaces exact texts in a file that was read before: all edits of a
// call or none.
func EditFile() Tool {
	return &changeTool[editFileArgs]{
		fileTool: fileTool[editFileArgs]{
			spec: &Spec{Name: "edit_file", Description: editFileDoc, Effect: messages.Effect_RECONCILABLE, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["path","edits"],"properties":{
"path":{"type":"string","description":"File to edit, relative to the working directory."},
"edits":{"type":"array","minItems":1,"maxItems":100,"description":"Replacements, applied one after the other.",
"items":{"type":"object","additionalProperties":false,"required":["old_string","new_string"],"properties":{
"old_string":{"type":"string","description":"Text as it stands in the file, with its white space; without line numbers."},
"new_string":{"type":"string","description":"Text to put in its place; empty to delete it."},
"replace_all":{"type":"boolean","description":"Replace every occurrence (default false: it must be unique)."}}}},
"dry_run":{"type":"boolean","description":"Only show what would change."},
` + workspaceArg + `}}`)},
			run: editFile,
		},
		prepare: prepareEdit,
		settle:  settleEdit,
		diff:    diffEdit,
	}
}

type editFileArgs struct {
	Path   string `json:"path"`
	Edits  []edit `json:"edits"`
	DryRun bool   `json:"dry_run"`
}

// edited is a file before and after, not yet written.
type edited struct {
	file  *workspace.File
	after string
}

func computeEdit(c *fileCall, a editFileArgs) (*edited, error) {
	name := cleanText(a.Path)
	f, err := c.readText(a.Path)
	if err != nil {
		return nil, err
	}
	if err := c.mayChange(name, f.Path, f.SHA256, ""); err != nil {
		return nil, err
	}
	after, err := applyEdits(name, string(f.Data), a.Edits)
	if err != nil {
		return nil, err
	}
	return &edited{file: f, after: after}, nil
}

func prepareEdit(c *fileCall, a editFileArgs) ([]*messages.FileHash, error) {
	e, err := computeEdit(c, a)
	if err != nil {
		return nil, err
	}
	planned := workspace.Sum([]byte(e.after))
	if a.DryRun {
		planned = e.file.SHA256
	}
	return []*messages.FileHash{{Path: e.file.Path, Sha256: e.file.SHA256, PlannedSha256: planned}}, nil
}

func diffEdit(c *fileCall, a editFileArgs) (string, error) {
	e, err := computeEdit(c, a)
	if err != nil {
		return "", err
	}
	return unifiedDiff(e.file.Path, c.clean(string(e.file.Data)), c.clean(e.after), false), nil
}

func editFile(c *fileCall, a editFileArgs) (*Result, error) {
	e, err := computeEdit(c, a)
	if err != nil {
		return nil, err
	}
	diff := unifiedDiff(e.file.Path, c.clean(string(e.file.Data)), c.clean(e.after), false)
	if a.DryRun {
		shown, cut := cutText(diff, maxResultBytes/2)
		return &Result{
			Content:   fmt.Sprintf("Nothing was written. %s would change like this:\n%s", c.show(e.file.Path), shown),
			Truncated: cut,
			Files:     hashed(e.file.Path, e.file.SHA256),
			Diff:      diff,
		}, nil
	}
	// The real name: a link changed since the read must not redirect the write.
	_, err = c.ws.WriteFile(e.file.Path, []byte(e.after), workspace.WriteOptions{Expect: &e.file.SHA256, ID: c.ExecID})
	if err != nil {
		return nil, c.fail(a.Path, err)
	}
	result := editDone(c, a, e.file.Path, workspace.Sum([]byte(e.after)))
	result.Diff = diff
	return result, nil
}

// editDone is the result, from what is known without the old content.
func editDone(c *fileCall, a editFileArgs, real, sum string) *Result {
	return &Result{
		Content: fmt.Sprintf("Applied %d %s to %s", len(a.Edits), plural(len(a.Edits), "edit", "edits"), c.show(real)),
		Meta:    map[string]any{"path": real, "edits": len(a.Edits)},
		Files:   hashed(real, sum),
	}
}

func settleEdit(c *fileCall, a editFileArgs, pre []*messages.FileHash) (*Result, error) {
	if a.DryRun {
		return nil, ErrNotDone // it has no effect: showing it again is as good
	}
	if err := settleHash(c, pre[0]); err != nil {
		return nil, err
	}
	return editDone(c, a, pre[0].Path, pre[0].PlannedSha256), nil
}

// cutText shortens a text to whole lines of at most n bytes.
func cutText(text string, n int) (string, bool) {
	if len(text) <= n {
		return text, false
	}
	kept := text[:strings.LastIndexByte(text[:n], '\n')+1]
	return fmt.Sprintf("%s... [%d lines truncated] ...\n", kept, strings.Count(text[len(kept):], "\n")), true
}
