package conversation_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// journal keeps what a store would: the encoded records, and nothing else. Its state has seen
// every record after a trip through its bytes.
type journal struct {
	records [][]byte
	epoch   uint64
	s       *conversation.State
}

func newJournal() *journal { return &journal{epoch: 1, s: &conversation.State{}} }

// write appends a fact. One that is refused leaves the journal as it was, and the state is folded
// anew, since an error spoils it.
func (j *journal) write(fact proto.Message) error {
	b, err := j.encode(fact)
	if err != nil {
		return err
	}
	if err := apply(j.s, b); err != nil {
		s, again := fold(j.records)
		if again != nil {
			return errors.Join(err, again)
		}
		j.s = s
		return err
	}
	j.records = append(j.records, b)
	return nil
}

func (j *journal) encode(fact proto.Message) ([]byte, error) {
	turn := ""
	if t := j.s.Turn(); t != nil {
		turn = t.ID
	}
	r, err := messages.NewRecord(fact, turn)
	if err != nil {
		return nil, err
	}
	r.Seq, r.Epoch = uint64(len(j.records)+1), j.epoch
	r.RecordId = fmt.Appendf(nil, "record %d.%d", r.GetEpoch(), r.GetSeq())
	r.AtUnixMs = 1_700_000_000_000 + int64(r.GetSeq())
	return proto.Marshal(r)
}

func apply(s *conversation.State, record []byte) error {
	var r messages.Record
	if err := proto.Unmarshal(record, &r); err != nil {
		return err
	}
	return s.Apply(&r)
}

func fold(records [][]byte) (*conversation.State, error) {
	return foldOn(&conversation.State{}, records)
}

// foldLive folds as a worker does.
func foldLive(records [][]byte) (*conversation.State, error) {
	return foldOn(conversation.Live(), records)
}

func foldOn(s *conversation.State, records [][]byte) (*conversation.State, error) {
	for i, b := range records {
		if err := apply(s, b); err != nil {
			return nil, fmt.Errorf("fold record %d of %d: %w", i+1, len(records), err)
		}
	}
	return s, nil
}

// wellFormed checks the message invariant of a prompt: after an assistant message with N calls
// stand exactly N results, in call order; a result stands nowhere else; and what is
// sent last is for the model to answer.
func wellFormed(ms []*messages.Message) error {
	for i := 0; i < len(ms); i++ {
		m := ms[i]
		switch m.Role {
		case messages.User:
			if len(m.ToolCalls) > 0 {
				return fmt.Errorf("message %d: a user calls tools", i)
			}
		case messages.Assistant:
			if i == len(ms)-1 {
				return fmt.Errorf("message %d: an assistant has the last word", i)
			}
			for n, c := range m.ToolCalls {
				i++
				if i >= len(ms) || ms[i].Role != messages.ToolRole {
					return fmt.Errorf("message %d: no result for call %d, %s", i, n, c.GetId())
				}
				if ms[i].ToolCallID != c.GetId() || ms[i].ToolName != c.GetName() {
					return fmt.Errorf("message %d: result of %s %s where call %d is %s %s", i, ms[i].ToolName, ms[i].ToolCallID, n, c.GetName(), c.GetId())
				}
			}
			if len(m.ToolCalls) == 0 && ms[i+1].Role != messages.User {
				return fmt.Errorf("message %d: %s after an answer", i+1, ms[i+1].Role)
			}
			if len(m.ToolCalls) > 0 && i+1 < len(ms) && ms[i+1].Role == messages.ToolRole {
				return fmt.Errorf("message %d: more results than calls", i+1)
			}
		default:
			return fmt.Errorf("message %d: role %q out of place", i, m.Role)
		}
	}
	if len(ms) == 0 {
		return errors.New("nothing is asked")
	}
	return nil
}

// consistent checks what holds of every state that facts can lead to.
func consistent(s *conversation.State) error {
	open := map[string]bool{}
	if t := s.Turn(); t != nil {
		for _, c := range t.OpenCalls() {
			open[c.Plan.GetExecId()] = true
		}
	}
	for _, d := range s.Recover() {
		if !open[d.GetExecId()] || d.GetAction() == messages.RecoveryDecision_UNSPECIFIED {
			return fmt.Errorf("recovery decides %s for %s, which is not open or was decided before", d.GetAction(), d.GetExecId())
		}
		delete(open, d.GetExecId())
	}
	if len(open) > 0 {
		return fmt.Errorf("recovery leaves out %v", open)
	}
	if r, ok := s.Ready(); ok {
		if err := wellFormed(r.Render("").Messages); err != nil {
			return err
		}
	}
	return stepFits(s)
}

// stepFits checks the next step against what the state says of itself.
func stepFits(s *conversation.State) error {
	t := s.Turn()
	_, ready := s.Ready()
	switch n := s.Next(conversation.Limits{}).(type) {
	case conversation.Rest:
		if s.Exists() && !s.Closed() && (t != nil || len(s.Staged()) > 0) {
			return errors.New("rest while there is something to do")
		}
	case conversation.Begin:
		if t != nil || len(s.Staged()) == 0 || s.Staged()[0] != n.Input {
			return errors.New("a turn would begin with an input that is not the next")
		}
	case conversation.Join:
		if t == nil || !ready || t.Cancelled != nil || t.Gen != nil || len(n.Inputs) == 0 {
			return errors.New("somebody would join out of place")
		}
	case conversation.Generate:
		if t == nil || !ready || t.Cancelled != nil || n.Number != t.Steps+1 || n.Attempt != t.Attempts+1 {
			return fmt.Errorf("generation %d, attempt %d is out of place", n.Number, n.Attempt)
		}
	case conversation.Plan:
		if t == nil || ready && !t.Program() || len(n.Calls) == 0 || n.From != len(t.Calls) {
			return errors.New("calls would be planned out of place")
		}
	case conversation.Settle:
		if t == nil || ready || len(n.Calls) != len(t.OpenCalls()) || len(n.Calls) == 0 {
			return errors.New("nothing to settle, or not all of it")
		}
	case conversation.Complete:
		if t == nil || len(t.OpenCalls()) > 0 || n.Code == "internal_error" {
			return fmt.Errorf("the turn would end as %s (%s) out of place", n.Outcome, n.Reason)
		}
	}
	return nil
}

func mustWrite(t testing.TB, j *journal, facts ...proto.Message) {
	t.Helper()
	for _, f := range facts {
		if err := j.write(f); err != nil {
			t.Fatalf("write %T after %d records: %v", f, len(j.records), err)
		}
	}
}
