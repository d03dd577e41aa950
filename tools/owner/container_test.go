package owner_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
)

// boxed is a sandbox whose commands see the folder at /inside. It says where a command starts instead of running it.
type boxed struct{}

func (boxed) Name() string   { return "container" }
func (boxed) Confines() bool { return true }

func (b boxed) Run(_ context.Context, c tools.Command) (tools.Exit, error) {
	at, _ := b.Inside(c.Workspace, c.Dir)
	_, err := io.WriteString(c.Output, "ran in "+at)
	return tools.Exit{}, err
}

func (boxed) Inside(folder, path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, folder)
	return "/inside" + rest, ok
}

func (boxed) Outside(folder, path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "/inside")
	return folder + rest, ok
}

func (boxed) ContainerID(exec string) string { return "box-" + exec }

// Files and commands have the same names on the machine of an owner, too, when its commands run in containers (`sandbox.exec: container`): in what is shown
// of a call as in its run.
func TestCallsOfAnOwnerWithContainersSpeakOfTheSameFiles(t *testing.T) {
	var seen *messages.WorkspaceInfo
	dir, _, x := around(t, owner.Options{Sandbox: boxed{}, Before: func(_ context.Context, _ *messages.Execute, tc *tools.Context) error {
		seen = tc.WorkspaceInfo
		return nil
	}})
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	n := 0
	of := func(tool, args string) *messages.Execute {
		n++
		return &messages.Execute{ExecId: fmt.Sprint("exe_", n), Attempt: 1, Tool: tool, Workspace: &messages.WorkspaceGrant{Uri: "lap:/x"}, Arguments: args}
	}
	come := func(tool, args string) *messages.ToolReply {
		t.Helper()
		r, err := x.Deliver(t.Context(), of(tool, args), nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	write := `{"path":"/inside/sub/a","content":"b"}`
	if r, err := x.Preview(t.Context(), of("write_file", write)); err != nil || !r.GetPreviewed() || !strings.Contains(r.GetDiff(), "+b") || len(r.GetFiles()) != 1 || r.GetFiles()[0].GetPath() != "sub/a" {
		t.Errorf("shown is %v, %v", r, err)
	}
	if r := come("write_file", write); r.GetErrorCode() != "" {
		t.Errorf("written: %v", r)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "sub", "a")); err != nil || string(b) != "b" {
		t.Errorf("the file has %q, %v", b, err)
	}
	if seen.GetMode() != tools.ModeContainer || seen.GetWorkingDirectory() != "/inside" || seen.GetContainerId() == "" {
		t.Errorf("the call is told %v", seen)
	}
	if r := come("exec", `{"command":"pwd","cwd":"/inside/sub"}`); !strings.Contains(r.GetContent(), "ran in /inside/sub") {
		t.Errorf("a command: %v", r)
	}
	for _, path := range []string{filepath.Join(dir, "sub", "a"), "/inside/../etc/passwd"} {
		args := fmt.Sprintf(`{"path":%q,"content":"x"}`, path)
		if r := come("write_file", args); r.GetErrorCode() != tools.CodeInvalidPath {
			t.Errorf("%s: %v", path, r)
		}
		if r, err := x.Preview(t.Context(), of("write_file", args)); err != nil || r.GetErrorCode() != tools.CodeInvalidPath {
			t.Errorf("%s is shown: %v, %v", path, r, err)
		}
	}
}
