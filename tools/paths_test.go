package tools_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

// moving is a translator of a container that has the workspace at /workspace.
type moving struct{}

func (moving) Inside(root, path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, root)
	return "/workspace" + rest, ok
}

func (moving) Outside(root, path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "/workspace")
	return root + rest, ok
}

func (moving) ContainerID(exec string) string { return "c-" + exec }

// Acceptance row 10.
func TestPathsAreResolvedAsTheModeSays(t *testing.T) {
	root := t.TempDir()
	ws := open(t, root, messages.Trust_FULL)
	root = ws.HostDir()
	local := &tools.Context{Workspace: ws, WorkspaceInfo: &messages.WorkspaceInfo{Mode: tools.ModeLocal}}
	in := &messages.WorkspaceInfo{Mode: tools.ModeContainer}
	inside, without := &tools.Context{Workspace: ws, WorkspaceInfo: in, Paths: moving{}}, &tools.Context{Workspace: ws, WorkspaceInfo: in}
	for _, c := range []struct {
		name       string
		tc         *tools.Context
		path, want string // want "": an error
	}{
		{"no workspace: plain", &tools.Context{}, "/etc/passwd", "/etc/passwd"},
		{"local, relative", local, "a/b", filepath.Join(root, "a/b")},
		{"local, below the root", local, filepath.Join(root, "a"), filepath.Join(root, "a")},
		{"local, outside", local, "/etc/passwd", ""},
		{"local, up", local, "../x", ""},
		{"container, relative", inside, "a/b", filepath.Join(root, "a/b")},
		{"container, its own path", inside, "/workspace/a", filepath.Join(root, "a")},
		{"container, the machine's path", inside, filepath.Join(root, "a"), ""},
		{"container, up", inside, "/workspace/../etc/passwd", ""},
		{"container without a translator", without, "a", ""},
		{"container without a translator, its own path", without, "/workspace/a", ""},
	} {
		got, err := c.tc.HostPath(c.path)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	if got, err := inside.CommandPath(filepath.Join(root, "a")); err != nil || got != "/workspace/a" {
		t.Errorf("%q %v", got, err)
	}
	for _, tc := range []*tools.Context{inside, without} {
		if got, err := tc.CommandPath("/etc/passwd"); err == nil {
			t.Errorf("a path outside is %q in the container", got)
		}
	}
	var known *tools.Error
	if _, err := tools.ReadFile().Run(without, json.RawMessage(`{"path":"a"}`)); !errors.As(err, &known) || known.Code != tools.CodeWorkspaceNotAvailable {
		t.Errorf("a file tool without a translator: %v", err)
	}
}

// Acceptance rows 5, 10 and 22: files and commands have the same names in a container.
func TestToolsAndCommandsInAContainerSpeakOfTheSameFiles(t *testing.T) {
	b := newBox(t, sandbox.Container, messages.Trust_RESTRICTED)
	info := b.tc.WorkspaceInfo
	if info.GetMode() != tools.ModeContainer || info.GetWorkingDirectory() != "/workspace" || info.GetProjectDir() != b.root || !strings.Contains(info.GetContainerId(), "exe_1") {
		t.Errorf("the workspace is told as %v", info)
	}
	e := b.sh(t, "pwd; echo made >made.txt")
	if e.Content != "/workspace\n" || e.Meta["sandbox"] != "container" {
		t.Errorf("%+v", e)
	}
	read := func(path string) *tools.Envelope {
		args, err := json.Marshal(map[string]string{"path": path})
		if err != nil {
			t.Fatal(err)
		}
		res, err := tools.ReadFile().Run(b.tc, args)
		return tools.NewEnvelope("c", "read_file", res, err)
	}
	for _, path := range []string{"made.txt", "/workspace/made.txt"} {
		if e := read(path); !e.OK || !strings.Contains(e.Content, "made") {
			t.Errorf("%s: %+v", path, e)
		}
	}
	for _, path := range []string{filepath.Join(b.root, "made.txt"), "/etc/passwd", "/workspace/../etc/passwd"} {
		if e := read(path); e.OK || e.ErrorCode != tools.CodeInvalidPath {
			t.Errorf("%s: %+v", path, e)
		}
	}
}
