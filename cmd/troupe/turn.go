package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// turnLog gathers what one turn came to from its events.
type turnLog struct {
	session   string
	turn      string
	text      string
	outcome   string // "" while the turn is open
	reason    string
	usage     *messages.Usage
	scripted  bool
	started   int64 // milliseconds since 1970
	completed int64
	calls     []turnCall
	before    messages.UsageJSON // of earlier turns of the same job
	output    json.RawMessage    // the answer, when it has to fit a schema and does
	misfit    string             // why it does not
}

// turnCall is one tool call of a turn.
type turnCall struct {
	id        string // exec id
	name      string
	arguments string
	status    string
	content   string
	meta      string // JSON
	diff      string
}

// turnResult is what `run -o json` prints.
type turnResult struct {
	Session   string             `json:"session"`
	Text      string             `json:"text"`
	Outcome   string             `json:"outcome"`
	Reason    string             `json:"reason,omitempty"` // when the outcome is not done
	Scripted  bool               `json:"scripted,omitempty"`
	Usage     messages.UsageJSON `json:"usage"`
	ToolCalls []turnResultCall   `json:"tool_calls"`

	Output      json.RawMessage `json:"output,omitempty"`       // with --schema: the answer, when it fits
	SchemaError string          `json:"schema_error,omitempty"` // why it does not
}

type turnResultCall struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// take notes an event of the turn.
func (t *turnLog) take(e *messages.Event) {
	t.scripted = t.scripted || e.GetScripted()
	switch e.GetType() {
	case messages.EventTurnStarted, messages.EventInputJoined:
		t.turn, t.started = e.GetTurn(), cmp.Or(t.started, e.GetAtUnixMs())
	case messages.EventToolPlanned:
		t.calls = append(t.calls, turnCall{id: e.GetExecId(), name: e.GetTool(), arguments: e.GetArguments(), status: "planned"})
	case messages.EventToolFinished:
		c := t.call(e.GetExecId())
		if c == nil {
			t.calls = append(t.calls, turnCall{id: e.GetExecId(), name: e.GetTool()})
			c = &t.calls[len(t.calls)-1]
		}
		c.status, c.content, c.meta, c.diff = e.GetStatus(), e.GetText(), e.GetMetaJson(), e.GetDiff()
	case messages.EventTurnCompleted:
		t.text, t.outcome, t.reason, t.usage, t.completed = e.GetText(), e.GetOutcome(), e.GetReason(), e.GetUsage(), e.GetAtUnixMs()
	}
}

func (t *turnLog) call(id string) *turnCall {
	for i := range t.calls {
		if t.calls[i].id == id {
			return &t.calls[i]
		}
	}
	return nil
}

func (t *turnLog) result() turnResult {
	r := turnResult{
		Session: t.session, Text: t.text, Outcome: t.outcome, Reason: t.reason, Scripted: t.scripted, Usage: t.spent(),
		ToolCalls: []turnResultCall{}, Output: t.output, SchemaError: t.misfit,
	}
	for _, c := range t.calls {
		r.ToolCalls = append(r.ToolCalls, turnResultCall{Name: c.name, Status: c.status})
	}
	return r
}

// summary is the last line of a run.
func (t *turnLog) summary() string {
	u := t.spent()
	took := time.Duration(max(t.completed-t.started, 0)) * time.Millisecond
	return fmt.Sprintf("troupe: session %s, %d tokens (%d in, %d out), $%.4f, %s",
		t.session, u.InputTokens+u.OutputTokens, u.InputTokens, u.OutputTokens, u.CostUSD, took)
}
