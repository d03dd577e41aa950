package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// maxRepairs is how often an answer that does not fit the schema of --schema is sent back.
const maxRepairs = 2

// readSchema reads the schema of --schema.
func (a *app) readSchema(name string) (*pipeline.Schema, error) {
	text, err := a.readFile("--schema", name)
	if err != nil {
		return nil, err
	}
	sc, err := pipeline.ReadSchema([]byte(text))
	if err == nil {
		return sc, nil
	}
	e := &exitError{code: exitInput, what: fmt.Sprintf("--schema %s: it is no JSON schema: %s", name, visible(err.Error())), hint: "see https://json-schema.org"}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := text[:min(max(syntax.Offset-1, 0), int64(len(text)))]
		row, col := strings.Count(before, "\n")+1, len(before)-strings.LastIndexByte(before, '\n')
		e.what = fmt.Sprintf("--schema %s:%d:%d: it is no JSON: %v", name, row, col, syntax)
	}
	return nil, e
}

// repair holds the turn's answer against the schema of --schema. true: it did not fit and goes back to the agent, whose next turn is
// followed then.
func (r *runner) repair() bool {
	if r.schema == nil || r.log.outcome != "done" {
		return false
	}
	r.log.output, r.log.misfit = r.schema.Fit(r.log.text)
	if r.log.misfit == "" || r.repairs == maxRepairs {
		return false
	}
	r.repairs++
	r.a.note("troupe: the answer does not fit %s: %s; it is sent back", visible(r.flags.schema), oneLine(r.log.misfit, 200))
	r.parts = []*messages.Part{{Kind: &messages.Part_Text{Text: r.schema.Repair(r.log.misfit)}}}
	r.input, r.turn, r.mode, r.joined = messages.NewID(messages.InputPrefix), "", messages.InputAccepted_QUEUE, false
	r.begun, r.accepted = false, false
	r.log.again()
	return true
}

// again makes ready for one more turn of the same job: what was called and used before counts with it.
func (t *turnLog) again() {
	t.before = t.spent()
	t.turn, t.text, t.outcome, t.reason, t.usage, t.output, t.misfit = "", "", "", "", nil, nil, ""
}

// spent is what all turns of the job have used.
func (t *turnLog) spent() messages.UsageJSON {
	u, b := t.usage.JSON(), t.before
	u.InputTokens += b.InputTokens
	u.OutputTokens += b.OutputTokens
	u.CachedTokens += b.CachedTokens
	u.ReasoningTokens += b.ReasoningTokens
	u.CostUSD += b.CostUSD
	return u
}

// answerView prints the answer alone, once it fits; one line for people per tool call, as textView does.
type answerView struct {
	text *textView
	out  io.Writer
}

func newAnswerView(a *app) *answerView {
	return &answerView{out: a.out, text: &textView{out: io.Discard, note: a.note, style: a.styleFor(a.errTerm)}}
}

func (v *answerView) show(e *messages.Event, t *turnLog) error {
	switch e.GetType() {
	case messages.EventToolFinished, messages.EventGenerationStarted, messages.EventGenerationDiscarded:
		return v.text.show(e, t)
	}
	return nil
}

func (v *answerView) done(t *turnLog) error {
	if t.output == nil {
		return nil
	}
	return written(v.out.Write(append(harmlessJSON(t.output), '\n')))
}

// harmlessJSON escapes what a terminal could obey, and what reorders text. In JSON that stands in strings alone, which stay what they are.
func harmlessJSON(raw json.RawMessage) []byte {
	var b bytes.Buffer
	for _, r := range string(raw) {
		switch {
		case r == '\r':
		case r != '\n' && r != '\t' && unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}
