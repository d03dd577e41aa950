package tools_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

// host runs git as its user would, with nothing of this machine's configuration.
func host(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // some are scripts
		t.Fatal(err)
	}
}

// newRepo is a box whose workspace is a repository with one commit and a change.
func newRepo(t *testing.T, mode sandbox.Mode, trust messages.Trust_Level) *box {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skipf("no git here: %v", err)
	}
	b := newBox(t, mode, trust)
	host(t, b.root, "init", "-q")
	write(t, filepath.Join(b.root, "a.txt"), "one\n")
	write(t, filepath.Join(b.root, "sub", "b.txt"), "two\n")
	host(t, b.root, "add", ".")
	host(t, b.root, "commit", "-q", "-m", "first: a beginning")
	write(t, filepath.Join(b.root, "a.txt"), "one\nmore\n")
	return b
}

func (b *box) git(t *testing.T, name, args string) *tools.Envelope {
	t.Helper()
	tool := map[string]tools.Tool{"git_status": tools.GitStatus(), "git_diff": tools.GitDiff(), "git_log": tools.GitLog(), "git_commit": tools.GitCommit()}[name]
	res, err := tool.Run(b.tc, json.RawMessage(args))
	return tools.NewEnvelope("c", name, res, err)
}

func TestGitShowsWhatChangedAndCommitsIt(t *testing.T) {
	b := newRepo(t, sandbox.Auto, messages.Trust_FULL)
	write(t, filepath.Join(b.root, "näw.txt"), "new\n")
	if e := b.git(t, "git_status", `{}`); e.Content != "## main\n M a.txt\n?? näw.txt\n" {
		t.Errorf("%+v", e)
	}
	for path, want := range map[string]string{"sub": "## main\n(nothing to commit)\n", "a.txt": "## main\n M a.txt\n", ".": "## main\n M a.txt\n?? näw.txt\n", b.root + "/a.txt": "## main\n M a.txt\n", "none.txt": "## main\n(nothing to commit)\n"} {
		if e := b.git(t, "git_status", fmt.Sprintf(`{"path":%q}`, path)); e.Content != want {
			t.Errorf("%s: %+v", path, e)
		}
	}
	if e := b.git(t, "git_diff", `{}`); !strings.Contains(e.Content, "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n one\n+more\n") {
		t.Errorf("%+v", e)
	}
	if e := b.git(t, "git_diff", `{"staged":true}`); e.Content != "(no differences)" {
		t.Errorf("%+v", e)
	}
	host(t, b.root, "add", "a.txt")
	if e := b.git(t, "git_diff", `{"staged":true,"path":"a.txt"}`); !strings.Contains(e.Content, "+more\n") {
		t.Errorf("%+v", e)
	}
	if e := b.git(t, "git_commit", `{"message":"-x: what is staged alone\n\nBecause."}`); !e.OK || !strings.Contains(e.Content, "1 file changed") {
		t.Errorf("%+v", e)
	}
	if got := host(t, b.root, "log", "-1", "--format=%an %ae %B"); got != "agent agent@troupe.invalid -x: what is staged alone\n\nBecause.\n\n" {
		t.Errorf("%q", got)
	}
	host(t, b.root, "config", "user.name", "Grace")
	host(t, b.root, "config", "user.email", "grace@example.org")
	if err := os.Remove(filepath.Join(b.root, "sub", "b.txt")); err != nil {
		t.Fatal(err)
	}
	if e := b.git(t, "git_diff", `{"path":"sub/b.txt"}`); !strings.Contains(e.Content, "-two") {
		t.Errorf("a file that is gone: %+v", e)
	}
	if e := b.git(t, "git_commit", `{"message":"all the rest"}`); !e.OK || !strings.Contains(e.Content, "2 files changed") {
		t.Errorf("%+v", e)
	}
	if got := host(t, b.root, "log", "-1", "--format=%an %s"); got != "Grace all the rest\n" {
		t.Errorf("%q", got)
	}
	if e := b.git(t, "git_commit", `{"message":"nothing"}`); e.ErrorCode != tools.CodeNoChange {
		t.Errorf("%+v", e)
	}
	e := b.git(t, "git_log", `{"max_count":2}`)
	if lines := strings.Split(e.Content, "\n"); len(lines) != 3 || !strings.HasSuffix(lines[0], " Grace: all the rest") || !strings.HasSuffix(lines[1], " agent: -x: what is staged alone") {
		t.Errorf("%+v", e)
	}
	if e := b.git(t, "git_log", `{}`); strings.Count(e.Content, "\n") != 3 || e.Meta["sandbox"] != b.tc.Sandbox.Name() {
		t.Errorf("%+v", e)
	}
}

// TestGitLeavesAloneWhatNoToolMayTouch: the sandbox hides it, which is no reason to take it for deleted.
func TestGitLeavesAloneWhatNoToolMayTouch(t *testing.T) {
	b := newRepo(t, sandbox.Auto, messages.Trust_FULL)
	write(t, filepath.Join(b.root, ".troupe", "config.yaml"), "model: a/b\n")
	host(t, b.root, "add", ".troupe")
	host(t, b.root, "commit", "-q", "-m", "the project's settings")
	write(t, filepath.Join(b.root, ".troupe", "more.yaml"), "new\n")
	write(t, filepath.Join(b.root, "*.txt"), "a name with a star\n")
	if e := b.git(t, "git_status", `{}`); e.Content != "## main\n M a.txt\n?? *.txt\n" {
		t.Errorf("%+v", e)
	}
	if e := b.git(t, "git_diff", `{}`); strings.Contains(e.Content, ".troupe") || !strings.Contains(e.Content, "+more") {
		t.Errorf("%+v", e)
	}
	if e := b.git(t, "git_status", `{"path":"*.txt"}`); e.Content != "## main\n?? *.txt\n" {
		t.Errorf("a path is no pattern: %+v", e)
	}
	if e := b.git(t, "git_commit", `{"message":"all"}`); !e.OK {
		t.Errorf("%+v", e)
	}
	if got := host(t, b.root, "ls-files"); got != "*.txt\n.troupe/config.yaml\na.txt\nsub/b.txt\n" {
		t.Errorf("the repository has %q", got)
	}
}

func TestGitToolsStayInTheirFolder(t *testing.T) {
	b := newRepo(t, sandbox.Auto, messages.Trust_FULL)
	if err := os.Symlink(b.out, filepath.Join(b.root, "away")); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]string{"..": tools.CodeInvalidPath, "/etc": tools.CodeInvalidPath, "../outside/secret": tools.CodeInvalidPath, "away/secret": tools.CodeInvalidPath, "a\u0000": tools.CodeInvalidPath, "": tools.CodeInvalidArguments} {
		args, err := json.Marshal(map[string]string{"path": path})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"git_status", "git_diff"} {
			if e := b.git(t, name, string(args)); e.ErrorCode != code {
				t.Errorf("%s %q: %+v", name, path, e)
			}
		}
	}
	for _, args := range []string{`{}`, `{"message":""}`, `{"message":" \n"}`, `{"message":"a\u0000b"}`, `{"message":"x","amend":true}`} {
		if e := b.git(t, "git_commit", args); e.ErrorCode != tools.CodeInvalidArguments {
			t.Errorf("%s: %+v", args, e)
		}
	}
	if e := b.git(t, "git_diff", `{"path":"--output=x"}`); !e.OK {
		t.Errorf("a path was taken for an option: %+v", e)
	}
	// A repository above the workspace is not this workspace's.
	host(t, filepath.Dir(b.root), "init", "-q")
	if err := os.RemoveAll(filepath.Join(b.root, ".git")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"git_status", "git_diff", "git_log"} {
		if e := b.git(t, name, `{}`); e.ErrorCode != tools.CodeFileNotFound {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if e := b.git(t, "git_commit", `{"message":"x"}`); e.ErrorCode != tools.CodeFileNotFound {
		t.Errorf("%+v", e)
	}
}

func TestGitRunsInASandboxOrNotAtAll(t *testing.T) {
	b := newRepo(t, sandbox.None, messages.Trust_RESTRICTED)
	for _, name := range []string{"git_status", "git_diff", "git_log"} {
		if e := b.git(t, name, `{}`); e.ErrorCode != tools.CodeSandboxUnavailable {
			t.Errorf("%s: %+v", name, e)
		}
	}
	b.tc.Sandbox = nil
	if e := b.git(t, "git_commit", `{"message":"x"}`); e.ErrorCode != tools.CodeSandboxUnavailable {
		t.Errorf("%+v", e)
	}
}

func TestLongDiffsAreCutAndKeptInHome(t *testing.T) {
	b := newRepo(t, sandbox.Auto, messages.Trust_FULL)
	write(t, filepath.Join(b.root, "a.txt"), strings.Repeat("a line\n", 20_000))
	e := b.git(t, "git_diff", `{}`)
	if !e.Truncated || len(e.Content) > 31_000 || !strings.Contains(e.Content, `"spill/exe_1"`) {
		t.Errorf("%d bytes, %v", len(e.Content), e.Truncated)
	}
	write(t, filepath.Join(b.root, "a.txt"), strings.Repeat("a line\n", 1_000_000))
	if e := b.git(t, "git_diff", `{}`); !e.OK || !strings.Contains(e.Content, "[cut: git printed more than 2 MiB") {
		t.Errorf("%.200s %s", e.Content, e.ErrorCode)
	}
	write(t, filepath.Join(b.root, "a.txt"), "\x1b]52;c;ZXZpbA==\x07\n")
	if e := b.git(t, "git_diff", `{}`); strings.ContainsAny(e.Content, "\x1b\x07") {
		t.Errorf("%q", e.Content)
	}
}
