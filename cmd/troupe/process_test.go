package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// machine is an empty home with the program in it.
type machine struct {
	t       *testing.T
	program string
	home    string
	env     []string // added to that of its commands
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("signals and shells of this test are those of unix")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m := &machine{t: t, program: filepath.Join(dir, "bin", "troupe"), home: filepath.Join(dir, "home")}
	for _, d := range []string{filepath.Dir(m.program), m.home, m.folder("a"), m.folder("b")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(self, m.program); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) folder(name string) string { return filepath.Join(filepath.Dir(m.home), name) }

func (m *machine) write(name, text string) string {
	m.t.Helper()
	path := m.folder(name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *machine) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), m.program, args...)
	cmd.Dir = filepath.Dir(m.home)
	cmd.Env = []string{"HOME=" + m.home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Env = append(cmd.Env, m.env...)
	return cmd
}

// run runs a command to its end.
func (m *machine) run(args ...string) (code int, out, err string) {
	m.t.Helper()
	cmd := m.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return exitOf(m.t, cmd.Run()), stdout.String(), stderr.String()
}

func exitOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return -1
}

// said is what a command has said so far; it may go on while it is read.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// running is a command under way.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *bufio.Reader
	stderr said
}

func (m *machine) start(args ...string) *running {
	m.t.Helper()
	r := &running{t: m.t, cmd: m.command(args...)}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	r.cmd.Stderr = &r.stderr
	r.out = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	return r
}

// waitFor reads stdout up to a line.
func (r *running) waitFor(line string) {
	r.t.Helper()
	for {
		got, err := r.out.ReadString('\n')
		if strings.TrimSpace(got) == line {
			return
		}
		if err != nil {
			_ = r.cmd.Wait() // it failed; stderr says why
			r.t.Fatalf("stdout ended before %q: %v\n%s", line, err, r.stderr.String())
		}
	}
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// wait reads the rest and gives the exit code.
func (r *running) wait() (code int, rest string) {
	r.t.Helper()
	out, err := io.ReadAll(r.out)
	if err != nil {
		r.t.Fatal(err)
	}
	return exitOf(r.t, r.cmd.Wait()), string(out)
}

// onlySession is the id of the one session of a machine.
func (m *machine) onlySession() string {
	m.t.Helper()
	code, out, stderr := m.run("ls", "sessions", "-o", "json")
	var list []messages.SessionJSON
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list) != 1 {
		m.t.Fatalf("ls sessions ended with %d, %v: %s%s", code, err, out, stderr)
	}
	return list[0].ID
}

// blocking is a script whose first step runs a command that lasts until the folder has a file `go`; the
// second step answers.
const blocking = `
name: blocking
rules:
  - match: '^work'
    steps:
      - text: I begin.
        tool_calls: [{name: exec, arguments: {command: 'touch begun; while test ! -e go; do sleep 0.05; done # MARK'}}]
      - text: I have finished.
`

// begun waits until the command of a blocking turn runs.
func (m *machine) begun(folder string) {
	m.t.Helper()
	m.eventually("the command does not begin", func() bool {
		_, err := os.Stat(filepath.Join(m.folder(folder), "begun"))
		return err == nil
	})
}

func (m *machine) eventually(what string, holds func() bool) {
	m.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			m.t.Fatal(what)
		}
	}
}

// processes lists those whose command line has a mark.
func processes(t *testing.T, mark string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range all {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(mark)) {
			found = append(found, f)
		}
	}
	return found
}

func TestCtrlCKeepsTheSessionAndSaysHowToGoOn(t *testing.T) {
	m := newMachine(t)
	mark := messages.NewID("mark_")
	script := m.write("s.yaml", strings.ReplaceAll(blocking, "MARK", mark))
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I begin.")
	m.begun("a")
	if runtime.GOOS == "linux" && len(processes(t, mark)) == 0 {
		t.Fatal("the command is not seen: its absence would show nothing")
	}
	r.signal(os.Interrupt)
	if code, _ := r.wait(); code != exitInterrupted {
		t.Errorf("ended with %d: %s", code, r.stderr.String())
	}
	id := m.onlySession()
	if want := "troupe run -s " + id; !strings.Contains(r.stderr.String(), want) {
		t.Errorf("stderr does not say %q:\n%s", want, r.stderr.String())
	}
	if runtime.GOOS == "linux" {
		m.eventually("a process of the command survives", func() bool { return len(processes(t, mark)) == 0 })
	}
	code, out, stderr := m.run("run", "-s", id)
	if code != exitDone || !strings.Contains(out, "I have finished.") {
		t.Errorf("going on ended with %d: %s%s", code, out, stderr)
	}
	if strings.Count(out, "I begin.") != 1 {
		t.Errorf("what was answered before is not shown once: %s", out)
	}
}

func TestKilledRunGoesOnFromItsJournal(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I begin.")
	m.begun("a")
	r.signal(syscall.SIGKILL)
	r.wait()
	id := m.onlySession()
	if code, out, _ := m.run("ls", "calls", "-o", "json"); code != 0 || !strings.Contains(out, `"executing"`) {
		t.Errorf("the open call is not listed: %d %s", code, out)
	}
	code, out, stderr := m.run("run", "-s", id)
	if code != exitDone || !strings.HasSuffix(out, "I have finished.\n") {
		t.Errorf("going on ended with %d: %s%s", code, out, stderr)
	}
	if !strings.Contains(stderr, "outcome of this call is unknown") {
		t.Errorf("the command that may have run is not reported as such: %s", stderr)
	}
	if code, out, _ := m.run("verify"); code != exitDone || !strings.Contains(out, " 0 findings") {
		t.Errorf("verify ended with %d: %s", code, out)
	}
}

func TestSecondRunWorksInTheProcessOfTheFirst(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	first := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	first.waitFor("I begin.")
	m.begun("a")
	code, out, stderr := m.run("run", "hello", "-C", "b", "-m", "scripted/echo")
	if code != exitDone || out != "You said: hello\n" {
		t.Errorf("beside the holder: %d: %s%s", code, out, stderr)
	}
	if code, out, _ := m.run("ls", "workers", "--state", "using_tool", "-o", "json"); code != 0 || !strings.Contains(out, "wrk_") {
		t.Errorf("the holder does not say what its worker does: %d %s", code, out)
	}
	m.write("a/go", "")
	if code, out := first.wait(); code != exitDone || !strings.Contains(out, "I have finished.") {
		t.Errorf("the first ended with %d: %s", code, out)
	}
	if code, out, _ := m.run("verify", "-o", "json"); code != exitDone || !strings.Contains(out, `"findings": []`) {
		t.Errorf("verify ended with %d: %s", code, out)
	}
}

func TestHolderStaysUntilAttachedTurnsEnd(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	first := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	first.waitFor("I begin.")
	second := m.start("run", "work", "-C", "b", "-m", "scripted/"+script, "--trust", "full")
	second.waitFor("I begin.")
	m.begun("b")
	m.write("a/go", "")
	first.waitFor("I have finished.")
	m.write("b/go", "")
	if code, out := second.wait(); code != exitDone || !strings.Contains(out, "I have finished.") {
		t.Errorf("the attached run ended with %d: %s%s", code, out, second.stderr.String())
	}
	if strings.Contains(second.stderr.String(), "is gone") {
		t.Errorf("the holder left before: %s", second.stderr.String())
	}
	if code, _ := first.wait(); code != exitDone {
		t.Errorf("the holder ended with %d: %s", code, first.stderr.String())
	}
}

func TestTurnGoesOnWhenItsHolderIsStopped(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	holder := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	holder.waitFor("I begin.")
	client := m.start("run", "work", "-C", "b", "-m", "scripted/"+script, "--trust", "full")
	client.waitFor("I begin.")
	m.begun("b")
	holder.signal(os.Interrupt)
	if code, _ := holder.wait(); code != exitInterrupted {
		t.Errorf("the holder ended with %d: %s", code, holder.stderr.String())
	}
	code, out := client.wait()
	if code != exitDone || !strings.Contains(out, "I have finished.") {
		t.Errorf("the client ended with %d: %s%s", code, out, client.stderr.String())
	}
	if code, out, _ := m.run("verify"); code != exitDone {
		t.Errorf("verify ended with %d: %s", code, out)
	}
}

func TestInterruptedClientLeavesNothingRunning(t *testing.T) {
	m := newMachine(t)
	mark := messages.NewID("mark_")
	script := m.write("s.yaml", blocking)
	other := m.write("t.yaml", strings.ReplaceAll(blocking, "MARK", mark))
	holder := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	holder.waitFor("I begin.")
	client := m.start("run", "work", "-C", "b", "-m", "scripted/"+other, "--trust", "full")
	client.waitFor("I begin.")
	m.begun("b")
	client.signal(os.Interrupt)
	if code, _ := client.wait(); code != exitInterrupted {
		t.Errorf("the client ended with %d: %s", code, client.stderr.String())
	}
	if runtime.GOOS == "linux" {
		m.eventually("its command goes on in the holder", func() bool { return len(processes(t, mark)) == 0 })
	}
	m.write("a/go", "")
	if code, out := holder.wait(); code != exitDone {
		t.Errorf("the holder ended with %d: %s%s", code, out, holder.stderr.String())
	}
}

func TestRunOnATerminalStreamsAndColours(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	m.write("a/go", "")
	for _, c := range []struct {
		env     string
		escapes bool
	}{{"TERM=xterm", true}, {"NO_COLOR=1", false}} {
		cmd := m.command("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
		cmd.Env = append(cmd.Env, c.env)
		tty, err := pty.Start(cmd)
		if err != nil {
			t.Skipf("no terminal can be made here: %v", err)
		}
		out, _ := io.ReadAll(tty) // on Linux it ends with an error when the other side is closed
		if code := exitOf(t, cmd.Wait()); code != exitDone {
			t.Errorf("%s: ended with %d: %s", c.env, code, out)
		}
		if err := tty.Close(); err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.ReplaceAll(string(out), "\r\n", "\n"), "\n")
		var order []string
		for _, l := range lines {
			for _, want := range []string{"I begin.", "exec(", "I have finished.", "troupe: session "} {
				if strings.HasPrefix(l, want) {
					order = append(order, want)
				}
			}
		}
		if got := strings.Join(order, "|"); got != "I begin.|exec(|I have finished.|troupe: session " {
			t.Errorf("%s: lines in the wrong order or place: %s\n%s", c.env, got, out)
		}
		if strings.Contains(string(out), "\x1b") != c.escapes {
			t.Errorf("%s: escape bytes are wrong: %q", c.env, out)
		}
	}
}

func TestTerminalIsAskedOnceAboutAFolder(t *testing.T) {
	const question = "May agents run every tool in"
	m := newMachine(t)
	code, shown := m.typed([]string{"n\n"}, "run", "hello", "-C", "a", "-m", "scripted/echo")
	if code != exitDone || !strings.Contains(shown, question) || !strings.Contains(shown, "is restricted") {
		t.Errorf("no: %d %s", code, shown)
	}
	code, shown = m.typed([]string{"y\n"}, "run", "hello", "-C", "a", "-m", "scripted/echo")
	if code != exitDone || strings.Contains(shown, question) || !strings.Contains(shown, "is restricted") {
		t.Errorf("asked again: %d %s", code, shown)
	}
	code, shown = m.typed([]string{"y\n"}, "run", "hello", "-C", "b", "-m", "scripted/echo")
	if code != exitDone || !strings.Contains(shown, question) || !strings.Contains(shown, "is trusted (full)") {
		t.Errorf("yes: %d %s", code, shown)
	}
	if code, out, _ := m.run("trust", "ls"); code != exitDone || !strings.Contains(out, m.folder("b")) || strings.Contains(out, m.folder("a")+" ") {
		t.Errorf("trust ls: %d %s", code, out)
	}
	if code, _, stderr := m.run("run", "hello", "-C", m.home, "-m", "scripted/echo"); code != exitDone || strings.Contains(stderr, question) {
		t.Errorf("asked off a terminal: %d %s", code, stderr)
	}
}

func TestHeldDirectoryThatNobodyServesIsNamedWithItsHolder(t *testing.T) {
	m := newMachine(t)
	data := m.folder("data")
	s, err := badger.Open(t.Context(), badger.Options{Dir: troupe.StoreDir(data), Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	code, out, stderr := m.run("--data", data, "ls", "sessions")
	if code != exitAgain || out != "" {
		t.Errorf("ended with %d: %s", code, out)
	}
	want := []string{data, "flag --data", "try again"}
	if runtime.GOOS == "linux" {
		want = append(want, "process "+strconv.Itoa(os.Getpid()))
	}
	for _, w := range want {
		if !strings.Contains(stderr, w) {
			t.Errorf("%q is not named: %s", w, stderr)
		}
	}
}
