package conversation

import (
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Close returns the facts that end the open turn without asking or running anything: for a copy of
// a conversation that goes on elsewhere, while what is open here may still be under way. Calls without a result get
// InterruptedText, unless a person has said what became of them. A turn that was at its end ends as it would have; any other is aborted, and what was said in
// it stays said. newExec makes the exec ids of calls that an answer asked for and nobody planned.
// It is nil when no turn is open.
func (s *State) Close(by, reason string, newExec func() string) []proto.Message {
	t := s.turn
	if t == nil {
		return nil
	}
	facts := t.closeCalls(newExec)
	if end, ok := s.Next(Limits{}).(Complete); ok && len(facts) == 0 {
		return []proto.Message{t.completedBy(end)}
	}
	if t.Cancelled != nil {
		end := cancelled(t.Cancelled).(Complete) //nolint:forcetypeassert // it is nothing else
		return append(facts, t.completedBy(end))
	}
	end := t.completedBy(Complete{messages.TurnCompleted_ABORTED, reason, "cancelled"})
	end.InputsStay = true
	return append(facts, &messages.CancelRequested{By: by, Reason: reason}, end)
}

func (t *Turn) completedBy(end Complete) *messages.TurnCompleted {
	return &messages.TurnCompleted{
		TurnId: t.ID, Outcome: end.Outcome, Usage: t.Usage, Reason: end.Reason, FinalSeq: t.FinalSeq, ErrorCode: end.Code,
	}
}

// CloseMail returns the facts by which a copy of a conversation lets go of what is on its way between the original's workers.
func (s *State) CloseMail(reason string) []proto.Message {
	var facts []proto.Message
	for _, m := range s.outbox {
		facts = append(facts, &messages.OutboxAcked{MessageId: m.GetMessageId(), Refused: reason})
	}
	for _, c := range s.children {
		facts = append(facts, &messages.ChildEnded{WorkerId: c.GetWorkerId(), Outcome: messages.TurnCompleted_ABORTED})
	}
	return facts
}

// closeCalls gives every call of the newest answer a result, those first that were planned.
func (t *Turn) closeCalls(newExec func() string) []proto.Message {
	var facts []proto.Message
	for _, c := range t.OpenCalls() {
		if c.Settled() {
			facts = append(facts, ResultOf(c, c.Answer))
			continue
		}
		facts = append(facts, Interrupted(c.Plan.GetExecId(), c.Plan.GetCallId(), c.Name))
	}
	if t.assistant == nil {
		return facts
	}
	for i := len(t.Calls); i < len(t.assistant.ToolCalls); i++ {
		call := t.assistant.ToolCalls[i]
		plan := &messages.ToolPlanned{CallId: call.GetId(), ExecId: newExec(), Ordinal: uint32(i), Tool: call.GetName()}
		facts = append(facts, plan, Interrupted(plan.GetExecId(), plan.GetCallId(), plan.GetTool()))
	}
	return facts
}

// Interrupted is the result of a call whose outcome nobody knows.
func Interrupted(execID, callID, tool string) *messages.ToolFinished {
	return &messages.ToolFinished{
		ExecId: execID, CallId: callID, Tool: tool, Status: messages.ToolFinished_INTERRUPTED_UNKNOWN,
		Content: InterruptedText, ErrorCode: "interrupted",
	}
}
