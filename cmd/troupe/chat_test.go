package main

import (
	"io"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// say is what a person waits for on a terminal, and types then.
type say struct{ after, text string }

// chats has a conversation on a terminal. Each text is typed when what it waits for stands there, after the one before.
func (m *machine) chats(what []say, args ...string) (code int, shown string) {
	m.t.Helper()
	return m.chatsAside(what, func(string) {}, args...)
}

// chatsAside has a conversation, and calls aside with what is waited for when it stands there.
func (m *machine) chatsAside(what []say, aside func(after string), args ...string) (code int, shown string) {
	m.t.Helper()
	cmd := m.command(args...)
	cmd.Env = append(cmd.Env, "NO_COLOR=1", "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 200})
	if err != nil {
		m.t.Skipf("no terminal can be made here: %v", err)
	}
	defer tty.Close()
	var all strings.Builder
	from := 0
	for b := make([]byte, 1024); ; {
		n, err := tty.Read(b)
		all.Write(b[:n])
		for len(what) > 0 {
			at := strings.Index(all.String()[from:], what[0].after)
			if at < 0 {
				break
			}
			from += at + len(what[0].after)
			aside(what[0].after)
			if _, err := io.WriteString(tty, what[0].text); err != nil {
				m.t.Fatal(err)
			}
			what = what[1:]
		}
		if err != nil { // on Linux it ends with an error when the other side is closed
			break
		}
	}
	if len(what) > 0 {
		m.t.Errorf("%q never came", what[0].after)
	}
	return exitOf(m.t, cmd.Wait()), all.String()
}

func TestAChatOnATerminal(t *testing.T) {
	m := newMachine(t)
	code, shown := m.chats([]say{
		{"> ", "/modle x\r"},
		{"did you mean /model?", ""},
		{"> ", "/why\r"},
		{"there is no session yet", ""},
		{"> ", "helo\x1b[D\x1b[Dl\r"}, // two to the left, and a letter
		{"You said: hello\r\n", ""},
		{"> ", "/why\r"},
		{"nothing: it is idle since", ""},
		{"> ", "\x1b[A\x1b[A\r"}, // the prompt before the last
		{"You said: hello\r\n", ""},
		{"> ", "\x1b[200~one\rtwo\x1b[201~\r"}, // pasted
		{"You said: one\r\ntwo\r\n", ""},
		{"> ", "three\\\r"},
		{"| ", "four\r"},
		{"You said: three\r\nfour\r\n", ""},
		{"> ", "/fork 7\r"},
		{"forked ses_", ""},
		{"> ", "\x04"},
	}, "chat", "-C", "a", "-m", "scripted/echo", "--trust", "full")
	if code != exitDone || !strings.Contains(shown, "go on with: troupe chat -s ses_") || strings.Contains(shown, "\x1b[?1049h") {
		t.Errorf("%d\n%s", code, shown)
	}
}

func TestAChatAsksForApprovalsInBetween(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", asking)
	code, shown := m.chats([]say{
		{"> ", "work\r"},
		{"cancel the turn] ", "y\n"},
		{"cancel the turn] ", "n not this\n"},
		{"I have finished.", ""},
		{"> ", "/quit\r"},
	}, "chat", "-C", "a", "-m", "scripted/"+script, "--trust", "restricted")
	if code != exitDone || !m.has("a") || !strings.Contains(shown, "+one") {
		t.Errorf("%d\n%s", code, shown)
	}
}

func TestCtrlCCancelsTheTurnOfAChatAndThenLeaves(t *testing.T) {
	m := newMachine(t)
	code, shown := m.chats([]say{
		{"> ", "think\r"},
		{"I think.", "\x03"},
		{"outcome aborted", ""},
		{"> ", "half a line\x03"},
		{"Ctrl-C again", ""},
		{"> ", "\x03"},
	}, "chat", "-C", "a", "-m", "scripted/"+m.slow(), "--trust", "full")
	id := m.onlySession()
	if code != exitInterrupted || !strings.Contains(shown, "troupe chat -s "+id) {
		t.Errorf("%d\n%s", code, shown)
	}
	code, shown = m.chats([]say{
		{"outcome aborted", ""}, // the last turn again
		{"> ", "think\r"},
		{"I think.", "\x03"},
		{"is being cancelled", "\x03\x04"},
	}, "chat", "-s", id)
	if code != exitInterrupted && code != exitDone || !strings.Contains(shown, "troupe: session "+id+", 1 turn,") {
		t.Errorf("%d\n%s", code, shown)
	}
}
