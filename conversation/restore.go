package conversation

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Restore makes the state that a snapshot keeps, up to the record seq. fact reads one record of the journal again, for
// what the snapshot does not copy. An error means that the snapshot is of no use; the journal may
// well be whole.
func Restore(seq uint64, state []byte, fact func(seq uint64) (proto.Message, error)) (*State, error) {
	m := &messages.ConversationSnapshot{}
	end := len(state) - 4
	if end < 0 || binary.BigEndian.Uint32(state[end:]) != sum(state[:end]) {
		return nil, fmt.Errorf("snapshot at %d is damaged: %w", seq, ErrIllegal)
	}
	state = state[:end]
	if err := proto.Unmarshal(state, m); err != nil {
		return nil, fmt.Errorf("decode snapshot at %d: %w", seq, err)
	}
	r := &restorer{read: fact, facts: make(map[uint64]proto.Message)}
	s := r.state(m)
	s.seq = seq
	if r.err == nil && (s.created == nil || len(m.GetChain()) != len(s.chain)) {
		r.err = ErrIllegal
	}
	if r.err != nil {
		return nil, fmt.Errorf("restore snapshot at %d: %w", seq, r.err)
	}
	return s, nil
}

// Head is the id of the newest record applied.
func (s *State) Head() []byte { return s.head }

// restorer keeps the facts that were read again, so that a text is there once, and the first error.
type restorer struct {
	read  func(uint64) (proto.Message, error)
	facts map[uint64]proto.Message
	err   error
}

// again reads the fact of a record; one of another type spoils the snapshot.
func again[T proto.Message](r *restorer, seq uint64) T {
	f, known := r.facts[seq]
	var err error
	if !known && r.err == nil {
		f, err = r.read(seq)
		r.facts[seq] = f
	}
	t, ok := f.(T)
	switch {
	case r.err != nil:
	case err != nil:
		r.err = err
	case !ok:
		r.err = fmt.Errorf("record %d holds %T: %w", seq, f, ErrIllegal)
	}
	return t
}

func (r *restorer) state(m *messages.ConversationSnapshot) *State {
	s := &State{
		head: m.GetRecordId(), created: m.GetCreated(), agent: m.GetAgent(), model: m.GetModel(), system: m.GetSystem(), tools: m.GetTools(), noMCP: m.GetNoMcp(),
		epoch: m.GetEpoch(), closed: m.GetClosed(), atMs: m.GetAtUnixMs(), inputs: r.inputs(m.GetInputs()),
		turn: r.turn(m.GetTurn()), last: r.turn(m.GetLast()), turns: int(m.GetTurns()), usage: m.GetUsage(),
		forgets: true, lead: int(m.GetLead()), estimated: m.GetEstimated(), reported: m.GetReported(),
		panics: int(m.GetPanics()), deaths: int(m.GetDeaths()), fell: m.GetFell(), barred: m.GetQuarantined(), resumed: int(m.GetResumed()), known: make(map[string]*accepted, len(m.GetKnown())),
		spent: m.GetSpent(), reserved: m.GetReserved(),
		bounds: m.GetBounds(), handed: m.GetHanded(), outbox: m.GetOutbox(), children: m.GetChildren(), unasked: int(m.GetUnasked()),
	}
	copy(s.chain[:], m.GetChain())
	for _, k := range m.GetHistory() {
		s.history.push(r.message(k))
		s.sources = append(s.sources, source{k.GetSeq(), int(k.GetAt()), int(k.GetTokens())})
		s.tokens += int(k.GetTokens())
	}
	for _, b := range m.GetBorders() {
		s.borders = append(s.borders, border{end: int(b.GetEnd()), outcome: b.GetOutcome(), seq: b.GetSeq()})
	}
	for _, k := range m.GetKnown() {
		s.known[k.GetInputId()] = &accepted{hash: k.GetHash(), cursor: k.GetCursor(), turn: k.GetTurnId(), done: k.GetDone()}
	}
	if len(m.GetTimers()) > 0 {
		s.timers = make(map[string]*Timer, len(m.GetTimers()))
	}
	for _, k := range m.GetTimers() {
		s.timers[k.GetFact().GetTimerId()] = &Timer{TimerSet: k.GetFact(), End: k.GetEnd()}
	}
	for _, k := range m.GetFiles() {
		s.remember(k.GetWorkspace(), k.GetFiles())
	}
	r.check(s)
	return s
}

// check refuses what no fold can lead to and what would be out of range later.
func (r *restorer) check(s *State) {
	ends := s.lead
	if s.lead != 0 && s.lead != leading || s.lead > len(s.history.messages) || s.estimated < 0 || s.reported < 0 {
		r.fail()
	}
	for _, b := range s.borders {
		if b.end < ends || b.end > len(s.history.messages) {
			r.fail()
		}
		ends = b.end
	}
	for _, t := range []*Turn{s.turn, s.last} {
		if t == nil {
			continue
		}
		if len(t.Inputs) == 0 || t.heard < 0 || t == s.turn && t.mark > len(s.history.messages) {
			r.fail()
		}
		for _, in := range t.Inputs {
			if s.known[in.GetInputId()] == nil {
				r.fail()
			}
		}
	}
	for _, in := range s.inputs {
		if s.known[in.GetInputId()] == nil {
			r.fail()
		}
	}
}

func (r *restorer) fail() {
	if r.err == nil {
		r.err = ErrIllegal
	}
}

func (r *restorer) message(k *messages.KeptMessage) *messages.Message {
	m := messageOf(k.GetMessage())
	if !k.GetLarge() {
		return m
	}
	if k.GetSeq() == 1 { // the worker's first record
		return r.copied(k)
	}
	switch m.Role {
	case messages.ToolRole:
		m.Text = heard(again[*messages.ToolFinished](r, k.GetSeq()))
	case messages.User:
		m.Text = InputText(again[*messages.InputAccepted](r, k.GetSeq()).GetParts())
	case messages.Assistant:
		if k.GetAt() > 0 {
			m.Text = again[*messages.HistoryCompacted](r, k.GetSeq()).GetSummary()
			return m
		}
		return answerOf(again[*messages.GenerationCompleted](r, k.GetSeq()))
	}
	return m
}

// copied finds a message among the turns that the conversation began with.
func (r *restorer) copied(k *messages.KeptMessage) *messages.Message {
	at := int(k.GetAt())
	for _, t := range again[*messages.WorkerCreated](r, k.GetSeq()).GetCopied() {
		if at < len(t.GetMessages()) {
			return messageOf(t.GetMessages()[at])
		}
		at -= len(t.GetMessages())
	}
	r.fail()
	return &messages.Message{}
}

func (r *restorer) inputs(all []*messages.KeptInput) []*Input {
	var out []*Input
	for _, k := range all {
		in := &Input{InputAccepted: k.GetFact(), Seq: k.GetSeq(), AtMs: k.GetAtUnixMs(), late: k.GetLate()}
		if in.InputAccepted == nil {
			in.InputAccepted = again[*messages.InputAccepted](r, k.GetSeq())
		}
		out = append(out, in)
	}
	return out
}

func (r *restorer) turn(k *messages.KeptTurn) *Turn {
	if k == nil {
		return nil
	}
	t := &Turn{
		ID: k.GetTurnId(), Inputs: r.inputs(k.GetInputs()), Leases: k.GetLeases(), StartedMs: k.GetStartedAtUnixMs(), Steps: int(k.GetSteps()),
		Attempts: int(k.GetAttempts()), Gen: k.GetGen(), Failed: k.GetFailed(), Failures: int(k.GetFailures()),
		FinalSeq: k.GetFinalSeq(), Usage: k.GetUsage(), Scripted: k.GetScripted(), Cancelled: k.GetCancelled(), Completed: k.GetCompleted(),
		DoneMs: k.GetDoneAtUnixMs(), DoneSeq: k.GetDoneSeq(), mark: int(k.GetMark()),
		WorkedMs: k.GetWorkedMs(), FailedMs: k.GetFailedAtUnixMs(), Compacted: k.GetCompacted(),
		BilledMs: k.GetBilledMs(), Cut: k.GetCut(), Tries: triesOf(k.GetTries()), Suspended: k.GetSuspended(), suspendedSeq: k.GetSuspendedSeq(),
	}
	if t.Suspended == nil && t.suspendedSeq != 0 {
		t.Suspended = again[*messages.Suspended](r, t.suspendedSeq)
	}
	if k.GetCommitted() {
		t.heard = len(t.Inputs) - int(k.GetWaiting())
	}
	for _, g := range k.GetGenerations() {
		f := g.GetFact()
		if f == nil {
			f = again[*messages.GenerationCompleted](r, g.GetSeq())
		}
		t.Gens, t.genSeqs = append(t.Gens, f), append(t.genSeqs, g.GetSeq())
	}
	if n := len(t.Gens); n > 0 {
		newest := t.Gens[n-1]
		t.Text, t.Finish, t.Model = newest.GetContent(), newest.GetFinishReason(), newest.GetModel()
		if k.GetPending() {
			t.assistant = answerOf(newest)
		}
	}
	r.calls(t, k)
	return t
}

func (r *restorer) calls(t *Turn, k *messages.KeptTurn) {
	asked := t.asked()
	if len(k.GetCalls()) > len(asked) || int(k.GetNewestCalls()) > len(k.GetCalls()) || k.GetNewestCalls() < 0 {
		r.fail()
		return
	}
	for i, kc := range k.GetCalls() {
		c := &Call{
			Plan: kc.GetPlan(), Name: kc.GetName(), Arguments: asked[i], Requested: kc.GetRequested(), Resolved: kc.GetResolved(),
			Dispatched: kc.GetDispatched(), Finished: kc.GetFinished(), AtMs: kc.GetAtUnixMs(), finishedSeq: kc.GetFinishedSeq(),
			Answer: kc.GetAnswer(), doubted: kc.GetDoubted(), redo: kc.GetRedo(),
		}
		if kc.GetOwnArguments() {
			c.Arguments = kc.GetArguments()
		}
		if c.Finished == nil && c.finishedSeq != 0 {
			c.Finished = again[*messages.ToolFinished](r, c.finishedSeq)
		}
		t.AllCalls = append(t.AllCalls, c)
	}
	if n := int(k.GetNewestCalls()); n > 0 {
		t.Calls = t.AllCalls[len(t.AllCalls)-n : len(t.AllCalls) : len(t.AllCalls)]
	}
}
