package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// steered is a script of a turn that somebody may join: its second step says what it was told last.
const steered = `
name: steered
rules:
  - match: '^work'
    steps:
      - text: I begin.
        tool_calls: [{name: exec, arguments: {command: 'touch begun; while test ! -e go; do sleep 0.05; done'}}]
      - text: I have finished.
  - match: '^rather later'
    steps:
      - text: You said so before.
  - match: '^rather'
    steps:
      - text: I do that instead.
  - match: '^hold'
    steps:
      - text: I hold.
        tool_calls: [{name: exec, arguments: {command: 'while test ! -e held; do sleep 0.05; done'}}]
      - text: I held.
`

// workingIn has a turn in a folder that goes on until there is a file go, and gives its session.
func (m *machine) workingIn(folder string) (r *running, session string) {
	m.t.Helper()
	script := m.write("s.yaml", steered)
	r = m.start("run", "work", "-C", folder, "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I begin.")
	m.begun(folder)
	_, out, _ := m.run("ls", "sessions", "-C", folder, "-o", "json")
	return r, field(m.t, out, "id")
}

// accepted waits until a session has so many inputs that no answer has committed.
func (m *machine) accepted(session string, n int) {
	m.t.Helper()
	m.eventually(fmt.Sprintf("there are never %d inputs", n), func() bool { return len(m.inputs(session)) == n })
}

func TestAPromptJoinsTheTurnThatIsOpen(t *testing.T) {
	m := newMachine(t)
	first, id := m.workingIn("a")
	steers := m.start("run", "-s", id, "--mode", "steer", "rather this")
	again := m.start("run", "-s", id, "--mode", "steer", "rather that", "-o", "ndjson")
	m.accepted(id, 3)
	m.write("a/go", "")
	if code, out := first.wait(); code != exitDone || !strings.HasSuffix(out, "I do that instead.\n") {
		t.Errorf("the turn ended with %d: %s%s", code, out, first.stderr.String())
	}
	if code, out := steers.wait(); code != exitDone || out != "I do that instead.\n" || strings.Contains(steers.stderr.String(), "I begin") {
		t.Errorf("who steered it: %d: %s%s", code, out, steers.stderr.String())
	}
	if code, out := again.wait(); code != exitDone || strings.Count(out, `"input.joined"`) < 1 || !strings.Contains(out, `"turn.completed"`) {
		t.Errorf("who steered it with -o ndjson: %d: %s%s", code, out, again.stderr.String())
	}
	if code, out, _ := m.run("ls", "sessions", "-o", "json"); code != exitDone || !strings.Contains(out, `"turns": 1,`) {
		t.Errorf("it did not stay one turn: %d %s", code, out)
	}
}

func TestAPromptInterruptsTheTurnOrIsRefused(t *testing.T) {
	m := newMachine(t)
	first, id := m.workingIn("a")
	if code, out, stderr := m.run("run", "-s", id, "--mode", "reject", "rather this"); code != exitAgain || out != "" || !strings.Contains(stderr, "a turn is open") {
		t.Errorf("reject: %d: %s%s", code, out, stderr)
	}
	if code, out, stderr := m.run("run", "-s", id, "--mode", "interrupt", "rather this"); code != exitDone || out != "I do that instead.\n" {
		t.Errorf("interrupt: %d: %s%s", code, out, stderr)
	}
	if code, out := first.wait(); code != exitInterrupted || strings.Contains(out, "finished") {
		t.Errorf("the turn that was interrupted: %d: %s", code, out)
	}
	if code, out, stderr := m.run("run", "-s", id, "--mode", "reject", "rather this"); code != exitDone || out != "I do that instead.\n" {
		t.Errorf("reject when nothing is open: %d: %s%s", code, out, stderr)
	}
}

func TestAModeIsForAPromptOfASessionThatThereIs(t *testing.T) {
	m := newMachine(t)
	for want, args := range map[string][]string{
		"one of queue, steer, interrupt, reject": {"run", "-s", "ses_1", "--mode", "stear", "x"},
		"a new session has no open turn":         {"run", "--mode", "steer", "x", "-m", "scripted/echo"},
		"needs a prompt":                         {"run", "--mode", "steer", "-s", "ses_00000000000000000000000000"},
	} {
		if code, _, stderr := m.run(args...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%v: %d: %s", args, code, stderr)
		}
	}
}

// What others began is not ended by somebody who only waits behind it, or has joined it.
func TestWhoIsInterruptedLeavesTheTurnsOfOthersAlone(t *testing.T) {
	m := newMachine(t)
	first, id := m.workingIn("a")
	queued := m.start("run", "-s", id, "rather this")
	m.accepted(id, 2)
	queued.signal(os.Interrupt)
	if code, _ := queued.wait(); code != exitInterrupted || !strings.Contains(queued.stderr.String(), "taken back") {
		t.Errorf("who waited: %d: %s", code, queued.stderr.String())
	}
	m.accepted(id, 1)
	m.write("a/go", "")
	if code, out := first.wait(); code != exitDone || !strings.HasSuffix(out, "I have finished.\n") {
		t.Errorf("the turn of somebody else ended with %d: %s%s", code, out, first.stderr.String())
	}

	first, id = m.workingIn("b")
	joined := m.start("run", "-s", id, "--mode", "steer", "hold on")
	m.accepted(id, 2)
	m.write("b/go", "")
	joined.waitFor("I hold.")
	looks := m.start("run", "-s", id) // without a prompt it finishes the turn, which began with another input
	looks.waitFor("I hold.")
	joined.signal(os.Interrupt)
	if code, _ := joined.wait(); code != exitInterrupted || strings.Contains(joined.stderr.String(), "cancelled") {
		t.Errorf("who joined: %d: %s", code, joined.stderr.String())
	}
	m.write("b/held", "")
	for _, r := range []*running{first, looks} {
		if code, out := r.wait(); code != exitDone || !strings.HasSuffix(out, "I held.\n") {
			t.Errorf("the turn of somebody else ended with %d: %s%s", code, out, r.stderr.String())
		}
	}
}

func TestWhatIsTypedWhileATurnWorksSteersIt(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", steered)
	code, shown := m.chatsAside([]say{
		{"> ", "work\r"},
		{"I begin.", "/steer\r"},
		{"say what the turn should know", "rather later\r/steer rather this\r"},
		{"noted;", ""},
		{"I do that instead.", ""},
		{"You said so before.", ""}, // the line that was no word for the turn is the next prompt
		{"> ", "/steer rather that\r"},
		{"I do that instead.", ""},
		{"> ", "/quit\r"},
	}, func(after string) {
		if after == "noted;" {
			m.write("a/go", "")
		}
	}, "chat", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	if code != exitDone {
		t.Errorf("%d\n%s", code, shown)
	}
	if _, out, _ := m.run("ls", "sessions", "-o", "json"); !strings.Contains(out, `"turns": 3,`) {
		t.Errorf("these are the turns: %s\n%s", out, shown)
	}
}

func TestAQuestionGetsTheNextLineOfWhoListens(t *testing.T) {
	in, person := io.Pipe()
	s := &source{in: in}
	ctx, stop := context.WithCancel(t.Context())
	taken := make(chan string, 1)
	over := s.listening(ctx, func(line string) bool {
		taken <- line
		return strings.HasPrefix(line, "/")
	})
	if s.ask() == nil { // one that is put at once does not read beside who listens
		t.Error("nobody listens yet")
	}
	s.unask()
	failed := errors.New("the terminal is gone")
	if _, err := s.answer(ctx, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a question that could not be put: %v", err)
	}
	types := func(line string) {
		if _, err := io.WriteString(person, line+"\n"); err != nil {
			t.Error(err)
		}
	}
	for _, line := range []string{"early", "/for the turn"} {
		types(line)
		if got := <-taken; got != line {
			t.Errorf("%q was listened to as %q", line, got)
		}
	}
	s.forget() // what was typed before a question is no answer to it, nor a prompt
	answer, err := s.answer(ctx, func() error { go types("y"); return nil })
	if answer != "y" || err != nil {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	gone, end := context.WithCancel(ctx)
	if _, err := s.answer(gone, func() error { end(); return nil }); err == nil {
		t.Error("a question that nobody answered has an answer")
	}
	types("the next prompt")
	<-taken
	stop()
	over()
	if line, err := s.line(t.Context(), 100); line != "the next prompt" || err != nil {
		t.Errorf("left is %q, %v", line, err)
	}
	if err := person.Close(); err != nil { // the read that was left behind ends
		t.Error(err)
	}
	if _, err := s.line(t.Context(), 100); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}
