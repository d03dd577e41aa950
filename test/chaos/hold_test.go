package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// gates is a script with a command that lasts until the folder has a file `go`.
const gates = `
name: gates
rules:
  - match: '^block (\w+)$'
    steps:
      - text: I begin.
        tool_calls: [{name: exec, arguments: {command: 'echo ${1} >> effects.log; touch begun-${1}; while test ! -e go; do sleep 0.02; done'}}]
      - text: I have finished ${1}.
  - reply: {text: 'You said ${user}'}
`

// blocked starts a run whose command makes a file, and then does not end.
func (m *machine) blocked(name string, args ...string) *running {
	m.t.Helper()
	r := m.start(args...)
	m.eventually("the command of "+name+" does not begin", func() bool { return m.exists(name) })
	return r
}

func TestTwoRunsOfOneSessionTakeTurns(t *testing.T) {
	m := newMachine(t)
	srv := m.serve(gates, script.ServeOptions{})
	m.want(0, prompt("hello")...)
	id := m.session()
	first := m.blocked("begun-one", "run", "-s", id, "block one")
	second := m.start("run", "-s", id, "block two")
	third := m.start("run", "-s", id, "hello again")
	m.eventually("the others are not accepted", func() bool {
		w := list[[]messages.WorkerJSON](m, "ls", "workers", "--session", id)
		return len(w) == 1 && w[0].Staged == 2
	})
	if m.exists("begun-two") {
		t.Error("the second turn runs beside the first")
	}
	m.write("go", "")
	for _, c := range []struct {
		r    *running
		says string
	}{{first, "I have finished one."}, {second, "I have finished two."}, {third, "You said hello again"}} {
		if e := c.r.wait(); e.code != 0 || !strings.Contains(e.out, c.says) {
			t.Errorf("want %q: %s", c.says, e)
		}
	}
	if got := m.read("effects.log"); got != "one\ntwo\n" {
		t.Errorf("the commands ran as %q", got)
	}
	if s := list[[]messages.SessionJSON](m, "ls", "sessions"); s[0].Turns != 4 {
		t.Errorf("there are %d turns", s[0].Turns)
	}
	if s := m.stats(srv); s.Refused > 0 {
		t.Errorf("the model refused requests: %+v", s)
	}
	m.sound(id)
}

func TestClientsOfAKilledHolderGoOn(t *testing.T) {
	m := newMachine(t)
	srv := m.serve(gates, script.ServeOptions{})
	m.want(0, prompt("hello")...)
	id := m.session()
	holder := m.blocked("begun-one", "run", "-s", id, "block one")
	same := m.start("run", "-s", id, "block two")
	// In a folder of its own: in the same one it would wait for the first turn's lease.
	if err := os.Mkdir(m.folder+"/../else", 0o755); err != nil {
		m.t.Fatal(err)
	}
	other := m.blocked("../else/begun-three", prompt("block three", "-C", "../else")...)
	m.eventually("the second turn is not accepted", func() bool {
		w := list[[]messages.WorkerJSON](m, "ls", "workers", "--session", id)
		return len(w) == 1 && w[0].Staged == 1
	})
	holder.kill()
	m.write("go", "")
	m.write("../else/go", "")
	if e := same.wait(); e.code != 0 || !strings.Contains(e.out, "I have finished two.") {
		t.Errorf("the client in the same session %s", e)
	}
	if e := other.wait(); e.code != 0 || !strings.Contains(e.out, "I have finished three.") {
		t.Errorf("the client in another session %s", e)
	}
	if got := m.read("effects.log") + m.read("../else/effects.log"); got != "one\ntwo\nthree\n" {
		t.Errorf("the commands ran as %q", got)
	}
	if s := m.stats(srv); s.Refused > 0 {
		t.Errorf("the model refused requests: %+v", s)
	}
	m.sound(id)
}

func TestHolderThatDoesNotAnswerIsNamed(t *testing.T) {
	m := newMachine(t)
	m.serve(gates, script.ServeOptions{})
	holder := m.blocked("begun-one", prompt("block one")...)
	holder.signal(syscall.SIGSTOP)
	for _, args := range [][]string{prompt("hello"), {"ls", "sessions"}} {
		e := m.run(args...)
		if e.code != 75 || !strings.Contains(e.err, fmt.Sprintf("process %d", holder.cmd.Process.Pid)) || !strings.Contains(e.err, m.data()) {
			t.Errorf("%q: want 75 with pid %d and folder: %s", args, holder.cmd.Process.Pid, e)
		}
	}
	holder.signal(syscall.SIGCONT)
	m.write("go", "")
	if e := holder.wait(); e.code != 0 {
		t.Errorf("after that the holder %s", e)
	}
}

// TestWhatADeadHolderLeavesIsNoObstacle: a socket on which nobody answers, and lock files that name a
// process which lives, but is another one that got the number since.
func TestWhatADeadHolderLeavesIsNoObstacle(t *testing.T) {
	m := newMachine(t)
	m.serve(gates, script.ServeOptions{})
	m.blocked("begun-one", prompt("block one")...).kill()
	socket := filepath.Join(m.data(), "troupe.sock")
	if _, err := os.Stat(socket); err != nil {
		t.Fatalf("the dead holder left no socket: %v", err)
	}
	locks, err := filepath.Glob(m.data() + "/store/*lock")
	if err != nil || len(locks) == 0 {
		t.Fatalf("the dead holder left no lock: %v", err)
	}
	for _, f := range append(locks, m.data()+"/store/db/LOCK") {
		if err := os.WriteFile(f, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id := m.session()
	m.write("go", "")
	if e := m.run("run", "-s", id); e.code != 0 || !strings.Contains(e.out, "I have finished one.") {
		t.Errorf("going on %s", e)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is still there")
	}
	m.sound(id)
}

func TestUnusableDataDirectoriesAreRefusedByName(t *testing.T) {
	m := newMachine(t)
	m.serve(gates, script.ServeOptions{})
	file := m.write("file", "not a folder")
	refused := func(code int, dir string, says ...string) {
		t.Helper()
		for _, args := range [][]string{prompt("hello"), {"ls", "sessions"}} {
			e := m.run(append(args, "--data", dir)...)
			said := strings.Contains(e.err, dir) && !strings.Contains(e.err, "goroutine ")
			for _, s := range says {
				said = said && strings.Contains(e.err, s)
			}
			if e.code != code || !said {
				t.Errorf("%q in %s: want %d and %q: %s", args[0], dir, code, says, e)
			}
		}
	}
	refused(74, file, "not a directory")
	refused(74, filepath.Join(file, "below"), "not a directory")
	if m.read("file") != "not a folder" {
		t.Error("the file has changed")
	}
	used := filepath.Join(m.root, "used")
	if err := os.Mkdir(used, 0o700); err != nil {
		t.Fatal(err)
	}
	unmount := mount(t, used, "size=600m")
	m.want(0, prompt("hello", "--data", used)...)
	before := list[[]messages.SessionJSON](m, "ls", "sessions", "--data", used)
	if err := syscall.Mount("none", used, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	refused(74, used, "read-only file system")
	if err := syscall.Mount("none", used, "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	if after := list[[]messages.SessionJSON](m, "ls", "sessions", "--data", used); len(after) != 1 || after[0].ID != before[0].ID {
		t.Errorf("afterwards there are %v, before %v", after, before)
	}
	unmount()
}

func TestFullDiskRefusesTurnsAndKeepsWhatThereIs(t *testing.T) {
	m := newMachine(t)
	m.serve(gates, script.ServeOptions{})
	small := filepath.Join(m.root, "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	defer mount(t, small, "size=600m")()
	data := filepath.Join(small, "data")
	e := m.want(0, prompt("hello", "--data", data, "-o", "json")...)
	fill := filepath.Join(small, "fill")
	if err := os.WriteFile(fill, make([]byte, 500<<20), 0o600); err != nil {
		t.Logf("the disk is full: %v", err)
	}
	sessions := list[[]messages.SessionJSON](m, "ls", "sessions", "--data", data)
	if len(sessions) != 1 {
		t.Fatalf("with a full disk there are %v; before: %s", sessions, e)
	}
	for _, args := range [][]string{prompt("hello", "--data", data), {"run", "-s", sessions[0].ID, "again", "--data", data}} {
		if e := m.run(args...); e.code != 75 && e.code != 74 || !strings.Contains(e.err, "not enough free disk space") {
			t.Errorf("%q: %s", args, e)
		}
	}
	m.want(0, "run", "-s", sessions[0].ID, "--data", data)
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	m.want(0, "run", "-s", sessions[0].ID, "again", "--data", data)
	m.want(0, "verify", "--data", data)
}

// mount makes a small file system of a folder; unmount may be left to the end of the test.
func mount(t *testing.T, dir, options string) (unmount func()) {
	t.Helper()
	if err := syscall.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	done := false
	unmount = func() {
		if !done {
			done = true
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(unmount)
	return unmount
}
