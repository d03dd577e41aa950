package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// TestWhatAProcessDiedOfIsSaidByTheNextOne ends a holder in the middle of a turn by the signal that a disk without room sends for a mapped page, and one
// by the signal of the Go runtime's own crashes. A kill leaves nothing to be said.
func TestWhatAProcessDiedOfIsSaidByTheNextOne(t *testing.T) {
	for _, x := range []struct {
		name   string
		signal syscall.Signal
		says   string
	}{
		{"the disk", syscall.SIGBUS, "was ended by the disk"},
		{"a crash", syscall.SIGQUIT, "crashed (SIGQUIT: quit)"},
		{"a kill", syscall.SIGKILL, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := newMachine(t)
			m.serve(gates, script.ServeOptions{})
			m.want(0, prompt("hello")...)
			id := m.session()
			r := m.blocked("begun-one", "run", "-s", id, "block one")
			r.signal(x.signal)
			if e := r.wait(); e.code == 0 {
				t.Fatalf("it goes on: %s", e)
			}
			e := m.want(0, "ls", "sessions", "-o", "json")
			kept := filepath.Join(m.data(), "crash.txt")
			report, err := os.ReadFile(kept)
			if x.says == "" {
				if err == nil || strings.Contains(e.err, "process before") {
					t.Errorf("of a process that was killed it says %q, and has kept %q", e.err, report)
				}
			} else if err != nil || !strings.Contains(e.err, x.says) || !strings.Contains(e.err, kept) || !strings.Contains(e.err, "what was acknowledged is kept") || len(report) < 1000 {
				t.Errorf("the next one says %q; %d bytes are kept, %v", e.err, len(report), err)
			}
			if e := m.want(0, "ls", "sessions"); strings.Contains(e.err, "process before") {
				t.Errorf("it is said again: %q", e.err)
			}
			m.write("go", "")
			m.want(0, "run", "-s", id)
			if s := list[[]messages.SessionJSON](m, "ls", "sessions"); s[0].Turns != 2 {
				t.Errorf("there are %d turns", s[0].Turns)
			}
			if left, err := filepath.Glob(filepath.Join(m.data(), "crash-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
			m.sound(id)
		})
	}
}
