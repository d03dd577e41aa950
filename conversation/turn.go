package conversation

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

func (t *Turn) generationStarted(f *messages.GenerationStarted) error {
	if t.Program() || t.assistant != nil || t.finished() {
		return ErrIllegal
	}
	// A second start without an end between is a repeated attempt after a crash.
	t.Gen, t.Failed = f, nil
	t.Suspended, t.suspendedSeq = nil, 0
	t.Attempts++
	return nil
}

// applySuspended notes an orderly stop, and what people have seen of the answer under way. It is no part of what the model is asked.
func (s *State) applySuspended(f *messages.Suspended, r *messages.Record) {
	s.fell = true
	if t := s.turn; t != nil && t.Gen != nil && f.GetText() != "" {
		t.Suspended, t.suspendedSeq = f, r.GetSeq()
	}
}

// finished says that the newest generation ended the conversation's turn.
func (t *Turn) finished() bool { return t.Steps > 0 && len(t.Calls) == 0 && t.Gen == nil }

func (s *State) applyGeneration(t *Turn, f *messages.GenerationCompleted, r *messages.Record) error {
	if t.Gen == nil || t.Gen.GetGenId() != f.GetGenId() {
		return fmt.Errorf("generation %s was not started: %w", f.GetGenId(), ErrIllegal)
	}
	s.commitInputs(t)
	s.calibrate(t.Gen, f.GetUsage())
	t.Gen, t.Failed, t.Attempts, t.Failures, t.Tries = nil, nil, 0, 0, Tries{}
	t.Suspended, t.suspendedSeq = nil, 0
	t.Steps++
	t.Calls = nil
	t.Cut = s.reserved.GetShort()
	t.Text, t.Finish, t.FinalSeq = f.GetContent(), f.GetFinishReason(), r.GetSeq()
	t.Scripted = t.Scripted || f.GetScripted()
	t.Model = f.GetModel()
	t.Gens, t.genSeqs = append(t.Gens, f), append(t.genSeqs, r.GetSeq())
	t.Usage = addUsage(t.Usage, f.GetUsage())
	s.usage = addUsage(s.usage, f.GetUsage())
	m := answerOf(f)
	if len(f.GetToolCalls()) == 0 {
		s.push(m, source{seq: r.GetSeq()})
		return nil
	}
	t.assistant = m
	return nil
}

func answerOf(f *messages.GenerationCompleted) *messages.Message {
	if f.GetPartial() { // without calls: nothing that was not asked for to its end is run
		return &messages.Message{Role: messages.Assistant, Text: f.GetContent() + CutOffText, Reasoning: f.GetReasoning()}
	}
	return &messages.Message{Role: messages.Assistant, Text: f.GetContent(), Reasoning: f.GetReasoning(), ToolCalls: f.GetToolCalls()}
}

// CutOffText is what the model reads behind an answer that a cancel cut off.
const CutOffText = "\n\n[The answer was cut off here: the turn was cancelled.]"

func (t *Turn) toolPlanned(f *messages.ToolPlanned, r *messages.Record) error {
	c := &Call{Plan: f, Name: f.GetTool(), AtMs: r.GetAtUnixMs()}
	switch {
	case t.Call(f.GetExecId()) != nil:
		return fmt.Errorf("call %s planned twice: %w", f.GetExecId(), ErrIllegal)
	case t.Program():
		if len(t.Calls) != 0 {
			return ErrIllegal
		}
		c.Arguments = t.Inputs[0].GetCall().GetArguments()
	case t.assistant == nil || int(f.GetOrdinal()) != len(t.Calls) || len(t.Calls) >= len(t.assistant.ToolCalls):
		return fmt.Errorf("call %d planned out of order: %w", f.GetOrdinal(), ErrIllegal)
	default:
		c.Arguments = t.assistant.ToolCalls[len(t.Calls)].GetArguments()
	}
	t.Calls = append(t.Calls, c)
	t.AllCalls = append(t.AllCalls, c)
	return nil
}

// callFact applies a fact about one call that stays open.
func (t *Turn) callFact(fact proto.Message) error {
	type named interface{ GetExecId() string }
	n, ok := fact.(named)
	if !ok {
		return ErrIllegal
	}
	c := t.Call(n.GetExecId())
	if c == nil || !c.Open() {
		return fmt.Errorf("call %s is not open: %w", n.GetExecId(), ErrIllegal)
	}
	switch f := fact.(type) {
	case *messages.ApprovalRequested:
		c.Requested, c.Resolved = f, nil // a new question wants an answer of its own
	case *messages.ApprovalResolved:
		if c.Resolved != nil {
			return fmt.Errorf("approval of call %s answered twice: %w", n.GetExecId(), ErrIllegal)
		}
		c.Resolved = f
		if c.Cleared() && f.GetModifiedArgs() != "" {
			c.Arguments = f.GetModifiedArgs()
		}
	case *messages.ToolDispatched:
		if !c.Cleared() {
			return fmt.Errorf("call %s dispatched without an approval: %w", n.GetExecId(), ErrIllegal)
		}
		return c.dispatched(f)
	case *messages.CallDoubted:
		if c.Dispatched == nil || c.doubted {
			return fmt.Errorf("call %s cannot be in doubt: %w", n.GetExecId(), ErrIllegal)
		}
		c.doubted, c.redo = true, false
	case *messages.CallResolved:
		if !c.doubted {
			return fmt.Errorf("call %s is not in doubt: %w", n.GetExecId(), ErrIllegal)
		}
		c.doubted, c.Answer, c.redo = false, f, f.GetResolution() == messages.CallResolved_RETRY
	}
	return nil
}

// dispatched refuses to start what a person has not said to run again.
func (c *Call) dispatched(f *messages.ToolDispatched) error {
	if c.doubted || c.Answer != nil && c.Answer.GetResolution() != messages.CallResolved_RETRY {
		return fmt.Errorf("call %s dispatched while it is a person's to say what became of it: %w", f.GetExecId(), ErrIllegal)
	}
	c.Dispatched, c.redo = f, false
	return nil
}

func (s *State) applyToolFinished(t *Turn, f *messages.ToolFinished, r *messages.Record) error {
	c := t.Call(f.GetExecId())
	if c == nil || !c.Open() {
		return fmt.Errorf("result for call %s, which is not open: %w", f.GetExecId(), ErrIllegal)
	}
	c.Finished, c.finishedSeq, c.doubted, c.redo = f, r.GetSeq(), false, false
	s.remember(c.Plan.GetWorkspace(), f.GetPostconditionHashes())
	if t.assistant == nil || len(t.Calls) < len(t.assistant.ToolCalls) || t.Pending() {
		return nil
	}
	s.push(t.assistant, source{seq: t.FinalSeq})
	for i, tc := range t.assistant.ToolCalls {
		s.push(&messages.Message{
			Role: messages.ToolRole, Text: heard(t.Calls[i].Finished),
			ToolCallID: tc.GetId(), ToolName: tc.GetName(),
		}, source{seq: t.Calls[i].finishedSeq})
	}
	t.assistant = nil
	return nil
}

func (s *State) remember(workspace string, files []*messages.FileHash) {
	if len(files) == 0 {
		return
	}
	if s.files == nil {
		s.files = make(map[string]map[string]string)
	}
	m := s.files[workspace]
	if m == nil {
		m = make(map[string]string)
		s.files[workspace] = m
	}
	for _, f := range files {
		if f.GetSha256() == "" {
			delete(m, f.GetPath())
		} else {
			m[f.GetPath()] = f.GetSha256()
		}
	}
}

func (s *State) applyTurnCompleted(t *Turn, f *messages.TurnCompleted, r *messages.Record) error {
	if f.GetTurnId() != t.ID || t.Pending() || t.assistant != nil {
		return fmt.Errorf("turn %s completed while a call is open: %w", f.GetTurnId(), ErrIllegal)
	}
	t.Completed, t.DoneMs, t.DoneSeq, t.Gen = f, r.GetAtUnixMs(), r.GetSeq(), nil
	if f.GetOutcome() != messages.TurnCompleted_ABORTED || f.GetInputsStay() || t.heard > 0 {
		s.commitInputs(t) // what was said stays said, also when the model could not answer, or was told in between
	}
	for _, in := range t.Inputs {
		s.known[in.GetInputId()].done = true
	}
	if len(s.history.messages) > t.mark {
		s.borders = append(s.borders, border{end: len(s.history.messages), outcome: f.GetOutcome(), seq: r.GetSeq()})
	}
	s.turn, s.last = nil, t
	s.turns++
	t.release()
	return nil
}

// release drops what only an open turn needs, so that an idle worker holds its history once.
func (t *Turn) release() {
	t.Calls, t.assistant = nil, nil
	t.Suspended, t.suspendedSeq = nil, 0
}

// commitInputs moves the turn's inputs into the history, together with the answer (row 24): those that it began with, and later those that joined it.
func (s *State) commitInputs(t *Turn) {
	if t.Program() {
		return
	}
	for ; t.heard < len(t.Inputs); t.heard++ {
		in := t.Inputs[t.heard]
		s.push(&messages.Message{Role: messages.User, Text: InputText(in.GetParts())}, source{seq: in.Seq})
	}
}
