package conversation

import (
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Project turns a fact of a worker's or a session's journal into the event that clients see;
// nil when the fact is nobody's business outside. The caller fills in seq, session and worker.
// A turn.completed carries no text or usage beyond its own: see FinalSeq.
func Project(fact proto.Message, r *messages.Record) *messages.Event {
	e := project(fact)
	if e == nil {
		return nil
	}
	e.AtUnixMs = r.GetAtUnixMs()
	if e.Turn == "" {
		e.Turn = r.GetTurnId()
	}
	return e
}

func project(fact proto.Message) *messages.Event {
	switch f := fact.(type) {
	case *messages.SessionCreated:
		return &messages.Event{Type: messages.EventSessionCreated, Agent: f.GetAgent(), Model: f.GetModel(), Workspace: f.GetFolder()}
	case *messages.SessionClosed:
		return &messages.Event{Type: messages.EventSessionClosed, Reason: f.GetReason()}
	case *messages.WorkerSpawned:
		return &messages.Event{Type: messages.EventWorkerSpawned, Worker: f.GetWorkerId(), Agent: f.GetAgent(), Model: f.GetModel()}
	case *messages.WorkerEnded:
		return &messages.Event{Type: messages.EventWorkerEnded, Worker: f.GetWorkerId(), Reason: f.GetReason()}
	case *messages.InputAccepted:
		return &messages.Event{Type: messages.EventInputAccepted, InputId: f.GetInputId(), Text: InputText(f.GetParts())}
	case *messages.TurnStarted:
		return &messages.Event{Type: messages.EventTurnStarted, Turn: f.GetTurnId()}
	case *messages.TurnCompleted:
		return &messages.Event{Type: messages.EventTurnCompleted, Turn: f.GetTurnId(), Outcome: OutcomeName(f.GetOutcome()),
			Reason: f.GetReason(), ErrorCode: f.GetErrorCode(), Usage: f.GetUsage()}
	}
	if e := projectGeneration(fact); e != nil {
		return e
	}
	return projectCall(fact)
}

func projectGeneration(fact proto.Message) *messages.Event {
	switch f := fact.(type) {
	case *messages.GenerationStarted:
		return &messages.Event{Type: messages.EventGenerationStarted, GenId: f.GetGenId(), Model: f.GetModel()}
	case *messages.GenerationCompleted:
		return &messages.Event{Type: messages.EventGenerationCompleted, GenId: f.GetGenId(), Text: f.GetContent(), ToolCalls: f.GetToolCalls(),
			FinishReason: f.GetFinishReason(), Usage: f.GetUsage(), Model: f.GetModel(), Scripted: f.GetScripted(),
			DurationUs: f.GetTiming().GetDurationUs()}
	case *messages.GenerationFailed:
		return &messages.Event{Type: messages.EventGenerationDiscarded, GenId: f.GetGenId(), ErrorCode: f.GetClass(), Reason: f.GetMessage()}
	}
	return nil
}

func projectCall(fact proto.Message) *messages.Event {
	switch f := fact.(type) {
	case *messages.ToolPlanned:
		return &messages.Event{Type: messages.EventToolPlanned, ExecId: f.GetExecId(), CallId: f.GetCallId(), Tool: f.GetTool(),
			Workspace: f.GetWorkspace(), Effect: f.GetEffect().String()}
	case *messages.ApprovalRequested:
		return &messages.Event{Type: messages.EventApprovalRequested, ApprovalId: f.GetApprovalId(), ExecId: f.GetExecId(), CallId: f.GetCallId(), Diff: f.GetPreview()}
	case *messages.ApprovalResolved:
		return &messages.Event{Type: messages.EventApprovalResolved, ApprovalId: f.GetApprovalId(), ExecId: f.GetExecId(),
			Decision: f.GetDecision().String(), Reason: f.GetMessage()}
	case *messages.ToolDispatched:
		return &messages.Event{Type: messages.EventToolDispatched, ExecId: f.GetExecId()}
	case *messages.ToolFinished:
		return &messages.Event{Type: messages.EventToolFinished, ExecId: f.GetExecId(), CallId: f.GetCallId(), Status: StatusName(f.GetStatus()),
			Text: f.GetContent(), Truncated: f.GetTruncated(), ErrorCode: f.GetErrorCode(), DurationUs: f.GetDurationUs(),
			Diff: f.GetDiff(), DetailsJson: f.GetDetailsJson(), MetaJson: f.GetMetaJson()}
	}
	return nil
}
