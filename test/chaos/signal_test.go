package chaos

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/model/script"
)

// generous bounds what should take less than a second, on a machine that may be busy.
const generous = 10 * time.Second

// phases is a script in which each prompt stays in another phase of a turn until the model is told
// otherwise, or until the folder has a file `go`.
const phases = `
name: phases
rules:
  - match: '^wait$'
    reply: {text: 'at last', delay: PAUSE}
  - match: '^stream$'
    reply: {text: 'one two three four five six seven eight nine ten', chunk_size: 4, chunk_delay: PAUSE}
  - match: '^command$'
    steps:
      - text: I begin.
        tool_calls: [{name: exec, arguments: {command: 'COMMAND'}}]
      - text: at last
`

// stubborn is a command that does all it can to survive: it ignores signals, and leaves a process in a
// session of its own, without an environment, that does not end.
const stubborn = `trap "" INT TERM HUP; touch begun; env -i setsid -f tail -f "$PWD/begun"; sleep 3600 & while test ! -e go; do sleep 0.02; done; kill %1`

// phase is a place where a turn can be stopped.
type phase struct {
	name string
	// reached tells whether a run is there; asked is how many requests the model has.
	reached func(m *machine, r *running, asked int64) bool
	says    string // what the turn ends with when it goes on
}

func turnPhases() []phase {
	return []phase{
		{"wait", func(_ *machine, _ *running, asked int64) bool { return asked > 0 }, "at last"},
		{"stream", func(_ *machine, r *running, _ int64) bool { return strings.Contains(r.out.String(), "one") }, "nine ten"},
		{"command", func(m *machine, _ *running, _ int64) bool {
			all := strings.Join(m.processes(), "\n")
			return strings.Contains(all, "sleep 3600") && strings.Contains(all, "tail -f "+m.folder)
		}, "at last"},
	}
}

// in starts a run, waits until it is in the phase, and makes the model quick for what follows.
func (p phase) in(t *testing.T) (*machine, *running) {
	t.Helper()
	m := newMachine(t)
	slow := "1h"
	if p.name == "stream" {
		slow = "300ms"
	}
	text := strings.ReplaceAll(phases, "COMMAND", stubborn)
	srv := m.serve(strings.ReplaceAll(text, "PAUSE", slow), script.ServeOptions{})
	r := m.start(prompt(p.name)...)
	m.eventually("the phase is not reached", func() bool { return p.reached(m, r, m.stats(srv).Requests) })
	m.env = nil
	m.serve(strings.ReplaceAll(text, "PAUSE", "1ms"), script.ServeOptions{})
	return m, r
}

func TestInterruptStopsInEachPhaseAndTheSessionGoesOn(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, p := range turnPhases() {
			t.Run(p.name+" "+s.String(), func(t *testing.T) {
				t.Parallel()
				m, r := p.in(t)
				sent := time.Now()
				r.signal(s)
				e := r.wait()
				took := time.Since(sent)
				t.Logf("stopped after %v", took)
				if took > generous {
					t.Errorf("it took %v to stop", took)
				}
				m.eventually("something of it survives", func() bool { return len(m.processes()) == 0 })
				id := m.session()
				if e.code != 130 || id == "" || !strings.Contains(e.err, "troupe run -s "+id) {
					t.Fatalf("session %q: want 130 and the way to go on: %s", id, e)
				}
				m.write("go", "")
				if e := m.run("run", "-s", id); e.code != 0 || !strings.Contains(e.out, p.says) {
					t.Errorf("going on %s", e)
				}
				m.sound(id)
			})
		}
	}
}

func TestKilledRunLeavesNoProcessBehind(t *testing.T) {
	for _, p := range turnPhases() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			m, r := p.in(t)
			r.kill()
			m.eventually("something of it survives", func() bool { return len(m.processes()) == 0 })
			m.write("go", "")
			id := m.session()
			if e := m.run("run", "-s", id); e.code != 0 || !strings.Contains(e.out, p.says) {
				t.Errorf("going on %s", e)
			}
			m.sound(id)
		})
	}
}

// TestSecondInterruptLeavesAtOnce gives the first one something to wait for: a program that is stopped
// by the second signal ends by it, or has ended before.
func TestSecondInterruptLeavesAtOnce(t *testing.T) {
	for _, p := range turnPhases() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			m, r := p.in(t)
			sent := time.Now()
			m.eventually("it does not leave", func() bool { // one that comes soon after the first is that once more
				r.signal(syscall.SIGINT)
				return ends(r.cmd.Process.Pid)
			})
			e := r.wait()
			if took := time.Since(sent); took > generous {
				t.Errorf("it took %v to leave", took)
			}
			if state, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); e.code != 130 && (!ok || state.Signal() != syscall.SIGINT) {
				t.Errorf("the run %s", e)
			}
			m.eventually("something of it survives", func() bool { return len(m.processes()) == 0 })
			m.write("go", "")
			id := m.session()
			if e := m.run("run", "-s", id); e.code != 0 {
				t.Errorf("going on %s", e)
			}
			m.sound(id)
		})
	}
}

func TestInterruptBeforeAnythingBeganEndsToo(t *testing.T) {
	m := newMachine(t)
	m.serve(gates, script.ServeOptions{})
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r := &running{m: m, cmd: m.command(prompt("-")...), out: &safeBuffer{}, err: &safeBuffer{}}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = in, r.out, r.err
	defer in.Close()
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	m.eventually("it does not read the prompt", func() bool {
		left, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ)
		return err == nil && left == 0
	})
	r.signal(syscall.SIGINT) // while it reads the prompt
	if e := r.wait(); e.code != 130 {
		t.Errorf("want 130: %s", e)
	}
	if id := m.session(); id != "" {
		t.Errorf("there is a session %s", id)
	}
}
