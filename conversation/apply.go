package conversation

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/messages"
)

// ErrIllegal marks a fact that cannot follow those before it: the journal was not written by
// this code, or is damaged. The stream is then quarantined, never guessed at.
var ErrIllegal = errors.New("fact cannot follow the ones before it")

// Apply folds one record in. It is what replay uses and what a Worker calls after its append is
// durable. It never panics; after an error the state must not be used.
func (s *State) Apply(r *messages.Record) error {
	if r.GetSeq() != s.seq+1 {
		return fmt.Errorf("record %d after %d: %w", r.GetSeq(), s.seq, ErrIllegal)
	}
	if r.GetEpoch() < s.epoch {
		return fmt.Errorf("record %d of epoch %d after epoch %d: %w", r.GetSeq(), r.GetEpoch(), s.epoch, ErrIllegal)
	}
	fact, err := messages.WorkerFactIn(r)
	if err != nil {
		return err
	}
	if err := s.ApplyFact(fact, r); err != nil {
		return fmt.Errorf("apply record %d (%T): %w", r.GetSeq(), fact, err)
	}
	return nil
}

// ApplyFact is Apply for a fact that is at hand in its decoded form; r is its record.
func (s *State) ApplyFact(fact proto.Message, r *messages.Record) error {
	open := s.turn
	held := open != nil && open.held()
	if err := s.fold(fact, r); err != nil {
		return err
	}
	_, stopped := fact.(*messages.Suspended) // it may come long after the last work
	if open != nil && open == s.turn && r.GetEpoch() == s.epoch && !held && !stopped {
		open.WorkedMs += max(0, r.GetAtUnixMs()-s.atMs)
		if f, paid := fact.(*messages.BudgetReserved); paid {
			open.WorkedMs -= min(open.WorkedMs, max(0, f.GetWaitedMs()))
		}
	}
	s.seq, s.epoch, s.atMs, s.head = r.GetSeq(), r.GetEpoch(), r.GetAtUnixMs(), r.GetRecordId()
	return nil
}

func (s *State) fold(fact proto.Message, r *messages.Record) error {
	if _, first := fact.(*messages.WorkerCreated); first != (s.created == nil) {
		return ErrIllegal
	}
	switch f := fact.(type) {
	case *messages.WorkerCreated:
		return s.applyCreated(f, r)
	case *messages.Activated:
		s.resumed++
		if s.Died() {
			s.deaths++
		}
		s.fell = false
		return nil
	case *messages.InputAccepted:
		return s.applyInput(f, r)
	case *messages.InputWithdrawn:
		return s.applyWithdrawn(f)
	case *messages.InputJoined:
		return s.applyJoined(f)
	case *messages.ConfigChanged:
		s.applyConfig(f)
		return nil
	case *messages.Panicked:
		s.panics++
		s.fell = true
		if f.GetQuarantined() {
			s.barred = f.GetReason()
		}
		return nil
	case *messages.Suspended:
		s.applySuspended(f, r)
		return nil
	case *messages.Released:
		s.progress()
		s.barred = ""
		return nil
	case *messages.Closed:
		s.closed = true
		return nil
	case *messages.TurnStarted:
		return s.applyTurnStarted(f, r)
	case *messages.HistoryCompacted:
		return s.applyCompacted(f, r)
	case *messages.HandedOver:
		return s.applyHandedOver(f)
	}
	if known, err := s.foldMail(fact); known {
		return err
	}
	if known, err := s.foldTimer(fact); known {
		return err
	}
	if s.foldBudget(fact) {
		return nil
	}
	return s.foldTurn(fact, r)
}

// foldTurn applies the facts that need an open turn.
func (s *State) foldTurn(fact proto.Message, r *messages.Record) error {
	t := s.turn
	if t == nil {
		switch fact.(type) {
		case *messages.GenerationStarted, *messages.GenerationCompleted, *messages.GenerationFailed,
			*messages.ToolPlanned, *messages.ApprovalRequested, *messages.ApprovalResolved,
			*messages.ToolDispatched, *messages.CallDoubted, *messages.CallResolved, *messages.ToolFinished, *messages.TurnCompleted:
			return ErrIllegal
		}
		return nil // no part of the conversation
	}
	switch f := fact.(type) {
	case *messages.GenerationStarted:
		return t.generationStarted(f)
	case *messages.GenerationCompleted:
		s.progress()
		return s.applyGeneration(t, f, r)
	case *messages.GenerationFailed:
		if t.Gen == nil || t.Gen.GetGenId() != f.GetGenId() {
			return ErrIllegal
		}
		t.Tries.failed(t.Gen, f)
		t.Gen, t.Failed, t.FailedMs = nil, f, r.GetAtUnixMs()
		t.Failures++
	case *messages.ToolPlanned:
		return t.toolPlanned(f, r)
	case *messages.ApprovalRequested, *messages.ApprovalResolved, *messages.ToolDispatched, *messages.CallDoubted, *messages.CallResolved:
		return t.callFact(f)
	case *messages.ToolFinished:
		s.progress()
		return s.applyToolFinished(t, f, r)
	case *messages.CancelRequested:
		t.Cancelled = f
	case *messages.TurnCompleted:
		return s.applyTurnCompleted(t, f, r)
	}
	return nil
}

func (s *State) applyCreated(f *messages.WorkerCreated, r *messages.Record) error {
	s.created, s.agent, s.model, s.system = withoutCopied(f), f.GetAgent(), f.GetModel(), f.GetSystem()
	if len(f.GetTools()) > 0 {
		s.tools = f.GetTools()
	}
	s.known = make(map[string]*accepted)
	for _, t := range f.GetCopied() {
		for _, m := range t.GetMessages() {
			s.push(messageOf(m), source{seq: r.GetSeq(), at: len(s.sources)})
		}
		s.borders = append(s.borders, border{end: len(s.history.messages), outcome: OutcomeNamed(t.GetOutcome()), seq: r.GetSeq()})
	}
	if !paired(s.history.messages) {
		return fmt.Errorf("copied history has a tool call without its result: %w", ErrIllegal)
	}
	return nil
}

// withoutCopied is the fact without the turns that it hands over: they are the history by now.
func withoutCopied(f *messages.WorkerCreated) *messages.WorkerCreated {
	if len(f.GetCopied()) == 0 {
		return f
	}
	kept := &messages.WorkerCreated{}
	f.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field.Name() != "copied" {
			kept.ProtoReflect().Set(field, v)
		}
		return true
	})
	return kept
}

func messageOf(m *messages.ChatMessage) *messages.Message {
	return &messages.Message{
		Role: messages.Role(m.GetRole()), Text: m.GetContent(), Reasoning: m.GetReasoning(),
		ToolCalls: m.GetToolCalls(), ToolCallID: m.GetToolCallId(), ToolName: m.GetName(),
	}
}

func (s *State) applyInput(f *messages.InputAccepted, r *messages.Record) error {
	if s.known[f.GetInputId()] != nil {
		return fmt.Errorf("input %s accepted twice: %w", f.GetInputId(), ErrIllegal)
	}
	s.known[f.GetInputId()] = &accepted{hash: f.GetContentHash()}
	s.inputs = append(s.inputs, &Input{InputAccepted: f, Seq: r.GetSeq(), AtMs: r.GetAtUnixMs()})
	s.noteMail(f)
	return nil
}

func (s *State) applyWithdrawn(f *messages.InputWithdrawn) error {
	for i, in := range s.inputs {
		if in.GetInputId() == f.GetInputId() {
			s.inputs = append(s.inputs[:i:i], s.inputs[i+1:]...)
			s.known[f.GetInputId()].done = true
			return nil
		}
	}
	return fmt.Errorf("withdrawn input %s is not staged: %w", f.GetInputId(), ErrIllegal)
}

// AgentsTools in the place of a worker's toolset gives it that of its agent again.
const AgentsTools = "*"

// NoTools in the place of a worker's toolset leaves it none.
const NoTools = "-"

func (s *State) applyConfig(f *messages.ConfigChanged) {
	if f.GetAgent() != "" {
		s.agent = f.GetAgent()
	}
	if f.GetModel() != "" {
		s.model = f.GetModel()
		s.estimated, s.reported = 0, 0 // another vocabulary
	}
	if f.GetSystem() != "" {
		s.system = f.GetSystem()
	}
	switch own := f.GetTools(); {
	case len(own) == 1 && own[0] == AgentsTools:
		s.tools = nil
	case len(own) > 0:
		s.tools = own
	}
	if f.GetMcp() != "" {
		s.noMCP = f.GetMcp() == "off"
	}
	if f.GetBounds() != nil {
		s.bounds = append(s.bounds[:len(s.bounds):len(s.bounds)], f.GetBounds())
	}
}

func (s *State) applyTurnStarted(f *messages.TurnStarted, r *messages.Record) error {
	if s.turn != nil || len(f.GetInputIds()) == 0 || len(f.GetInputIds()) > len(s.inputs) {
		return ErrIllegal
	}
	n := len(f.GetInputIds())
	for i, id := range f.GetInputIds() {
		if s.inputs[i].GetInputId() != id {
			return fmt.Errorf("turn begins with input %s, which is not the next: %w", id, ErrIllegal)
		}
		if n > 1 && s.inputs[i].GetCall() != nil {
			return fmt.Errorf("a program's call %s shares its turn: %w", id, ErrIllegal)
		}
		s.known[id].turn = f.GetTurnId()
	}
	s.turn = &Turn{
		ID: f.GetTurnId(), Inputs: s.inputs[:n:n], Leases: f.GetLeases(), StartedMs: r.GetAtUnixMs(),
		Usage: &messages.Usage{}, mark: len(s.history.messages),
	}
	s.inputs = tooLate(s.inputs[n:])
	return nil
}
