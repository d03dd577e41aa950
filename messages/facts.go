package messages

import (
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ErrUnknownFact marks a record that this version cannot read and must not skip.
var ErrUnknownFact = errors.New("this version does not know it, a newer one wrote it")

// schema is the version of the facts' meaning that this release writes.
const schema = 1

// NewRecord makes the record of a worker's or a session's fact. Seq, epoch, id and time
// are the writer's to fill in.
func NewRecord(fact proto.Message, turnID string) (*Record, error) {
	kind := fact.ProtoReflect().Descriptor()
	num, ok := workerFacts()[kind]
	if !ok {
		num, ok = sessionFacts()[kind]
	}
	if !ok {
		return nil, fmt.Errorf("make record of %T: no fact of a journal", fact)
	}
	return newRecord(fact, num, turnID)
}

// NewRecords is NewRecord for the facts of a worker that are appended together: their records and what is encoded of them share two pieces
// of memory. A fact that cannot be encoded is an error for all.
func NewRecords(facts []proto.Message, turnID string) ([]*Record, error) {
	kinds, need := workerFacts(), 0
	records, block := make([]*Record, len(facts)), make([]Record, len(facts))
	for i, fact := range facts {
		num, ok := kinds[fact.ProtoReflect().Descriptor()]
		if !ok {
			return nil, fmt.Errorf("make record of %T: no fact of a worker", fact)
		}
		records[i] = &block[i]
		block[i].Type, block[i].Schema, block[i].TurnId = uint32(num), schema, turnID
		need += wrappedSize(num, proto.Size(fact))
	}
	buf := make([]byte, 0, need)
	for i, fact := range facts {
		at := len(buf)
		var err error
		if buf, err = appendWrapped(buf, protowire.Number(block[i].Type), fact); err != nil {
			return nil, err
		}
		block[i].Body = buf[at:len(buf):len(buf)]
	}
	return records, nil
}

// NewSystemRecord is NewRecord for the stream of the whole store.
func NewSystemRecord(fact proto.Message) (*Record, error) {
	num, ok := systemFacts()[fact.ProtoReflect().Descriptor()]
	if !ok {
		return nil, fmt.Errorf("make record of %T: no fact of the system", fact)
	}
	return newRecord(fact, num, "")
}

// NewWorkspaceRecord is NewRecord for the stream of a workspace.
func NewWorkspaceRecord(fact proto.Message) (*Record, error) {
	num, ok := workspaceFacts()[fact.ProtoReflect().Descriptor()]
	if !ok {
		return nil, fmt.Errorf("make record of %T: no fact of a workspace", fact)
	}
	return newRecord(fact, num, "")
}

// NewRunRecord is NewRecord for the stream of a pipeline run.
func NewRunRecord(fact proto.Message) (*Record, error) {
	num, ok := runFacts()[fact.ProtoReflect().Descriptor()]
	if !ok {
		return nil, fmt.Errorf("make record of %T: no fact of a run", fact)
	}
	return newRecord(fact, num, "")
}

// NewConversationRecord is NewRecord for the stream of a shared conversation.
func NewConversationRecord(fact proto.Message) (*Record, error) {
	num, ok := conversationFacts()[fact.ProtoReflect().Descriptor()]
	if !ok {
		return nil, fmt.Errorf("make record of %T: no fact of a shared conversation", fact)
	}
	return newRecord(fact, num, "")
}

func newRecord(fact proto.Message, num protowire.Number, turnID string) (*Record, error) {
	b, err := appendWrapped(make([]byte, 0, wrappedSize(num, proto.Size(fact))), num, fact)
	if err != nil {
		return nil, err
	}
	return &Record{Type: uint32(num), Schema: schema, TurnId: turnID, Body: b}, nil
}

// What is written is a WorkerFact or a SessionFact with this one field: without the detour over
// the message of the oneof, which costs more than the fact.
func wrappedSize(num protowire.Number, size int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(size)
}

// appendWrapped encodes a fact that was measured.
func appendWrapped(b []byte, num protowire.Number, fact proto.Message) ([]byte, error) {
	measured := proto.MarshalOptions{UseCachedSize: true}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(measured.Size(fact)))
	b, err := measured.MarshalAppend(b, fact)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", fact, err)
	}
	return b, nil
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

// SystemFactIn is WorkerFactIn for the stream of the whole store. A fact that this version has no use for is nil.
func SystemFactIn(r *Record) (proto.Message, error) {
	var w SystemFact
	if err := proto.Unmarshal(r.GetBody(), &w); err != nil {
		return nil, fmt.Errorf("decode system record %d: %w", r.GetSeq(), err)
	}
	var f proto.Message
	switch x := w.GetFact().(type) {
	case *SystemFact_RuleRemembered:
		f = x.RuleRemembered
	case *SystemFact_RuleRevoked:
		f = x.RuleRevoked
	case *SystemFact_HostRegistered:
		f = x.HostRegistered
	}
	return f, known("system", r, &f)
}

// WorkspaceFactIn is WorkerFactIn for a workspace's stream.
func WorkspaceFactIn(r *Record) (proto.Message, error) {
	var w WorkspaceFact
	if err := proto.Unmarshal(r.GetBody(), &w); err != nil {
		return nil, fmt.Errorf("decode workspace record %d: %w", r.GetSeq(), err)
	}
	var f proto.Message
	switch x := w.GetFact().(type) {
	case *WorkspaceFact_WorkspaceOpened:
		f = x.WorkspaceOpened
	case *WorkspaceFact_FieldSet:
		f = x.FieldSet
	case *WorkspaceFact_LeaseRevoked:
		f = x.LeaseRevoked
	case *WorkspaceFact_FieldsDeclared:
		f = x.FieldsDeclared
	case *WorkspaceFact_FieldEffectStarted:
		f = x.FieldEffectStarted
	case *WorkspaceFact_FieldEffectEnded:
		f = x.FieldEffectEnded
	}
	return f, known("workspace", r, &f)
}

// ConversationFactIn is WorkerFactIn for the stream of a shared conversation.
func ConversationFactIn(r *Record) (proto.Message, error) {
	var w ConversationFact
	if err := proto.Unmarshal(r.GetBody(), &w); err != nil {
		return nil, fmt.Errorf("decode conversation record %d: %w", r.GetSeq(), err)
	}
	var f proto.Message
	if field := w.ProtoReflect().WhichOneof(w.ProtoReflect().Descriptor().Oneofs().ByName("fact")); field != nil {
		f = w.ProtoReflect().Get(field).Message().Interface()
	}
	return f, known("conversation", r, &f)
}

// RunFactIn is WorkerFactIn for the stream of a pipeline run.
func RunFactIn(r *Record) (proto.Message, error) {
	var w RunFact
	if err := proto.Unmarshal(r.GetBody(), &w); err != nil {
		return nil, fmt.Errorf("decode run record %d: %w", r.GetSeq(), err)
	}
	var f proto.Message
	if field := w.ProtoReflect().WhichOneof(w.ProtoReflect().Descriptor().Oneofs().ByName("fact")); field != nil {
		f = w.ProtoReflect().Get(field).Message().Interface()
	}
	return f, known("run", r, &f)
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

// The numbers of the types of facts, by message: as the oneof of each journal has them.
//
//nolint:gochecknoglobals // never changed
var (
	workerFacts  = sync.OnceValue(func() factNumbers { return numbers(&WorkerFact{}) })
	sessionFacts = sync.OnceValue(func() factNumbers { return numbers(&SessionFact{}) })
	systemFacts  = sync.OnceValue(func() factNumbers { return numbers(&SystemFact{}) })

	runFacts       = sync.OnceValue(func() factNumbers { return numbers(&RunFact{}) })
	workspaceFacts = sync.OnceValue(func() factNumbers { return numbers(&WorkspaceFact{}) })

	conversationFacts = sync.OnceValue(func() factNumbers { return numbers(&ConversationFact{}) })
)

type factNumbers map[protoreflect.MessageDescriptor]protowire.Number

func numbers(journal proto.Message) factNumbers {
	fields := journal.ProtoReflect().Descriptor().Oneofs().ByName("fact").Fields()
	out := make(factNumbers, fields.Len())
	for i := range fields.Len() {
		out[fields.Get(i).Message()] = fields.Get(i).Number()
	}
	return out
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
	case *WorkerFact_InputJoined:
		return f.InputJoined
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
	case *WorkerFact_Suspended:
		return f.Suspended
	case *WorkerFact_HandedOver:
		return f.HandedOver
	}
	return nil
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
	case *SessionFact_ModeChanged:
		return f.ModeChanged
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
	case *SessionFact_VariablesChanged:
		return f.VariablesChanged
	case *SessionFact_RuleRevoked:
		return f.RuleRevoked
	case *SessionFact_FieldNoted:
		return f.FieldNoted
	case *SessionFact_BudgetChanged:
		return f.BudgetChanged
	case *SessionFact_BudgetAllotted:
		return f.BudgetAllotted
	case *SessionFact_ConversationShared:
		return f.ConversationShared
	case *SessionFact_JobEnded:
		return f.JobEnded
	}
	return nil
}
