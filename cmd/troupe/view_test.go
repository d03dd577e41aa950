package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// screen is a text view on buffers.
func screen() (v *textView, out, notes *bytes.Buffer) {
	out, notes = &bytes.Buffer{}, &bytes.Buffer{}
	return &textView{out: out, note: func(format string, args ...any) { fmt.Fprintf(notes, format+"\n", args...) }}, out, notes
}

func showAll(t *testing.T, v view, events ...*messages.Event) *turnLog {
	t.Helper()
	log := &turnLog{}
	for _, e := range events {
		log.take(e)
		if err := v.show(e, log); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.done(log); err != nil {
		t.Fatal(err)
	}
	return log
}

func delta(gen, text string) *messages.Event {
	return &messages.Event{Type: messages.EventTextDelta, GenId: gen, Text: text}
}

func completed(gen, text string) *messages.Event {
	return &messages.Event{Type: messages.EventGenerationCompleted, GenId: gen, Text: text}
}

func TestWhatDeltasDidNotBringIsPrintedAtTheEndOfAnAnswer(t *testing.T) {
	v, out, notes := screen()
	showAll(t, v, delta("g1", "Hel"), completed("g1", "Hello"), completed("g2", "never streamed"))
	if out.String() != "Hello\nnever streamed\n" || notes.Len() != 0 {
		t.Errorf("%q, notes %q", out.String(), notes.String())
	}
}

func TestTextOfADiscardedAnswerIsMarkedVoid(t *testing.T) {
	v, out, notes := screen()
	showAll(t, v, delta("g1", "half an ans"), &messages.Event{Type: messages.EventGenerationDiscarded, GenId: "g1", Reason: "the stream was cut"},
		delta("g2", "whole"), completed("g2", "whole"))
	if out.String() != "half an ans\nwhole\n" || !strings.Contains(notes.String(), "void: the stream was cut") {
		t.Errorf("%q, notes %q", out.String(), notes.String())
	}
}

func TestAModelThatIsAskedAgainIsSaidToBe(t *testing.T) {
	v, _, notes := screen()
	showAll(t, v, &messages.Event{Type: messages.EventGenerationStarted, GenId: "g1"},
		&messages.Event{Type: messages.EventGenerationDiscarded, GenId: "g1", Reason: "overloaded: connection refused"},
		&messages.Event{Type: messages.EventGenerationStarted, GenId: "g2"},
		&messages.Event{Type: messages.EventGenerationDiscarded, GenId: "g2", Reason: "auth: no"}, &messages.Event{Type: messages.EventTurnCompleted})
	if got := notes.String(); strings.Count(got, "asked again") != 1 || !strings.Contains(got, "overloaded: connection refused") || strings.Contains(got, "auth") {
		t.Errorf("said %q", got)
	}
}

func TestAnAnswerThatNobodyDiscardedIsVoidOnceAnotherBegins(t *testing.T) {
	v, out, notes := screen()
	showAll(t, v, delta("g1", "half"), &messages.Event{Type: messages.EventGenerationStarted, GenId: "g2"}, completed("g2", "whole"))
	if out.String() != "half\nwhole\n" || !strings.Contains(notes.String(), "void") {
		t.Errorf("%q, notes %q", out.String(), notes.String())
	}
}

func TestLostDeltasMakeTheWholeAnswerBePrintedAgain(t *testing.T) {
	v, out, notes := screen()
	showAll(t, v, delta("g1", "one "), delta("g1", "three"), completed("g1", "one two three"))
	if out.String() != "one three\none two three\n" || !strings.Contains(notes.String(), "some of it was missing") {
		t.Errorf("%q, notes %q", out.String(), notes.String())
	}
}

func TestAModelCannotSendWhatATerminalObeys(t *testing.T) {
	v, out, notes := screen()
	hostile := "\x1b]0;title\x07\x1b[2Jgone\rover\u202Etxt\u009b"
	log := showAll(t, v, delta("g1", hostile), completed("g1", hostile),
		&messages.Event{Type: messages.EventToolPlanned, ExecId: "e", Tool: "exec", Arguments: `{"command":"\u001b[31mred"}`},
		&messages.Event{Type: messages.EventToolFinished, ExecId: "e", Tool: "exec", Status: "error", Text: hostile})
	for _, s := range []string{out.String(), notes.String()} {
		if strings.ContainsAny(s, "\x1b\x07\r\u202e\u009b") {
			t.Errorf("%q", s)
		}
	}
	if !strings.Contains(out.String(), "gone") || log.calls[0].status != "error" {
		t.Errorf("the text itself is lost: %q", out.String())
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatCannotBeWrittenEndsWithItsCode(t *testing.T) {
	for name, v := range map[string]view{
		"text":   &textView{out: fullDisk{}, note: func(string, ...any) {}},
		"ndjson": &eventView{out: fullDisk{}},
		"tour":   &tourView{out: fullDisk{}},
	} {
		err := v.show(completed("g", "text"), &turnLog{})
		var e *exitError
		if !errors.As(err, &e) || e.code != exitIO {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&objectView{out: fullDisk{}}).done(&turnLog{}); classify(err).code != exitIO {
		t.Errorf("json: %v", err)
	}
}

func TestOutcomesHaveTheirExitCodes(t *testing.T) {
	for outcome, code := range map[string]int{
		"done": 0, "error": 1, "limit": 2, "stuck": 2, "budget": 3, "waiting": 75, "timeout": 124, "aborted": 130, "": 1, "new one": 1,
	} {
		if got := outcomeCode(outcome); got != code {
			t.Errorf("%q ends with %d, want %d", outcome, got, code)
		}
	}
}

func TestRefusalsHaveTheirExitCodes(t *testing.T) {
	for code, want := range map[string]int{
		messages.CodeNotFound: exitMissing, messages.CodeBadRequest: exitInput, messages.CodeUnavailable: exitAgain, messages.CodeFull: exitIO,
		messages.CodeAgent: exitConfig, messages.CodeCorrupt: exitIO, messages.CodeQuarantined: exitFailed,
	} {
		e := classify(fmt.Errorf("ask: %w", messages.Fail(code, "what", "do this")))
		if e.code != want || e.hint != "do this" {
			t.Errorf("%s ends with %d, hint %q", code, e.code, e.hint)
		}
	}
}
