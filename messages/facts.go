package messages

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// ErrUnknownFact marks a record that this version cannot read and must not skip.
var ErrUnknownFact = errors.New("this version does not know it, a newer one wrote it")

// schema is the version of the facts' meaning that this release writes.
const schema = 1

// NewRecord makes the record of a worker's or a session's fact. Seq, epoch, id and time
// are the writer's to fill in.
func NewRecord(fact proto.Message, turnID string) (*Record, error) {
	var body proto.Message
	var num uint32
	if w, n := WorkerFactOf(fact); n != 0 {
		body, num = w, n
	} else if s, n := SessionFactOf(fact); n != 0 {
		body, num = s, n
	} else {
		return nil, fmt.Errorf("make record of %T: no fact of a journal", fact)
	}
	b, err := proto.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", fact, err)
	}
	return &Record{Type: num, Schema: schema, TurnId: turnID, Body: b}, nil
}

// WorkerFactIn decodes the fact of a record of a worker's stream. It is nil, without an error,
// when the type is unknown but may be skipped.
func WorkerFactIn(r *Record) (proto.Message, error) {
	var w WorkerFact
	if err := proto.Unmarshal(r.GetBody(), &w); err != nil {
		return nil, fmt.Errorf("decode worker record %d: %w", r.GetSeq(), err)
	}
	f := UnwrapWorker(&w)
	return f, known("worker", r, &f)
}

// SessionFactIn is WorkerFactIn for a session's stream.
func SessionFactIn(r *Record) (proto.Message, error) {
	var w SessionFact
	if err := proto.Unmarshal(r.GetBody(), &w); err != nil {
		return nil, fmt.Errorf("decode session record %d: %w", r.GetSeq(), err)
	}
	f := UnwrapSession(&w)
	return f, known("session", r, &f)
}

// known refuses a fact whose type or whose meaning is of a newer release. One that may be skipped becomes nil.
func known(journal string, r *Record, fact *proto.Message) error {
	if *fact != nil && r.GetSchema() <= schema {
		return nil
	}
	*fact = nil
	if r.GetIgnorable() {
		return nil
	}
	return fmt.Errorf("%s record %d has type %d in version %d: %w", journal, r.GetSeq(), r.GetType(), r.GetSchema(), ErrUnknownFact)
}

// WorkerFactOf wraps a fact for its journal and returns the number of its type; 0 when m is no fact of a worker.
func WorkerFactOf(m proto.Message) (*WorkerFact, uint32) { //nolint:funlen // one case per fact
	switch f := m.(type) {
	case *WorkerCreated:
		return &WorkerFact{Fact: &WorkerFact_WorkerCreated{f}}, 1
	case *Activated:
		return &WorkerFact{Fact: &WorkerFact_Activated{f}}, 2
	case *InputAccepted:
		return &WorkerFact{Fact: &WorkerFact_InputAccepted{f}}, 3
	case *InputWithdrawn:
		return &WorkerFact{Fact: &WorkerFact_InputWithdrawn{f}}, 4
	case *TurnStarted:
		return &WorkerFact{Fact: &WorkerFact_TurnStarted{f}}, 5
	case *GenerationStarted:
		return &WorkerFact{Fact: &WorkerFact_GenerationStarted{f}}, 6
	case *GenerationCompleted:
		return &WorkerFact{Fact: &WorkerFact_GenerationCompleted{f}}, 7
	case *GenerationFailed:
		return &WorkerFact{Fact: &WorkerFact_GenerationFailed{f}}, 8
	case *ToolPlanned:
		return &WorkerFact{Fact: &WorkerFact_ToolPlanned{f}}, 9
	case *ApprovalRequested:
		return &WorkerFact{Fact: &WorkerFact_ApprovalRequested{f}}, 10
	case *ApprovalResolved:
		return &WorkerFact{Fact: &WorkerFact_ApprovalResolved{f}}, 11
	case *ToolDispatched:
		return &WorkerFact{Fact: &WorkerFact_ToolDispatched{f}}, 12
	case *ToolFinished:
		return &WorkerFact{Fact: &WorkerFact_ToolFinished{f}}, 13
	case *TurnCompleted:
		return &WorkerFact{Fact: &WorkerFact_TurnCompleted{f}}, 14
	case *BudgetReserved:
		return &WorkerFact{Fact: &WorkerFact_BudgetReserved{f}}, 15
	case *BudgetSettled:
		return &WorkerFact{Fact: &WorkerFact_BudgetSettled{f}}, 16
	case *TimerSet:
		return &WorkerFact{Fact: &WorkerFact_TimerSet{f}}, 17
	case *TimerFired:
		return &WorkerFact{Fact: &WorkerFact_TimerFired{f}}, 18
	case *TimerCancelled:
		return &WorkerFact{Fact: &WorkerFact_TimerCancelled{f}}, 19
	case *HistoryCompacted:
		return &WorkerFact{Fact: &WorkerFact_HistoryCompacted{f}}, 20
	case *ConfigChanged:
		return &WorkerFact{Fact: &WorkerFact_ConfigChanged{f}}, 21
	case *ChildSpawned:
		return &WorkerFact{Fact: &WorkerFact_ChildSpawned{f}}, 22
	case *ChildEnded:
		return &WorkerFact{Fact: &WorkerFact_ChildEnded{f}}, 23
	case *AllotmentGranted:
		return &WorkerFact{Fact: &WorkerFact_AllotmentGranted{f}}, 24
	case *AllotmentReturned:
		return &WorkerFact{Fact: &WorkerFact_AllotmentReturned{f}}, 25
	case *Panicked:
		return &WorkerFact{Fact: &WorkerFact_Panicked{f}}, 26
	case *OutboxEnqueued:
		return &WorkerFact{Fact: &WorkerFact_OutboxEnqueued{f}}, 27
	case *OutboxAcked:
		return &WorkerFact{Fact: &WorkerFact_OutboxAcked{f}}, 28
	case *CancelRequested:
		return &WorkerFact{Fact: &WorkerFact_CancelRequested{f}}, 29
	case *Closed:
		return &WorkerFact{Fact: &WorkerFact_Closed{f}}, 30
	case *CallResolved:
		return &WorkerFact{Fact: &WorkerFact_CallResolved{f}}, 31
	case *Released:
		return &WorkerFact{Fact: &WorkerFact_Released{f}}, 32
	case *CallDoubted:
		return &WorkerFact{Fact: &WorkerFact_CallDoubted{f}}, 33
	}
	return nil, 0
}

// UnwrapWorker returns the fact inside, nil when its type is not known to this version.
func UnwrapWorker(w *WorkerFact) proto.Message { //nolint:funlen // one case per fact
	switch f := w.GetFact().(type) {
	case *WorkerFact_WorkerCreated:
		return f.WorkerCreated
	case *WorkerFact_Activated:
		return f.Activated
	case *WorkerFact_InputAccepted:
		return f.InputAccepted
	case *WorkerFact_InputWithdrawn:
		return f.InputWithdrawn
	case *WorkerFact_TurnStarted:
		return f.TurnStarted
	case *WorkerFact_GenerationStarted:
		return f.GenerationStarted
	case *WorkerFact_GenerationCompleted:
		return f.GenerationCompleted
	case *WorkerFact_GenerationFailed:
		return f.GenerationFailed
	case *WorkerFact_ToolPlanned:
		return f.ToolPlanned
	case *WorkerFact_ApprovalRequested:
		return f.ApprovalRequested
	case *WorkerFact_ApprovalResolved:
		return f.ApprovalResolved
	case *WorkerFact_ToolDispatched:
		return f.ToolDispatched
	case *WorkerFact_ToolFinished:
		return f.ToolFinished
	case *WorkerFact_TurnCompleted:
		return f.TurnCompleted
	case *WorkerFact_BudgetReserved:
		return f.BudgetReserved
	case *WorkerFact_BudgetSettled:
		return f.BudgetSettled
	case *WorkerFact_TimerSet:
		return f.TimerSet
	case *WorkerFact_TimerFired:
		return f.TimerFired
	case *WorkerFact_TimerCancelled:
		return f.TimerCancelled
	case *WorkerFact_HistoryCompacted:
		return f.HistoryCompacted
	case *WorkerFact_ConfigChanged:
		return f.ConfigChanged
	case *WorkerFact_ChildSpawned:
		return f.ChildSpawned
	case *WorkerFact_ChildEnded:
		return f.ChildEnded
	case *WorkerFact_AllotmentGranted:
		return f.AllotmentGranted
	case *WorkerFact_AllotmentReturned:
		return f.AllotmentReturned
	case *WorkerFact_Panicked:
		return f.Panicked
	case *WorkerFact_OutboxEnqueued:
		return f.OutboxEnqueued
	case *WorkerFact_OutboxAcked:
		return f.OutboxAcked
	case *WorkerFact_CancelRequested:
		return f.CancelRequested
	case *WorkerFact_Closed:
		return f.Closed
	case *WorkerFact_CallResolved:
		return f.CallResolved
	case *WorkerFact_Released:
		return f.Released
	case *WorkerFact_CallDoubted:
		return f.CallDoubted
	}
	return nil
}

// SessionFactOf wraps a fact for its journal and returns the number of its type; 0 when m is no fact of a session.
func SessionFactOf(m proto.Message) (*SessionFact, uint32) {
	switch f := m.(type) {
	case *SessionCreated:
		return &SessionFact{Fact: &SessionFact_SessionCreated{f}}, 1
	case *WorkspaceAttached:
		return &SessionFact{Fact: &SessionFact_WorkspaceAttached{f}}, 2
	case *WorkspaceDetached:
		return &SessionFact{Fact: &SessionFact_WorkspaceDetached{f}}, 3
	case *TrustChanged:
		return &SessionFact{Fact: &SessionFact_TrustChanged{f}}, 4
	case *WorkerSpawned:
		return &SessionFact{Fact: &SessionFact_WorkerSpawned{f}}, 5
	case *WorkerEnded:
		return &SessionFact{Fact: &SessionFact_WorkerEnded{f}}, 6
	case *PolicyChanged:
		return &SessionFact{Fact: &SessionFact_PolicyChanged{f}}, 7
	case *RuleAdded:
		return &SessionFact{Fact: &SessionFact_RuleAdded{f}}, 8
	case *SessionClosed:
		return &SessionFact{Fact: &SessionFact_SessionClosed{f}}, 9
	}
	return nil, 0
}

// UnwrapSession returns the fact inside, nil when its type is not known to this version.
func UnwrapSession(w *SessionFact) proto.Message {
	switch f := w.GetFact().(type) {
	case *SessionFact_SessionCreated:
		return f.SessionCreated
	case *SessionFact_WorkspaceAttached:
		return f.WorkspaceAttached
	case *SessionFact_WorkspaceDetached:
		return f.WorkspaceDetached
	case *SessionFact_TrustChanged:
		return f.TrustChanged
	case *SessionFact_WorkerSpawned:
		return f.WorkerSpawned
	case *SessionFact_WorkerEnded:
		return f.WorkerEnded
	case *SessionFact_PolicyChanged:
		return f.PolicyChanged
	case *SessionFact_RuleAdded:
		return f.RuleAdded
	case *SessionFact_SessionClosed:
		return f.SessionClosed
	}
	return nil
}
