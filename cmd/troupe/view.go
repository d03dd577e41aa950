package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/troupe-dev/troupe/messages"
)

// view shows the events of one turn as they come.
type view interface {
	show(e *messages.Event, t *turnLog) error
	done(t *turnLog) error
}

// eventView prints every event as one line of JSON.
type eventView struct{ out io.Writer }

func (v *eventView) show(e *messages.Event, _ *turnLog) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", e.GetType(), err)
	}
	return written(v.out.Write(append(line, '\n')))
}

func (v *eventView) done(*turnLog) error { return nil }

// objectView prints one object at the end.
type objectView struct{ out io.Writer }

func (v *objectView) show(*messages.Event, *turnLog) error { return nil }

func (v *objectView) done(t *turnLog) error {
	var out bytes.Buffer
	if err := writeJSON(&out, t.result()); err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return written(v.out.Write(out.Bytes()))
}

// written gives a failed write of data its exit code.
func written(_ int, err error) error {
	if err != nil {
		return &exitError{code: exitIO, what: "write output: " + err.Error(), err: err}
	}
	return nil
}

// textView prints the agent's text as it arrives, and one line for people per tool call.
type textView struct {
	out   io.Writer
	note  func(format string, args ...any) // one line for people
	style style
	both  bool // out and the notes share a terminal: a note begins on a line of its own

	gen     string // generation whose text is arriving
	printed strings.Builder
	open    bool   // out is not at the beginning of a line
	failed  string // why the newest model call gave nothing; "" when it did, or is under way
	told    struct {
		what string
		at   int64
	} // the failure that was told of last
}

func (v *textView) show(e *messages.Event, t *turnLog) error {
	switch e.GetType() {
	case messages.EventTextDelta:
		if e.GetGenId() != v.gen {
			if err := v.void("it was interrupted"); err != nil {
				return err
			}
			v.gen = e.GetGenId()
		}
		v.printed.WriteString(e.GetText())
		return v.write(e.GetText())
	case messages.EventGenerationStarted:
		v.again(e.GetAtUnixMs())
		if e.GetInsteadOf() != "" {
			v.note("troupe: model %s is asked instead of %s", oneLine(e.GetModel(), 100), oneLine(e.GetInsteadOf(), 100))
		}
		if e.GetGenId() != v.gen {
			return v.void("it was interrupted")
		}
	case messages.EventGenerationDiscarded:
		v.failed = e.GetReason()
		if e.GetGenId() == v.gen {
			return v.void(e.GetReason())
		}
	case messages.EventGenerationCompleted:
		return v.completed(e)
	case messages.EventToolFinished:
		return v.tool(e, t.call(e.GetExecId()))
	case messages.EventTurnCompleted:
		return v.void("the turn ended before the answer was whole")
	}
	return nil
}

// sameFailure is how long, in ms, a failure is not told of again that is the same as the one before.
const sameFailure = 10_000

// again says that a model is asked once more, and why: a server that is down costs time.
func (v *textView) again(at int64) {
	if v.failed != "" && (v.failed != v.told.what || at-v.told.at >= sameFailure) {
		v.note("troupe: the model gave no answer (%s); it is asked again", oneLine(v.failed, 200))
		v.told.what, v.told.at = v.failed, at
	}
	v.failed = ""
}

// void says of text that was printed that the answer it began never came to be.
func (v *textView) void(why string) error {
	had := v.printed.Len() > 0
	v.gen = ""
	v.printed.Reset()
	if !had {
		return nil
	}
	if err := v.endLine(); err != nil {
		return err
	}
	v.note("troupe: the text since the last step is void: %s", oneLine(why, 200))
	return nil
}

// completed prints what the deltas did not bring: they are signs of life, the answer is this.
func (v *textView) completed(e *messages.Event) error {
	text, had := e.GetText(), v.printed.String()
	if e.GetGenId() != v.gen && had != "" || !strings.HasPrefix(text, had) {
		if err := v.void("some of it was missing; this is the whole"); err != nil {
			return err
		}
		had = ""
	}
	v.gen = ""
	v.printed.Reset()
	if err := v.write(text[len(had):]); err != nil {
		return err
	}
	if err := v.endLine(); err != nil {
		return err
	}
	if e.GetFinishReason() == "cancelled" {
		v.note("troupe: the answer was cut off: the turn was cancelled")
	}
	return nil
}

// tool prints one line about a call that has ended.
func (v *textView) tool(e *messages.Event, c *turnCall) error {
	arguments := ""
	if c != nil {
		arguments = summary(c.arguments)
	}
	line := fmt.Sprintf("%s(%s)", e.GetTool(), arguments)
	status := v.style.good(e.GetStatus())
	if e.GetStatus() != "ok" {
		status = v.style.bad(e.GetStatus())
	}
	line += ": " + status
	if code := exitCodeIn(e.GetMetaJson()); code > 0 {
		line += fmt.Sprintf(", exit code %d", code)
	}
	switch took := time.Duration(e.GetDurationUs()) * time.Microsecond; {
	case took >= time.Millisecond:
		line += ", " + took.Round(time.Millisecond).String()
	case took > 0:
		line += ", <1ms"
	}
	if e.GetStatus() != "ok" {
		line += ": " + oneLine(e.GetText(), 160)
	}
	if v.both {
		if err := v.endLine(); err != nil {
			return err
		}
	}
	v.note("%s", line)
	return nil
}

func (v *textView) done(*turnLog) error { return v.endLine() }

// write prints text of the model. What a terminal could obey is made visible, wherever it goes.
func (v *textView) write(text string) error {
	if text == "" {
		return nil
	}
	v.open = !strings.HasSuffix(text, "\n")
	return written(io.WriteString(v.out, harmless(text)))
}

func (v *textView) endLine() error {
	if !v.open {
		return nil
	}
	v.open = false
	return written(io.WriteString(v.out, "\n"))
}

// harmless replaces control characters, and those that reorder what is shown; what joins the parts of
// letters and symbols stays.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// oneLine shortens a text to one line of at most n characters.
func oneLine(s string, n int) string {
	s = visible(strings.Join(strings.Fields(s), " "))
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// summary is what a person needs to know of a call's arguments: the command or the path, else the
// object as it is.
func summary(arguments string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(arguments), &fields) != nil {
		return oneLine(arguments, 60)
	}
	for _, name := range []string{"command", "path", "source", "pattern", "url", "field_name"} {
		if s, ok := fields[name].(string); ok {
			if to, ok := fields["destination"].(string); ok {
				s += " -> " + to
			}
			return oneLine(s, 80)
		}
	}
	if len(fields) == 0 {
		return ""
	}
	return oneLine(arguments, 60)
}

// exitCodeIn finds a command's exit code in a result's meta; 0 when there is none.
func exitCodeIn(meta string) int {
	var m struct {
		ExitCode int `json:"exit_code"`
	}
	if json.Unmarshal([]byte(meta), &m) != nil {
		return 0
	}
	return m.ExitCode
}
