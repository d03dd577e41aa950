package conversation

import (
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// History returns the finished exchanges as a value: reading it changes nothing, and
// nothing that happens later changes it (rows 30 and 96). A state that forgets has only those that are still sent.
func (s *State) History() *messages.History {
	h := &messages.History{WorkerId: s.ID(), Seq: s.seq, Summary: s.Summary()}
	h.Turns = turnsOf(nil, s.aside, s.asideBorders, 0, true)
	h.Turns = turnsOf(h.Turns, s.history.messages, s.borders, s.lead, false)
	return h
}

func turnsOf(out []*messages.Turn, all []*messages.Message, borders []border, from int, compacted bool) []*messages.Turn {
	for _, b := range borders {
		t := &messages.Turn{Outcome: OutcomeName(b.outcome), Compacted: compacted}
		for _, m := range all[from:b.end] {
			t.Messages = append(t.Messages, &messages.ChatMessage{
				Role: string(m.Role), Content: m.Text, Reasoning: m.Reasoning,
				ToolCalls: m.ToolCalls, ToolCallId: m.ToolCallID, Name: m.ToolName,
			})
		}
		out = append(out, t)
		from = b.end
	}
	return out
}

// Past makes turns of the finished exchanges that are still sent, for who reads a journal whose beginning is gone: the
// newest is whole, of those before it only what was said is known.
func (s *State) Past() []*Turn {
	var out []*Turn
	from := s.lead
	for _, b := range s.borders {
		if s.last != nil && b.seq == s.last.DoneSeq {
			break
		}
		t := &Turn{DoneSeq: b.seq, Completed: &messages.TurnCompleted{Outcome: b.outcome}}
		for _, m := range s.history.messages[from:b.end] {
			switch m.Role {
			case messages.User:
				part := &messages.Part{Kind: &messages.Part_Text{Text: m.Text}}
				t.Inputs = append(t.Inputs, &Input{InputAccepted: &messages.InputAccepted{Parts: []*messages.Part{part}}})
			case messages.Assistant:
				t.Text = m.Text
			case messages.ToolRole: // with the call it answers, not kept
			}
		}
		out = append(out, t)
		from = b.end
	}
	if s.last != nil {
		out = append(out, s.last)
	}
	return out
}

// Result is what a completed turn came to, as a reply; nil for an open one.
func (t *Turn) Result(session, worker string) *messages.TurnResult {
	if t == nil || t.Completed == nil {
		return nil
	}
	r := &messages.TurnResult{
		SessionId: session, WorkerId: worker, TurnId: t.ID, Outcome: t.Completed.GetOutcome(),
		Text: t.Text, Usage: t.Usage, Reason: t.Completed.GetReason(), ErrorCode: t.Completed.GetErrorCode(),
		Scripted: t.Scripted, ConversationSeq: t.DoneSeq, StartedAtUnixMs: t.StartedMs, CompletedAtUnixMs: t.DoneMs,
		Model: t.Model, Unheard: t.heard == 0 && !t.Program(),
	}
	for _, c := range t.AllCalls {
		r.ToolCalls = append(r.ToolCalls, c.View())
	}
	return r
}

// View is a call as results and listings show it.
func (c *Call) View() *messages.ToolCallView {
	return &messages.ToolCallView{
		Name: c.Name, Status: c.Status(), ExecId: c.Plan.GetExecId(), CallId: c.Plan.GetCallId(),
		Arguments: c.Arguments, Content: c.Finished.GetContent(), ErrorCode: c.Finished.GetErrorCode(),
	}
}

// Listing is the call as `ls calls` shows it.
func (c *Call) Listing(session, worker, turn string) *messages.CallView {
	return &messages.CallView{
		ExecId: c.Plan.GetExecId(), CallId: c.Plan.GetCallId(), SessionId: session, WorkerId: worker, TurnId: turn, Tool: c.Name,
		State: c.State(), Status: c.Status(), Arguments: c.Arguments, ErrorCode: c.Finished.GetErrorCode(), AtUnixMs: c.AtMs,
		Effect: strings.ToLower(c.Plan.GetEffect().String()), Workspace: c.Plan.GetWorkspace(),
	}
}

// Status is the finished status in lower case; before, it is `planned`, `requested`, `executing` or `in_doubt`.
func (c *Call) Status() string {
	switch {
	case c.Finished != nil:
		return StatusName(c.Finished.GetStatus())
	case c.State() == StateReceived:
		return "planned"
	}
	return c.State()
}

// The states of a call, as listings and events have them (row 48).
const (
	StateReceived  = "received"
	StateRequested = "requested"
	StateExecuting = "executing"
	StateInDoubt   = "in_doubt"
	StateSucceeded = "succeeded"
	StateFailed    = "failed"
)

// State is where the call is on its way from its plan to its result.
func (c *Call) State() string {
	switch {
	case c.Finished != nil:
		return finishedState(c.Finished)
	case c.InDoubt():
		return StateInDoubt
	case c.Dispatched != nil:
		return StateExecuting
	case c.Requested != nil && c.Resolved == nil:
		return StateRequested
	}
	return StateReceived
}

func finishedState(f *messages.ToolFinished) string {
	if f.GetStatus() == messages.ToolFinished_OK {
		return StateSucceeded
	}
	return StateFailed
}

// The names of enums, made once.
//
//nolint:gochecknoglobals // never changed
var (
	statusNames   = lowered(messages.ToolFinished_Status_name)
	decisionNames = lowered(messages.Decision_Value_name)
	outcomeNames  = lowered(messages.TurnCompleted_Outcome_name)
)

func lowered(names map[int32]string) map[int32]string {
	out := make(map[int32]string, len(names))
	for n, name := range names {
		out[n] = strings.ToLower(name)
	}
	return out
}

// StatusName is a tool status as every surface writes it.
func StatusName(s messages.ToolFinished_Status) string { return statusNames[int32(s)] }

// DecisionName is an answer to an approval as every surface writes it.
func DecisionName(d messages.Decision_Value) string { return decisionNames[int32(d)] }

// OutcomeName is a turn's outcome as every surface writes it.
func OutcomeName(o messages.TurnCompleted_Outcome) string { return outcomeNames[int32(o)] }

// OutcomeNamed is OutcomeName read back; what it does not know was completed somehow.
func OutcomeNamed(name string) messages.TurnCompleted_Outcome {
	if o := messages.TurnCompleted_Outcome_value[strings.ToUpper(name)]; o != 0 {
		return messages.TurnCompleted_Outcome(o)
	}
	return messages.TurnCompleted_DONE
}
