package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestTopIsRenewedOnATerminalUntilCtrlC: what works comes first, with what it waits for; the table stands over the one before.
func TestTopIsRenewedOnATerminalUntilCtrlC(t *testing.T) {
	m := newMachine(t)
	if code, _, stderr := m.run("run", "hello", "-C", "b", "-m", "scripted/echo"); code != exitDone {
		t.Fatal(stderr)
	}
	script := m.write("s.yaml", blocking)
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I begin.")
	m.begun("a")
	cmd := m.command("top", "--interval", "100ms")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 100})
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	defer tty.Close()
	var shown bytes.Buffer
	stopped := false
	for b := make([]byte, 4096); ; {
		n, err := tty.Read(b)
		shown.Write(b[:n])
		if !stopped && strings.Count(shown.String(), "\x1b[J") > 1 {
			stopped = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break
		}
	}
	code := exitOf(t, cmd.Wait())
	first, _, _ := strings.Cut(shown.String(), "\x1b[")
	lines := strings.Split(first, "\r\n")
	if code != exitDone || len(lines) < 4 || !strings.Contains(lines[0], "2 workers, 1 at work") ||
		!strings.Contains(lines[2], " using_tool ") || !strings.Contains(lines[2], " 1 call ") || !strings.Contains(lines[3], " inactive ") {
		t.Errorf("%d\n%s", code, first)
	}
	for _, line := range lines {
		if len(line) > 100 {
			t.Errorf("wider than the terminal: %s", line)
		}
	}
	m.write("a/go", "")
	if code, _ := r.wait(); code != exitDone {
		t.Errorf("the run stays for who only watches: %d %s", code, r.stderr.String())
	}
}
