package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// bench is a Full workspace in a fresh folder and the conversation that uses it.
type bench struct {
	testing.TB
	root string
	tc   *Context
}

func newBench(t testing.TB) *bench {
	t.Helper()
	root := t.TempDir()
	ws, err := workspace.Open(workspace.Options{Dir: root, Trust: messages.Trust_FULL})
	noError(t, err)
	t.Cleanup(func() { noError(t, ws.Close()) })
	return &bench{TB: t, root: root, tc: &Context{Signal: context.Background(), Workspace: ws, Known: map[string]string{}}}
}

func (b *bench) put(name, content string) {
	b.Helper()
	full := filepath.Join(b.root, name)
	noError(b, os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644))
}

func (b *bench) get(name string) string {
	b.Helper()
	data, err := os.ReadFile(filepath.Join(b.root, name))
	noError(b, err)
	return string(data)
}

func (b *bench) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(b.root, name))
	return err == nil
}

func encoded(t testing.TB, args any) json.RawMessage {
	t.Helper()
	if text, ok := args.(string); ok {
		return json.RawMessage(text)
	}
	data, err := json.Marshal(args)
	noError(t, err)
	return data
}

// run makes a call and remembers the hashes of its result, as a conversation does.
func (b *bench) run(tool Tool, args any) (*Result, error) {
	b.Helper()
	result, err := tool.Run(b.tc, encoded(b, args))
	if err == nil {
		for _, f := range result.Files {
			b.tc.Known[f.Path] = f.Sha256
		}
	}
	return result, err
}

func (b *bench) ok(tool Tool, args any) *Result {
	b.Helper()
	result, err := b.run(tool, args)
	if err != nil {
		b.Fatalf("%s %v: %v", tool.Spec().Name, args, err)
	}
	return result
}

// fails wants a refusal with the code, whose text holds all the parts.
func (b *bench) fails(tool Tool, args any, code string, parts ...string) {
	b.Helper()
	_, err := b.run(tool, args)
	wantRefusal(b, fmt.Sprintf("%s %v", tool.Spec().Name, args), err, code, parts...)
}

func wantRefusal(t testing.TB, what string, err error, code string, parts ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%.200s: got %v, want code %s", what, err, code)
		return
	}
	for _, part := range parts {
		if !strings.Contains(e.Message, part) {
			t.Errorf("%.200s: text %q does not hold %q", what, e.Message, part)
		}
	}
}

type m = map[string]any

func TestFileToolsDescribeThemselves(t *testing.T) {
	classes := map[string]messages.Effect_Class{
		"read_file": messages.Effect_PURE, "list_files": messages.Effect_PURE, "glob": messages.Effect_PURE, "grep": messages.Effect_PURE,
		"write_file": messages.Effect_RECONCILABLE, "edit_file": messages.Effect_RECONCILABLE, "move_file": messages.Effect_RECONCILABLE,
		"create_directory": messages.Effect_RECONCILABLE, "delete_file": messages.Effect_RECONCILABLE,
	}
	for name, tool := range fileTools() {
		spec := tool.Spec()
		_, prepares := tool.(Preparer)
		_, reconciles := tool.(Reconciler)
		changes := classes[name] == messages.Effect_RECONCILABLE
		if spec.Effect != classes[name] || prepares != changes || reconciles != changes {
			t.Errorf("%s: class %v, prepares %v, reconciles %v", name, spec.Effect, prepares, reconciles)
		}
		if !strings.Contains(spec.Description, "Example") || !json.Valid(spec.Schema) || !strings.Contains(string(spec.Schema), `"workspace_id"`) {
			t.Errorf("%s: no example, no valid schema, or no workspace_id", name)
		}
		if _, err := tool.Run(&Context{}, validArgs(name)); !isCode(err, CodeWorkspaceNotAvailable) || err.Error() != "No active project" {
			t.Errorf("%s without a workspace: %v", name, err)
		}
	}
}

func validArgs(name string) json.RawMessage {
	switch name {
	case "write_file":
		return json.RawMessage(`{"path":"x","content":""}`)
	case "edit_file":
		return json.RawMessage(`{"path":"x","edits":[{"old_string":"a","new_string":"b"}],"workspace_id":"w"}`)
	case "move_file":
		return json.RawMessage(`{"source":"x","destination":"y"}`)
	case "glob", "grep":
		return json.RawMessage(`{"pattern":"x"}`)
	}
	return json.RawMessage(`{"path":"x"}`)
}

func isCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

func TestACancelledCallEndsWithItsCode(t *testing.T) {
	b := newBench(t)
	b.put("d/f", "x")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.tc.Signal = ctx
	b.fails(Grep(), m{"pattern": "x"}, CodeCancelled)
	b.fails(Glob(), m{"pattern": "**"}, CodeCancelled)
	b.fails(DeleteFile(), m{"path": "d", "recursive": true}, CodeCancelled)
	if !b.exists("d/f") {
		t.Error("a cancelled removal removed something")
	}
}

func TestPathsCountFromTheWorkingDirectory(t *testing.T) {
	b := newBench(t)
	b.put("sub/a.txt", "A\n")
	b.put("top.txt", "T\n")
	b.tc.WorkingDirectory = "sub"
	if r := b.ok(ReadFile(), m{"path": "a.txt"}); r.Files[0].Path != "sub/a.txt" {
		t.Errorf("hash under %q", r.Files[0].Path)
	}
	b.ok(ReadFile(), m{"path": "../top.txt"})
	b.ok(ReadFile(), m{"path": filepath.Join(b.root, "top.txt")})
	b.fails(ReadFile(), m{"path": "../../x"}, CodeInvalidPath)
	if r := b.ok(ListFiles(), m{"path": ".."}); r.Content != "./\n../top.txt\n" {
		t.Errorf("listing %q is not relative to the working directory", r.Content)
	}
	if r := b.ok(Glob(), m{"pattern": "*.txt"}); r.Content != "a.txt\n" {
		t.Errorf("glob %q", r.Content)
	}
}

func TestAMissingFileIsToldWithNearNames(t *testing.T) {
	b := newBench(t)
	b.put("src/server.go", "")
	b.put("src/README.md", "")
	b.fails(ReadFile(), m{"path": "src/sever.go"}, CodeFileNotFound, "File not found: src/sever.go", "Did you mean src/server.go?")
	b.fails(ReadFile(), m{"path": "src/readme.txt"}, CodeFileNotFound, "src/README.md")
	_, err := b.run(ReadFile(), m{"path": "src/quite-different"})
	if err == nil || err.Error() != "File not found: src/quite-different" {
		t.Errorf("got %v", err)
	}
	b.fails(EditFile(), m{"path": "no/dir/x", "edits": []m{{"old_string": "a", "new_string": "b"}}}, CodeFileNotFound)
}
