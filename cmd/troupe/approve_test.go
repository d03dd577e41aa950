package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

const asking = `
name: asking
rules:
  - match: '^work'
    steps:
      - text: I begin.
        tool_calls:
          - {name: write_file, arguments: {path: a, content: "one\n"}}
          - {name: write_file, arguments: {path: b, content: "two\n"}}
      - text: I have finished.
`

// typed runs a command on a terminal, and types each answer when its question stands there.
func (m *machine) typed(answers []string, args ...string) (code int, shown string) {
	m.t.Helper()
	return m.typedAfter("", answers, args...)
}

// typedAfter is typed by somebody who begins to type before anything is asked.
func (m *machine) typedAfter(early string, answers []string, args ...string) (code int, shown string) {
	m.t.Helper()
	cmd := m.command(args...)
	cmd.Env = append(cmd.Env, "NO_COLOR=1")
	begin := func() {}
	if early != "" {
		begin = m.held(cmd)
	}
	tty, err := pty.Start(cmd)
	if err != nil {
		m.t.Skipf("no terminal can be made here: %v", err)
	}
	defer tty.Close()
	m.echoed(tty, early)
	begin()
	var all strings.Builder
	given := 0 // lines of the turn may follow a question
	for b := make([]byte, 1024); ; {
		n, err := tty.Read(b)
		all.Write(b[:n])
		if given < len(answers) && strings.Count(all.String(), "cancel the turn] ")+strings.Count(all.String(), "May agents run") > given {
			if _, err := io.WriteString(tty, answers[given]); err != nil {
				m.t.Fatal(err)
			}
			given++
		}
		if err != nil { // on Linux it ends with an error when the other side is closed
			break
		}
	}
	return exitOf(m.t, cmd.Wait()), all.String()
}

// held has a shell become the program of a command when it may begin.
func (m *machine) held(cmd *exec.Cmd) (begin func()) {
	m.t.Helper()
	wait, gate, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _, _ = wait.Close(), gate.Close() })
	shell, err := exec.LookPath("sh")
	if err != nil {
		m.t.Skipf("there is no shell here that waits: %v", err)
	}
	cmd.Args = append([]string{"sh", "-c", `read begin <&3; exec "$@" 3<&-`, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.ExtraFiles = shell, []*os.File{wait}
	return func() { _ = gate.Close() }
}

// echoed types lines, and returns when the terminal has them: what is written to its other side comes a moment later.
func (m *machine) echoed(tty *os.File, lines string) {
	m.t.Helper()
	if _, err := io.WriteString(tty, lines); err != nil {
		m.t.Fatal(err)
	}
	for b, left := make([]byte, 1), strings.Count(lines, "\n"); left > 0; {
		if _, err := tty.Read(b); err != nil {
			m.t.Fatal(err)
		}
		if b[0] == '\n' {
			left--
		}
	}
}

func (m *machine) has(names string) bool {
	for _, n := range []string{"a", "b"} {
		_, err := os.Stat(filepath.Join(m.folder("a"), n))
		if (err == nil) != strings.Contains(names, n) {
			return false
		}
	}
	return true
}

func TestRunOnATerminalAsksForEachCall(t *testing.T) {
	for _, c := range []struct {
		answers []string
		code    int
		files   string
	}{
		{[]string{"y\n", "n not this\n"}, exitDone, "a"},
		{[]string{"what\n", "y\n", "y\n"}, exitDone, "ab"},
		{[]string{"c\n"}, exitInterrupted, ""},
		{[]string{"\x03"}, exitInterrupted, ""}, // Ctrl-C
	} {
		m := newMachine(t)
		script := m.write("s.yaml", asking)
		code, shown := m.typed(c.answers, "run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "restricted")
		if code != c.code || !m.has(c.files) || !strings.Contains(shown, "+one") {
			t.Errorf("%v: %d, files %q wanted\n%s", c.answers, code, c.files, shown)
		}
		if code, out, stderr := m.run("ls", "approvals", "-o", "json"); code != exitDone || strings.TrimSpace(out) != "[]" {
			t.Errorf("%v: something waits still: %d %s%s", c.answers, code, out, stderr)
		}
	}
}

func TestWhatIsTypedBeforeTheQuestionIsNoAnswer(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", asking)
	code, shown := m.typedAfter("y\ny\ny\n", []string{"n\n", "n\n"}, "run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "restricted")
	if code != exitDone || !m.has("") {
		t.Errorf("%d, and something was written\n%s", code, shown)
	}
	m = newMachine(t)
	code, shown = m.typedAfter("y\n", []string{"n\n"}, "run", "hello", "-C", "a", "-m", "scripted/echo")
	if code != exitDone || !strings.Contains(shown, "is restricted") {
		t.Errorf("%d, and the folder is trusted\n%s", code, shown)
	}
}

func TestApprovalsAreListedAndAnsweredByCommand(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", asking)
	// who says nothing leaves the questions where they are
	code, shown := m.typed([]string{"\n", "\n", "\n"}, "run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "restricted")
	if code != 75 || !strings.Contains(shown, "waits for a person") || !m.has("") {
		t.Fatalf("%d %s", code, shown)
	}
	var ids []string
	code, out, stderr := m.run("ls", "approvals")
	for _, word := range strings.Fields(out) {
		if strings.HasPrefix(word, "apr_") {
			ids = append(ids, word)
		}
	}
	if code != exitDone || len(ids) != 2 || !strings.Contains(out, "pending") {
		t.Fatalf("%d %s%s", code, out, stderr)
	}
	if code, out, stderr := m.run("approve", ids[0]); code != exitDone || !strings.Contains(out, ids[0]+": approved") || !strings.Contains(stderr, "+") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	if code, out, stderr := m.run("deny", ids[1], "--reason", "no"); code != exitDone || !strings.Contains(out, ids[1]+": rejected") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	if code, _, stderr := m.run("approve", ids[1]); code == exitDone || !strings.Contains(stderr, "answered already: rejected") {
		t.Errorf("a second answer: %d %s", code, stderr)
	}
	if code, out, stderr := m.run("ls", "approvals", "-o", "json"); code != exitDone || strings.TrimSpace(out) != "[]" {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	if code, out, stderr := m.run("run", "-s", m.onlySession()); code != exitDone || !strings.Contains(out, "I have finished.") || m.has("") || m.has("ab") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	if code, _, stderr := m.run("approve", "apr_none"); code != exitMissing {
		t.Errorf("%d %s", code, stderr)
	}
}

const remembering = `
name: remembering
rules:
  - match: '^work'
    steps:
      - text: I begin.
        tool_calls:
          - {name: read_file, arguments: {path: there}}
      - text: I write.
        tool_calls:
          - {name: write_file, arguments: {path: a, content: "one\n"}}
      - text: I have finished.
`

func TestRunOnATerminalRemembers(t *testing.T) {
	m := newMachine(t)
	if err := os.WriteFile(filepath.Join(m.folder("a"), "there"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := m.write("s.yaml", remembering)
	code, shown := m.typed([]string{"s\n", "agent\n"}, "run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "restricted")
	reads, exact := strings.Index(shown, "s: approve, and all reads for this session"), strings.Index(shown, "read_file(there) for this session")
	if code != exitDone || !m.has("a") || reads < 0 || exact < reads || !strings.Contains(shown, "write_file(a) in local:") {
		t.Fatalf("%d\n%s", code, shown)
	}
	if err := os.Remove(filepath.Join(m.folder("a"), "a")); err != nil {
		t.Fatal(err)
	}
	// another session of the agent asks about the read, and not about the file
	code, shown = m.typed([]string{"e\n"}, "run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "restricted")
	if code != exitDone || !m.has("a") || strings.Count(shown, "Run it?") != 1 {
		t.Fatalf("%d\n%s", code, shown)
	}
	code, out, stderr := m.run("rules", "ls")
	var ids []string
	for _, word := range strings.Fields(out) {
		if strings.HasPrefix(word, "rul_") {
			ids = append(ids, word)
		}
	}
	if code != exitDone || len(ids) != 3 || !strings.Contains(out, "@read") || !strings.Contains(out, "agent default") || !strings.Contains(out, "read_file(there)") {
		t.Fatalf("%d %s%s", code, out, stderr)
	}
	if code, out, stderr := m.run(append([]string{"rules", "rm"}, ids...)...); code != exitDone || strings.Count(out, ": revoked") != 3 {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	if code, out, _ := m.run("rules", "ls", "-o", "json"); code != exitDone || strings.TrimSpace(out) != "[]" {
		t.Errorf("%d %s", code, out)
	}
	if code, _, stderr := m.run("rules", "rm", ids[0]); code != exitMissing || !strings.Contains(stderr, "there is no rule") {
		t.Errorf("%d %s", code, stderr)
	}
}

func TestApproveWithAScopeIsRemembered(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", asking)
	if code, out, _ := m.run("rules", "ls", "-o", "json"); code != exitDone || strings.TrimSpace(out) != "[]" {
		t.Errorf("where nothing was kept yet: %d %s", code, out)
	}
	m.typed([]string{"\n", "\n", "\n"}, "run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "restricted")
	var ids []string
	_, out, _ := m.run("ls", "approvals")
	for _, word := range strings.Fields(out) {
		if strings.HasPrefix(word, "apr_") {
			ids = append(ids, word)
		}
	}
	if len(ids) != 2 {
		t.Fatal(out)
	}
	if code, _, stderr := m.run("approve", ids[0], "--scope", "sometimes"); code != exitUsage || !strings.Contains(stderr, "one of once, session, agent, always") {
		t.Errorf("%d %s", code, stderr)
	}
	if code, out, stderr := m.run("approve", ids[0], "--scope", "always"); code != exitDone || !strings.Contains(out, "remembered: always") || !strings.Contains(stderr, "remembered (always), in local:") || !strings.Contains(stderr, ": write_file(a)") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	if code, out, stderr := m.run("deny", ids[1], "--scope", "session"); code != exitDone || !strings.Contains(stderr, ": deny write_file(b)") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	// A lone call knows what was remembered for every agent, and nothing of a session's own.
	for path, want := range map[string]int{"a": exitDone, "b": exitFailed, "c": exitFailed} {
		if code, out, stderr := m.run("tool", "run", "write_file", "--args", `{"path":"`+path+`","content":"lone"}`, "-C", "a", "--trust", "restricted"); code != want {
			t.Errorf("%s: %d %s%s", path, code, out, stderr)
		}
	}
	if err := os.Remove(filepath.Join(m.folder("a"), "a")); err != nil {
		t.Fatal(err)
	}
	_, out, _ = m.run("rules", "ls", "-o", "json")
	for _, want := range []string{`"rule": "write_file(a)"`, `"scope": "always"`, `"rule": "deny write_file(b)"`, `"state": "in_force"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	if code, out, stderr := m.run("run", "-s", m.onlySession()); code != exitDone || !strings.Contains(out, "I have finished.") || m.has("") || m.has("ab") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
}
