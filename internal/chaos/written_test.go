package chaos

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

func newState() *conversation.State { return &conversation.State{} }

const askedArgs = `{"name":"x"}`

// asked is a turn with one call that a person is asked about.
func asked(t *testing.T, decision messages.Decision_Value) *History {
	t.Helper()
	hash := argsHash(askedArgs)
	bound := tools.ApprovalHash(toolCharge, hash, "")
	facts := []proto.Message{
		&messages.InputAccepted{InputId: "inp_1", Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "do it"}}}},
		&messages.TurnStarted{TurnId: "trn_1", InputIds: []string{"inp_1"}},
		&messages.GenerationStarted{GenId: "gen_1", Step: 1, Attempt: 1},
		&messages.GenerationCompleted{GenId: "gen_1", ToolCalls: []*messages.ToolCall{{Id: "c", Name: toolCharge, Arguments: askedArgs}}, FinishReason: "tool_calls"},
		&messages.ToolPlanned{CallId: "c", ExecId: "exe_1", Tool: toolCharge, ArgsHash: hash, Effect: messages.Effect_AT_MOST_ONCE, NeedsApproval: true},
		&messages.ApprovalRequested{ApprovalId: "apr_1", CallId: "c", ExecId: "exe_1", ArgsHash: bound},
		&messages.ApprovalResolved{ApprovalId: "apr_1", ExecId: "exe_1", Decision: decision, ArgsHash: bound},
	}
	if decision == messages.Decision_APPROVED {
		facts = append(facts, &messages.ToolDispatched{ExecId: "exe_1", Attempt: 1},
			&messages.ToolFinished{ExecId: "exe_1", CallId: "c", Tool: toolCharge, Status: messages.ToolFinished_OK, Content: "charge did it as exe_1"})
	} else {
		facts = append(facts, &messages.ToolFinished{ExecId: "exe_1", CallId: "c", Tool: toolCharge, Status: messages.ToolFinished_DENIED, Content: "no"})
	}
	h := written(t, facts...)
	if decision == messages.Decision_APPROVED {
		for _, p := range []Phase{Begun, Happened, Ended} {
			h.Effects = append(h.Effects, Effect{Phase: p, Exec: "exe_1", Tool: toolCharge, Name: "x", Class: "AT_MOST_ONCE", Boot: 1, Dispatch: 9, AtMs: h.EndedMs})
		}
	}
	h.Answers = []Answer{{Approval: "apr_1", Decision: decision, Told: Acknowledged}}
	return h
}

func TestApprovalsAreHeldToTheirAnswers(t *testing.T) {
	for _, d := range []messages.Decision_Value{
		messages.Decision_APPROVED, messages.Decision_REJECTED, messages.Decision_CANCELLED, messages.Decision_EXPIRED, messages.Decision_NOT_ASKED,
	} {
		if found := Check(asked(t, d)); len(found) > 0 {
			t.Errorf("%s: a good history breaks rules:\n%s", d, lines(found))
		}
	}
	ran := func(h *History) {
		h.Effects = append(h.Effects, Effect{Phase: Happened, Exec: "exe_1", Tool: toolCharge, Class: "AT_MOST_ONCE", Boot: 1})
	}
	for name, d := range map[string]struct {
		decision messages.Decision_Value
		do       func(t *testing.T, h *History)
	}{
		"rejected and it ran":  {messages.Decision_REJECTED, func(_ *testing.T, h *History) { ran(h) }},
		"expired and it ran":   {messages.Decision_EXPIRED, func(_ *testing.T, h *History) { ran(h) }},
		"cancelled and it ran": {messages.Decision_CANCELLED, func(_ *testing.T, h *History) { ran(h) }},
		"never asked and it ran": {messages.Decision_NOT_ASKED, func(_ *testing.T, h *History) {
			ran(h)
		}},
		"rejected and reported as OK": {messages.Decision_REJECTED, func(t *testing.T, h *History) {
			change(t, h, one[*messages.ToolFinished](t, h, nil), func(f *messages.ToolFinished) { f.Status = messages.ToolFinished_OK })
		}},
		"dispatched before the answer": {messages.Decision_APPROVED, func(t *testing.T, h *History) {
			drop(h, one[*messages.ApprovalResolved](t, h, nil))
		}},
		"the answer is to another question": {messages.Decision_APPROVED, func(t *testing.T, h *History) {
			change(t, h, one[*messages.ApprovalResolved](t, h, nil), func(f *messages.ApprovalResolved) { f.ApprovalId = "apr_2" })
		}},
		"the answer is about other arguments": {messages.Decision_APPROVED, func(t *testing.T, h *History) {
			change(t, h, one[*messages.ApprovalResolved](t, h, nil), func(f *messages.ApprovalResolved) { f.ArgsHash = argsHash(`{"name":"y"}`) })
		}},
		"the question is about other arguments": {messages.Decision_APPROVED, func(t *testing.T, h *History) {
			change(t, h, one[*messages.ApprovalRequested](t, h, nil), func(f *messages.ApprovalRequested) { f.ArgsHash = nil })
		}},
		"changed arguments that nobody approved": {messages.Decision_APPROVED, func(t *testing.T, h *History) {
			change(t, h, one[*messages.ApprovalResolved](t, h, nil), func(f *messages.ApprovalResolved) { f.ModifiedArgs = `{"name":"z"}` })
		}},
		"another answer than was given": {messages.Decision_APPROVED, func(_ *testing.T, h *History) {
			h.Answers[0].Decision = messages.Decision_REJECTED
		}},
		"an answer that was given is lost": {messages.Decision_APPROVED, func(_ *testing.T, h *History) { h.Answers[0].Approval = "apr_9" }},
	} {
		t.Run(name, func(t *testing.T) {
			h := asked(t, d.decision)
			d.do(t, h)
			if found := Check(h); !broke(found, "R7") {
				t.Errorf("it is not found; what is found:\n%s", lines(found))
			}
		})
	}
}

func TestTimersAreHeldToTheirTimes(t *testing.T) {
	const minute = 60_000 // between two facts
	text := []*messages.Part{{Kind: &messages.Part_Text{Text: "wake up"}}}
	set := func(due int64) proto.Message {
		return &messages.TimerSet{TimerId: "tim_1", DueUnixMs: due, Parts: text}
	}
	fired := &messages.TimerFired{TimerId: "tim_1", InputId: "inp_t"}
	input := &messages.InputAccepted{InputId: "inp_t", Origin: messages.InputAccepted_TIMER, Parts: text}
	for name, facts := range map[string][]proto.Message{
		"fired in time":  {set(3 * minute), fired, input},
		"fired late":     {set(1), fired, input},
		"cancelled":      {set(1), &messages.TimerCancelled{TimerId: "tim_1"}},
		"skipped":        {set(1), &messages.TimerFired{TimerId: "tim_1", Skipped: true}},
		"not due so far": {set(1 << 50)},
	} {
		h := written(t, facts...)
		h.Whole = true
		if found := Check(h); len(found) > 0 {
			t.Errorf("%s: a good history breaks rules:\n%s", name, lines(found))
		}
	}
	for name, do := range map[string]func(t *testing.T) *History{
		"early": func(t *testing.T) *History {
			h := written(t, set(3*minute), fired, input)
			change(t, h, one[*messages.TimerSet](t, h, nil), func(f *messages.TimerSet) { f.DueUnixMs += minute })
			return h
		},
		"twice": func(t *testing.T) *History {
			h := written(t, set(1), fired, input)
			add(t, h, one[*messages.TimerFired](t, h, nil), fired)
			return h
		},
		"never set": func(t *testing.T) *History {
			h := written(t, set(1), fired, input)
			drop(h, one[*messages.TimerSet](t, h, nil))
			return h
		},
		"after its cancel": func(t *testing.T) *History {
			h := written(t, set(1), fired, input)
			add(t, h, one[*messages.TimerSet](t, h, nil), &messages.TimerCancelled{TimerId: "tim_1"})
			return h
		},
		"without its input": func(t *testing.T) *History {
			h := written(t, set(1), fired, input)
			drop(h, one[*messages.InputAccepted](t, h, nil))
			return h
		},
		"set twice": func(t *testing.T) *History {
			h := written(t, set(1), fired, input)
			add(t, h, one[*messages.TimerSet](t, h, nil), set(2))
			return h
		},
		"due and never fired": func(t *testing.T) *History {
			h := written(t, set(1))
			h.Whole = true
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			if found := Check(do(t)); !broke(found, "R11") {
				t.Errorf("it is not found; what is found:\n%s", lines(found))
			}
		})
	}
}
