package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

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
		if utf8.RuneCountInString(line) > 100 {
			t.Errorf("wider than the terminal: %s", line)
		}
	}
	m.write("a/go", "")
	if code, _ := r.wait(); code != exitDone {
		t.Errorf("the run stays for who only watches: %d %s", code, r.stderr.String())
	}
}

// TestTopFitsANarrowTerminal: what is spent is shown whole or not at all, and who works can be told from others.
func TestTopFitsANarrowTerminal(t *testing.T) {
	row := func(id, waits, tokens string) []string {
		return []string{"wrk_" + strings.Repeat("0", 24) + id, "using_tool", "12m", waits, "scripted/some/long/models.yaml", "12", tokens, "1234", "3", "ses_" + strings.Repeat("1", 24) + id}
	}
	all := [][]string{topHead(), row("12345678", "the lease of a folder of a long name", "1234567"), row("12345679", "1 call", "5")}
	shown := func(width int) string {
		var out bytes.Buffer
		rows := fitted(all, width)
		if err := table(&out, rows[0], rows[1:]); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for width, last := range map[int]string{80: "TOKENS", 100: "PENDING", 120: "SESSION", 200: "SESSION"} {
		text := shown(width)
		lines := strings.Split(text, "\n")
		if narrowed(text, width) != text || !strings.HasSuffix(strings.TrimSpace(lines[0]), last) {
			t.Errorf("at %d columns:\n%s", width, text)
		}
		for _, whole := range []string{"  1234567", "12345678  using_tool  ", "12345679  using_tool  ", "  12m  "} {
			if !strings.Contains(text, whole) {
				t.Errorf("at %d columns %q is missing:\n%s", width, whole, text)
			}
		}
	}
	if text := shown(200); !strings.Contains(text, all[1][0]) || !strings.Contains(text, all[1][9]) || !strings.Contains(text, all[1][3]) {
		t.Errorf("what has room is cut:\n%s", text)
	}
	if text := narrowed(shown(20), 20); !strings.HasPrefix(text, "WORKER") { // there is no end of what cannot be made to fit
		t.Errorf("at 20 columns:\n%s", text)
	}
}
