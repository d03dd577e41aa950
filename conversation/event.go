package conversation

import (
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Projector turns the facts of a session's streams into the events that clients see. It
// remembers what one event needs of an earlier fact; it must see the facts in order.
type Projector struct {
	one   seen                         // of the worker that was seen first: most projectors see no other
	more  map[string]*seen             // of the others
	given map[given]*messages.ToolCall // programs' calls with which no turn has begun yet
	// Lookup finds a generation that was before the first fact seen; nil: it stays unknown.
	Lookup func(worker string, seq uint64) *messages.GenerationCompleted
	// Called finds a program's call, by its input, that was accepted before the first fact seen; nil: it stays
	// unknown.
	Called func(worker, input string) *messages.ToolCall
}

// seen is what one worker's events need of its earlier facts.
type seen struct {
	worker string
	spoke  bool                 // in this turn
	text   string               // of its newest generation
	calls  []*messages.ToolCall // of its newest generation, or of its program's turn
}

// of is what was seen of a worker, to be written to.
func (p *Projector) of(worker string) *seen {
	if p.one.worker == "" {
		p.one.worker = worker
	}
	if p.one.worker == worker {
		return &p.one
	}
	s := p.more[worker]
	if s == nil {
		if p.more == nil {
			p.more = make(map[string]*seen)
		}
		s = &seen{worker: worker}
		p.more[worker] = s
	}
	return s
}

// given names an input of a worker.
type given struct{ worker, input string }

// Project returns the event of a fact; nil when the fact is nobody's business outside.
// worker is "" for a fact of the session itself, cursor the record's place in the session.
func (p *Projector) Project(session, worker string, fact proto.Message, r *messages.Record, cursor uint64) *messages.Event {
	p.See(worker, fact)
	e := project(fact)
	if e == nil {
		return nil
	}
	e.AtUnixMs, e.Session = r.GetAtUnixMs(), session
	if e.Worker == "" {
		e.Worker = worker
	}
	if e.Turn == "" {
		e.Turn = r.GetTurnId()
	}
	if e.Type != messages.EventGenerationDiscarded {
		e.Seq = cursor
	}
	switch f := fact.(type) {
	case *messages.TurnCompleted:
		e.Text = p.text(worker, f.GetFinalSeq())
	case *messages.ToolPlanned:
		e.Arguments = p.arguments(worker, f, r.GetSeq())
	}
	return e
}

// See takes note of a fact whose event nobody wants: Project without the event.
func (p *Projector) See(worker string, fact proto.Message) {
	switch f := fact.(type) {
	case *messages.GenerationCompleted:
		s := p.of(worker)
		s.spoke, s.text, s.calls = true, f.GetContent(), f.GetToolCalls()
	case *messages.InputAccepted:
		if f.GetCall() != nil {
			if p.given == nil {
				p.given = make(map[given]*messages.ToolCall)
			}
			p.given[given{worker, f.GetInputId()}] = f.GetCall()
		}
	case *messages.InputWithdrawn:
		delete(p.given, given{worker, f.GetInputId()})
	case *messages.TurnStarted:
		s := p.of(worker)
		s.spoke, s.text, s.calls = false, "", nil
		for _, id := range f.GetInputIds() {
			if call := p.given[given{worker, id}]; call != nil {
				s.calls = []*messages.ToolCall{call}
				delete(p.given, given{worker, id})
			}
		}
	}
}

// arguments finds what a planned call was asked with: in the answer that was seen, or in the one
// that stands before the answer's plans, or in the input of a program, whose id is the call's.
func (p *Projector) arguments(worker string, f *messages.ToolPlanned, seq uint64) string {
	calls := p.of(worker).calls
	if before := uint64(f.GetOrdinal()) + 1; calls == nil && p.Lookup != nil && seq > before {
		calls = p.Lookup(worker, seq-before).GetToolCalls()
	}
	if int(f.GetOrdinal()) < len(calls) {
		return calls[f.GetOrdinal()].GetArguments()
	}
	if p.Called != nil {
		return p.Called(worker, f.GetCallId()).GetArguments()
	}
	return ""
}

func (p *Projector) text(worker string, seq uint64) string {
	if seq == 0 {
		return ""
	}
	if s := p.of(worker); s.spoke {
		return s.text
	}
	if p.Lookup == nil {
		return ""
	}
	return p.Lookup(worker, seq).GetContent()
}

func project(fact proto.Message) *messages.Event {
	switch f := fact.(type) {
	case *messages.SessionCreated:
		return &messages.Event{Type: messages.EventSessionCreated, Agent: f.GetAgent(), Model: f.GetModel(), Workspace: f.GetFolder()}
	case *messages.SessionClosed:
		return &messages.Event{Type: messages.EventSessionClosed, Reason: f.GetReason()}
	case *messages.FieldNoted:
		return &messages.Event{Type: messages.EventFieldChanged, Workspace: f.GetWorkspace(), ExecId: f.GetSet().GetExecId(), DetailsJson: f.DetailsJSON()}
	case *messages.WorkerSpawned:
		return &messages.Event{
			Type: messages.EventWorkerSpawned, Worker: f.GetWorkerId(), Agent: f.GetAgent(), Model: f.GetModel(), Parent: f.GetParent(), ExecId: f.GetExecId(),
		}
	case *messages.WorkerEnded:
		return &messages.Event{Type: messages.EventWorkerEnded, Worker: f.GetWorkerId(), Reason: f.GetReason()}
	case *messages.ConversationShared:
		return &messages.Event{Type: messages.EventConversationShared, Conversation: f.GetConversationId(), Name: f.GetName()}
	case *messages.Panicked:
		if !f.GetQuarantined() {
			return nil // its successor goes on, and nobody need know
		}
		return &messages.Event{Type: messages.EventWorkerEnded, Status: "quarantined", Reason: f.GetReason()}
	case *messages.Released:
		return &messages.Event{Type: messages.EventWorkerSpawned, Status: "released", Reason: f.GetBy()}
	case *messages.InputAccepted:
		return &messages.Event{Type: messages.EventInputAccepted, InputId: f.GetInputId(), Text: InputText(f.GetParts()), From: sender(f)}
	case *messages.InputWithdrawn:
		return &messages.Event{Type: messages.EventInputWithdrawn, InputId: f.GetInputId(), Reason: f.GetBy()}
	case *messages.InputJoined:
		return &messages.Event{Type: messages.EventInputJoined, Turn: f.GetTurnId(), InputId: f.GetInputId()}
	case *messages.TurnStarted:
		e := &messages.Event{Type: messages.EventTurnStarted, Turn: f.GetTurnId()}
		if len(f.GetInputIds()) > 0 {
			e.InputId = f.GetInputIds()[0]
		}
		return e
	case *messages.TurnCompleted:
		return &messages.Event{
			Type: messages.EventTurnCompleted, Turn: f.GetTurnId(), Outcome: OutcomeName(f.GetOutcome()),
			Reason: f.GetReason(), ErrorCode: f.GetErrorCode(), Usage: f.GetUsage(),
		}
	}
	if f, ok := fact.(*messages.HistoryCompacted); ok {
		return compactedEvent(f)
	}
	if e := projectBudget(fact); e != nil {
		return e
	}
	if e := projectMail(fact); e != nil {
		return e
	}
	if e := projectGeneration(fact); e != nil {
		return e
	}
	return projectCall(fact)
}

// sender is the worker that an input comes from, or the shared conversation or the run; empty for anybody outside, whatever they call themselves.
func sender(f *messages.InputAccepted) string {
	if f.GetOrigin() == messages.InputAccepted_SYSTEM {
		return f.GetFrom()
	}
	return f.GetMail().GetWorkerId()
}

func compactedEvent(f *messages.HistoryCompacted) *messages.Event {
	e := &messages.Event{
		Type: messages.EventHistoryCompacted, Status: "summarised", Reason: f.GetReason(), Usage: f.GetUsage(),
		Done: f.GetTokensAfter(), Total: f.GetTokensBefore(), Unit: "tokens",
	}
	if f.GetFallback() {
		e.Status = "dropped"
	}
	return e
}

func projectBudget(fact proto.Message) *messages.Event {
	switch f := fact.(type) {
	case *messages.BudgetSettled:
		e := &messages.Event{Type: messages.EventBudgetChanged, Status: "spent", GenId: f.GetGenId(), Spent: f.Amounts()}
		if f.GetLost() {
			e.Reason = "a crash cut the call off: all that was reserved for it counts"
		}
		return e
	case *messages.BudgetChanged:
		return &messages.Event{Type: messages.EventBudgetChanged, Status: "changed", Budget: f.GetBudget(), Step: f.GetStep(), Reason: f.GetBy()}
	}
	return nil
}

func projectMail(fact proto.Message) *messages.Event {
	switch f := fact.(type) {
	case *messages.HandedOver:
		return &messages.Event{
			Type: messages.EventWorkerHandedOver, ExecId: f.GetExecId(), From: f.GetFrom(), Agent: f.GetAgent(), Model: f.GetModel(), Reason: f.GetMessage(),
		}
	case *messages.OutboxEnqueued:
		return &messages.Event{Type: messages.EventMessageSent, To: f.GetTo(), ExecId: f.GetMail().GetExecId(), Text: InputText(f.GetParts())}
	case *messages.OutboxAcked:
		if f.GetRefused() != "" {
			return &messages.Event{Type: messages.EventMessageRefused, Reason: f.GetRefused()}
		}
	}
	return nil
}

func projectGeneration(fact proto.Message) *messages.Event {
	switch f := fact.(type) {
	case *messages.GenerationStarted:
		return &messages.Event{Type: messages.EventGenerationStarted, GenId: f.GetGenId(), Model: f.GetModel(), InsteadOf: f.GetInsteadOf()}
	case *messages.GenerationCompleted:
		return &messages.Event{
			Type: messages.EventGenerationCompleted, GenId: f.GetGenId(), Text: f.GetContent(), ToolCalls: f.GetToolCalls(),
			FinishReason: f.GetFinishReason(), Usage: f.GetUsage(), Model: f.GetModel(), Scripted: f.GetScripted(),
			DurationUs: f.GetTiming().GetDurationUs(), InsteadOf: f.GetInsteadOf(),
		}
	case *messages.Suspended:
		if f.GetText() == "" {
			return nil // a stop is nobody's business, but for what people have seen
		}
		return &messages.Event{Type: messages.EventGenerationSuspended, Text: f.GetText()}
	case *messages.GenerationFailed:
		return &messages.Event{Type: messages.EventGenerationDiscarded, GenId: f.GetGenId(), ErrorCode: f.GetClass(), Reason: f.GetMessage()}
	}
	return nil
}

func projectCall(fact proto.Message) *messages.Event {
	switch f := fact.(type) {
	case *messages.ToolPlanned:
		return &messages.Event{
			Type: messages.EventToolPlanned, ExecId: f.GetExecId(), CallId: f.GetCallId(), Tool: f.GetTool(),
			Workspace: f.GetWorkspace(), Effect: f.GetEffect().String(), State: StateReceived,
		}
	case *messages.ApprovalRequested:
		return &messages.Event{Type: messages.EventApprovalRequested, ApprovalId: f.GetApprovalId(), ExecId: f.GetExecId(), CallId: f.GetCallId(), Diff: f.GetPreview(), State: StateRequested}
	case *messages.ApprovalResolved:
		return &messages.Event{
			Type: messages.EventApprovalResolved, ApprovalId: f.GetApprovalId(), ExecId: f.GetExecId(),
			Decision: DecisionName(f.GetDecision()), Reason: f.GetMessage(),
		}
	case *messages.ToolDispatched:
		return &messages.Event{Type: messages.EventToolDispatched, ExecId: f.GetExecId(), Tool: f.GetTool(), State: StateExecuting}
	case *messages.CallDoubted:
		return &messages.Event{Type: messages.EventToolInDoubt, ExecId: f.GetExecId(), CallId: f.GetCallId(), Tool: f.GetTool(), State: StateInDoubt}
	case *messages.CallResolved:
		return &messages.Event{Type: messages.EventToolResolved, ExecId: f.GetExecId(), Decision: ResolutionName(f.GetResolution()), Reason: f.GetNote()}
	case *messages.ToolFinished:
		return &messages.Event{
			Type: messages.EventToolFinished, ExecId: f.GetExecId(), CallId: f.GetCallId(), Tool: f.GetTool(), Status: StatusName(f.GetStatus()),
			Text: f.GetContent(), Truncated: f.GetTruncated(), ErrorCode: f.GetErrorCode(), DurationUs: f.GetDurationUs(),
			Diff: f.GetDiff(), DetailsJson: f.GetDetailsJson(), MetaJson: f.GetMetaJson(), State: finishedState(f),
		}
	}
	return nil
}
