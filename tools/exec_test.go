package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/sandbox"
	"github.com/troupe-dev/troupe/tools/toolstest"
	"github.com/troupe-dev/troupe/workspace"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	goleak.VerifyTestMain(m)
}

// box is a call's surroundings with a real sandbox.
type box struct {
	tc   *tools.Context
	root string
	out  string // a folder beside the workspace, with a secret
	home string
}

// bareLandlock is landlock without namespaces, for tests.
const bareLandlock sandbox.Mode = "landlock-bare"

// confining are the back ends that confine.
func confining() []sandbox.Mode {
	return []sandbox.Mode{sandbox.Bwrap, sandbox.Landlock, bareLandlock, sandbox.Container}
}

func newBox(t *testing.T, mode sandbox.Mode, trust messages.Trust_Level) *box {
	t.Helper()
	bare := mode == bareLandlock
	if bare {
		mode = sandbox.Landlock
	}
	image := ""
	if mode == sandbox.Container {
		image = toolstest.Image(t)
	}
	s, err := sandbox.Detect(context.Background(), mode, sandbox.Options{
		CacheDir: t.TempDir(), Reexec: true, Bare: bare, Image: image, Limits: sandbox.Limits{Memory: 256 << 20, Processes: 200},
	})
	var missing *sandbox.Unavailable
	if errors.As(err, &missing) {
		t.Skipf("no sandbox %s here: %v", mode, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &box{root: filepath.Join(top, "root"), out: filepath.Join(top, "outside"), home: filepath.Join(top, "home")}
	for _, dir := range []string{b.root, b.out, filepath.Join(top, "temp")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.out, "secret"), []byte("TOPSECRET"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.tc = &tools.Context{
		Signal: context.Background(), Workspace: open(t, b.root, trust), Home: open(t, b.home, messages.Trust_FULL), Trust: trust,
		Sandbox: s, WorkspaceInfo: &messages.WorkspaceInfo{Mode: tools.ModeLocal, WorkingDirectory: b.root, ProjectDir: b.root, ClonePath: b.root}, ExecID: "exe_1", ToolTempDir: filepath.Join(top, "temp"), ProcessEnv: tools.BaseEnv(os.Environ(), nil),
	}
	b.tc.Enter()
	return b
}

func open(t *testing.T, dir string, trust messages.Trust_Level) *workspace.Workspace {
	t.Helper()
	ws, err := workspace.Open(workspace.Options{Dir: dir, Trust: trust, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Error(err)
		}
	})
	return ws
}

func (b *box) run(t *testing.T, args string) *tools.Envelope {
	t.Helper()
	res, err := tools.Exec().Run(b.tc, json.RawMessage(args))
	return tools.NewEnvelope("c", "exec", res, err)
}

func (b *box) sh(t *testing.T, command string) *tools.Envelope {
	t.Helper()
	args, err := json.Marshal(map[string]any{"command": command, "timeout_ms": 30_000})
	if err != nil {
		t.Fatal(err)
	}
	return b.run(t, string(args))
}

func TestACommandThatFailsIsAResultWithItsCode(t *testing.T) {
	b := newBox(t, sandbox.Auto, messages.Trust_FULL)
	for command, want := range map[string]string{
		"echo hello":              "hello\n",
		"true":                    "(no output)",
		"echo out; exit 3":        "out\n[exit code 3]",
		"printf out; exit 3":      "out\n[exit code 3]",
		"false":                   "[exit code 1]",
		"kill -9 $$":              "[exit code 137: ended by SIGKILL]",
		"echo $TROUPE_EXEC_ID":    "exe_1\n",
		"read x || echo no input": "no input\n",
		"printf 'a\\r\\nb'":       "a\nb",
	} {
		e := b.sh(t, command)
		if !e.OK || e.Content != want || e.Truncated {
			t.Errorf("%s: %+v, want %q", command, e, want)
		}
		for _, key := range []string{"exit_code", "signal", "timed_out", "duration_ms", "sandbox", "bounds"} {
			if _, ok := e.Meta[key]; !ok {
				t.Errorf("%s: no %s in %v", command, key, e.Meta)
			}
		}
	}
	if e := b.sh(t, "exit 7"); e.Meta["exit_code"] != 7 || e.Meta["sandbox"] != b.tc.Sandbox.Name() {
		t.Errorf("%v", e.Meta)
	}
	if e := b.sh(t, "--help"); e.Meta["exit_code"] != 127 {
		t.Errorf("a command was taken for an option of the shell: %+v", e)
	}
}

func TestACommandStartsInsideTheWorkspaceOnly(t *testing.T) {
	b := newBox(t, sandbox.Auto, messages.Trust_FULL)
	if err := os.MkdirAll(filepath.Join(b.root, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(b.out, filepath.Join(b.root, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a/b", filepath.Join(b.root, "within")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.root, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for cwd, want := range map[string]string{".": "", "a": "/a", "a/b": "/a/b", "within": "/a/b", "a/../a": "/a", b.root + "/a": "/a"} {
		e := b.run(t, fmt.Sprintf(`{"command":"pwd -P","cwd":%q}`, cwd))
		if e.Content != b.root+want+"\n" {
			t.Errorf("%s: %+v", cwd, e)
		}
	}
	for cwd, code := range map[string]string{
		"..": tools.CodeInvalidPath, "../": tools.CodeInvalidPath, "away": tools.CodeInvalidPath, "/etc": tools.CodeInvalidPath,
		"file": tools.CodeInvalidPath, "none": tools.CodeFileNotFound, "a/\u0000": tools.CodeInvalidPath, "": tools.CodeInvalidArguments,
	} {
		args, err := json.Marshal(map[string]string{"command": "pwd", "cwd": cwd})
		if err != nil {
			t.Fatal(err)
		}
		if e := b.run(t, string(args)); e.OK || e.ErrorCode != code {
			t.Errorf("%q: %+v, want %s", cwd, e, code)
		}
	}
	b.tc.WorkingDirectory = "a"
	if e := b.run(t, `{"command":"pwd","cwd":"b"}`); e.Content != b.root+"/a/b\n" {
		t.Errorf("%+v", e)
	}
	if e := b.run(t, `{"command":"pwd"}`); e.Content != b.root+"/a\n" {
		t.Errorf("%+v", e)
	}
}

func TestATimeoutSaysSoWithTheOutputUntilThen(t *testing.T) {
	b := newBox(t, sandbox.Auto, messages.Trust_FULL)
	e := b.run(t, `{"command":"echo so far; sleep 1000","timeout_ms":4000}`)
	if e.OK || e.ErrorCode != tools.CodeTimeout || !strings.HasPrefix(e.Content, "Command timed out after 4000 ms\n") ||
		!strings.Contains(e.Content, "so far") || e.Details["timed_out"] != true {
		t.Errorf("%+v", e)
	}
	e = b.run(t, `{"command":"sleep 1000","timeout_ms":1}`)
	if e.Content != "Command timed out after 1 ms" {
		t.Errorf("%+v", e)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.tc.Signal = ctx
	cancel()
	if e := b.run(t, `{"command":"sleep 1000"}`); e.ErrorCode != tools.CodeCancelled {
		t.Errorf("%+v", e)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	b.tc.Signal = ctx
	if e := b.run(t, `{"command":"sleep 1000"}`); e.ErrorCode != tools.CodeTimeout || strings.Contains(e.Content, "Command timed out") {
		t.Errorf("the end of the call is not the command's own timeout: %+v", e)
	}
}

func TestLongOutputIsCutInTheMiddleAndKeptInHome(t *testing.T) {
	b := newBox(t, sandbox.Auto, messages.Trust_FULL)
	e := b.sh(t, `i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done; exit 4`)
	if !e.OK || !e.Truncated || !strings.HasPrefix(e.Content, "line 0\nline 1\n") || !strings.Contains(e.Content, "\nline 19999\n") ||
		!strings.Contains(e.Content, "lines truncated] ...") || !strings.Contains(e.Content, "[exit code 4]") {
		t.Errorf("%+v", e)
	}
	if n := utf8.RuneCountInString(e.Content); n > 30_500 || n < 27_000 {
		t.Errorf("%d characters", n)
	}
	whole, err := os.ReadFile(filepath.Join(b.home, "spill", "exe_1"))
	if err != nil || strings.Count(string(whole), "\n") != 20000 || !strings.Contains(e.Content, `"spill/exe_1"`) {
		t.Errorf("%d bytes, %v", len(whole), err)
	}
	b.tc.Workspace = b.tc.Home
	res, err := tools.ReadFile().Run(b.tc, json.RawMessage(`{"path":"spill/exe_1","start_line":15000,"limit":1}`))
	if err != nil || !strings.Contains(res.Content, "line 14999") {
		t.Errorf("it cannot be read back: %v %v", res, err)
	}
	b.tc.Home, b.tc.ExecID = nil, "../../x"
	if e := b.sh(t, "head -c 40000 /dev/zero | tr '\\0' x"); !e.Truncated || strings.Contains(e.Content, "whole output") || !strings.Contains(e.Content, "... [1 lines truncated] ...") {
		t.Errorf("%.100s", e.Content)
	}
}

func TestProgressIsToldForLongOutput(t *testing.T) {
	b := newBox(t, sandbox.Auto, messages.Trust_FULL)
	var told []*messages.Progress
	b.tc.Progress = func(p *messages.Progress) { told = append(told, p) }
	if e := b.sh(t, "for i in 1 2 3 4 5 6 7; do sleep 0.2; echo $i; done"); !e.OK {
		t.Fatalf("%+v", e)
	}
	if len(told) == 0 || told[0].GetDone() == 0 || told[0].GetUnit() != "bytes" || told[0].GetExecId() != "exe_1" {
		t.Errorf("%v", told)
	}
}

func TestARestrictedWorkspaceWithoutASandboxRunsNothing(t *testing.T) {
	b := newBox(t, sandbox.None, messages.Trust_RESTRICTED)
	for what, s := range map[string]tools.Sandbox{"none": b.tc.Sandbox, "nil": nil} {
		b.tc.Sandbox = s
		e := b.sh(t, "touch ran")
		if _, err := os.Stat(filepath.Join(b.root, "ran")); e.ErrorCode != tools.CodeSandboxUnavailable || err == nil {
			t.Errorf("%s: %+v", what, e)
		}
	}
	b = newBox(t, sandbox.None, messages.Trust_FULL)
	b.tc.Trust = messages.Trust_UNSPECIFIED // the workspace's own counts
	if e := b.sh(t, "touch ran"); !e.OK {
		t.Errorf("%+v", e)
	}
	b.tc.Workspace = nil
	if e := b.sh(t, "true"); e.ErrorCode != tools.CodeWorkspaceNotAvailable || e.Content != "No active project" {
		t.Errorf("%+v", e)
	}
}

func TestASandboxThatCannotStartIsNoResultOfTheCommand(t *testing.T) {
	b := newBox(t, sandbox.Bwrap, messages.Trust_RESTRICTED)
	if err := os.Symlink(b.out, filepath.Join(b.root, ".troupe")); err != nil {
		t.Fatal(err)
	}
	if e := b.sh(t, "true"); e.OK || e.ErrorCode != tools.CodeSandboxUnavailable {
		t.Errorf("%+v", e)
	}
}

func TestBadArgumentsOfExecAreRefused(t *testing.T) {
	b := newBox(t, sandbox.Auto, messages.Trust_FULL)
	for _, args := range []string{
		`{}`, `null`, `{"command":""}`, `{"command":"x","timeout_ms":0}`, `{"command":"x","timeout_ms":-1}`, `{"command":"x","timeout_ms":600001}`,
		`{"command":"x","env":{"LD_PRELOAD":"/x.so"}}`, `{"argv":["--help"]}`, `{"command":["ls"]}`, `{"command":"a\u0000b"}`,
		`{"command":"x","background":true}`, `{"command":"` + strings.Repeat("ä", 60_000) + `"}`,
	} {
		if e := b.run(t, args); e.OK || e.ErrorCode != tools.CodeInvalidArguments {
			t.Errorf("%.60s: %+v", args, e)
		}
	}
}

func TestASessionsOwnWorkspaceIsMadeByItsFirstCommand(t *testing.T) {
	b := newBox(t, sandbox.Auto, messages.Trust_FULL)
	b.tc.Workspace = b.tc.Home
	if e := b.sh(t, "echo note > note; cat note"); e.Content != "note\n" {
		t.Errorf("%+v", e)
	}
}
