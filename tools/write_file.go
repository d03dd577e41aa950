package tools

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

//go:embed write_file.md
var writeFileDoc string

// WriteFile is the tool that makes a file or replaces one as a whole, with at most 5 MiB. A file
// that exists must have been read, or be named by its hash.
func WriteFile() Tool {
	return &changeTool[writeFileArgs]{
		fileTool: fileTool[writeFileArgs]{
			spec: &Spec{Name: "write_file", Description: writeFileDoc, Effect: messages.Effect_RECONCILABLE, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["path","content"],"properties":{
"path":{"type":"string","description":"File to write, relative to the working directory."},
"content":{"type":"string","description":"The whole new content, at most 5 MiB."},
"create_dirs":{"type":"boolean","description":"Make missing directories (default true)."},
"expected_sha256":{"type":"string","description":"Write only if the file has this hash (hex)."},
` + workspaceArg + `}}`)},
			run: writeFile,
		},
		prepare: prepareWrite,
		settle:  settleWrite,
		diff:    diffWrite,
	}
}

type writeFileArgs struct {
	Path       string `json:"path"`
	Content    string `json:"content"`
	CreateDirs *bool  `json:"create_dirs"`
	Expected   string `json:"expected_sha256"`
}

// writable checks everything that can refuse the write, and names the file's state before it.
func writable(c *fileCall, a writeFileArgs) (*messages.FileHash, error) {
	if len(a.Content) > maxWriteBytes {
		return nil, Errorf(CodeFileTooLarge, "File too large: %s: %d bytes, the limit is %d", cleanText(a.Path), len(a.Content), maxWriteBytes)
	}
	info, err := c.ws.Stat(c.at(a.Path))
	if err != nil && workspace.CodeOf(err) != workspace.CodeNotFound {
		return nil, c.fail(a.Path, err)
	}
	if err == nil && !info.Mode.IsRegular() { // the write would refuse it: say so before any rule
		return nil, Errorf(CodeInvalidPath, "Invalid path: %s: it is not a regular file", cleanText(a.Path))
	}
	now, real, err := c.ws.Hash(c.ctx, c.at(a.Path), true)
	if err != nil {
		return nil, c.fail(a.Path, err)
	}
	if now != "" && c.hidesSecrets(a) {
		return nil, Errorf(CodePermissionDenied, "Access denied: %s holds secrets, which are shown as %s: writing the whole file would replace them. "+
			"Change it with edit_file, which leaves them alone", cleanText(a.Path), redacted)
	}
	if now != "" || a.Expected != "" {
		if err := c.mayChange(cleanText(a.Path), real, now, a.Expected); err != nil {
			return nil, err
		}
	}
	return &messages.FileHash{Path: real, Sha256: now, PlannedSha256: workspace.Sum([]byte(a.Content))}, nil
}

// redacted is what stands for a secret in everything that an agent gets to see.
const redacted = "[redacted]"

// hidesSecrets tells whether a new content would overwrite secrets by what was shown in their place.
func (c *fileCall) hidesSecrets(a writeFileArgs) bool {
	if c.Redact == nil || !strings.Contains(a.Content, redacted) {
		return false
	}
	f, err := c.ws.ReadFile(c.at(a.Path), maxWriteBytes)
	return err == nil && c.clean(string(f.Data)) != string(f.Data)
}

func prepareWrite(c *fileCall, a writeFileArgs) ([]*messages.FileHash, error) {
	pre, err := writable(c, a)
	if err != nil {
		return nil, err
	}
	return []*messages.FileHash{pre}, nil
}

func writeFile(c *fileCall, a writeFileArgs) (*Result, error) {
	pre, err := writable(c, a)
	if err != nil {
		return nil, err
	}
	old, err := c.before(a, pre)
	if err != nil {
		return nil, err
	}
	parents := a.CreateDirs == nil || *a.CreateDirs
	info, err := c.ws.WriteFile(c.at(a.Path), []byte(a.Content), workspace.WriteOptions{Parents: parents, Expect: &pre.Sha256, ID: c.ExecID})
	if err != nil {
		return nil, c.fail(a.Path, err)
	}
	result := written(c, a, pre)
	result.Diff = unifiedDiff(info.Path, c.clean(old), a.Content, pre.Sha256 == "")
	return result, nil
}

// before is a file's content for the diff: one that is no text, or too large, has none.
func (c *fileCall) before(a writeFileArgs, pre *messages.FileHash) (string, error) {
	if pre.GetSha256() == "" {
		return "", nil
	}
	f, err := c.ws.ReadFile(c.at(a.Path), maxWriteBytes)
	if err == nil {
		return string(f.Data), nil
	}
	if workspace.CodeOf(err) != workspace.CodeTooLarge {
		return "", c.fail(a.Path, err)
	}
	return "", nil
}

func diffWrite(c *fileCall, a writeFileArgs) (string, error) {
	pre, err := writable(c, a)
	if err != nil {
		return "", err
	}
	old, err := c.before(a, pre)
	if err != nil {
		return "", err
	}
	return unifiedDiff(pre.GetPath(), c.clean(old), c.clean(a.Content), pre.GetSha256() == ""), nil
}

// written is the result, from what is known without the old content.
func written(c *fileCall, a writeFileArgs, pre *messages.FileHash) *Result {
	verb := "Updated"
	if pre.Sha256 == "" {
		verb = "Created"
	}
	n := len(textLines(a.Content))
	return &Result{
		Content: fmt.Sprintf("%s %s (%d %s, %d bytes)", verb, c.show(pre.Path), n, plural(n, "line", "lines"), len(a.Content)),
		Meta:    map[string]any{"path": pre.Path, "bytes": len(a.Content), "created": pre.Sha256 == ""},
		Files:   hashed(pre.Path, pre.PlannedSha256),
	}
}

func settleWrite(c *fileCall, a writeFileArgs, pre []*messages.FileHash) (*Result, error) {
	p := &messages.FileHash{Path: pre[0].Path, Sha256: pre[0].Sha256, PlannedSha256: workspace.Sum([]byte(a.Content))}
	if err := settleHash(c, p); err != nil {
		return nil, err
	}
	return written(c, a, p), nil
}

// settleHash compares a file with what it was and what the call was to leave. nil: it happened.
func settleHash(c *fileCall, p *messages.FileHash) error {
	now, _, err := c.ws.Hash(c.ctx, p.Path, false)
	switch {
	case err != nil:
		var w *workspace.Error
		if errors.As(err, &w) {
			return undecided(c, p.Path)
		}
		return err
	case p.PlannedSha256 != "" && now == p.PlannedSha256:
		return nil
	case now == p.Sha256:
		return ErrNotDone
	}
	return undecided(c, p.Path)
}
