package conversation

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Turns that wait for the word in a shared conversation, and what is told of it.

// MaxPage is how much of what was said one page holds, in bytes, unless its first turn alone is more.
const MaxPage = 4 << 20

func (s *Shared) askedAt(turn string) int {
	return slices.IndexFunc(s.Asked, func(f *messages.TurnAsked) bool { return f.GetTurnId() == turn })
}

// Waits is a turn that waits for the word; nil: it does not.
func (s *Shared) Waits(turn string) *messages.TurnAsked {
	if i := s.askedAt(turn); i >= 0 {
		return s.Asked[i]
	}
	return nil
}

// Withdrawn is how a turn was taken back; nil: it was not.
func (s *Shared) Withdrawn(turn string) *messages.TurnWithdrawn { return s.back[turn] }

func (s *Shared) ask(f *messages.TurnAsked) error {
	id := f.GetTurnId()
	if f.GetWorkerId() == "" {
		return fmt.Errorf("turn %s is nobody's: %w", id, ErrIllegal)
	}
	if s.turns[id] != nil || s.back[id] != nil || s.Given.GetTurnId() == id || s.askedAt(id) >= 0 {
		return fmt.Errorf("turn %s was asked for before: %w", id, ErrIllegal)
	}
	s.Asked = append(s.Asked[:len(s.Asked):len(s.Asked)], f)
	return nil
}

func (s *Shared) withdrawn(f *messages.TurnWithdrawn) error {
	i := s.askedAt(f.GetTurnId())
	if i < 0 {
		return fmt.Errorf("turn %s does not wait: %w", f.GetTurnId(), ErrIllegal)
	}
	s.Asked = slices.Concat(s.Asked[:i], s.Asked[i+1:])
	s.back[f.GetTurnId()] = f
	delete(s.since, f.GetTurnId())
	return nil
}

// Spoken counts the turns that came to their end, were cut off or taken back, have the word or wait for it.
func (s *Shared) Spoken() int {
	n := len(s.Turns) + len(s.Asked) + len(s.back)
	if s.Given != nil {
		n++
	}
	return n
}

// Full says whether as much was said as a conversation holds: all of it is in memory.
func (s *Shared) Full() bool { return s.size >= MaxTranscript }

// View is a copy of the conversation, with the turns behind a record: as many at most as limit says, and MaxPage bytes; 0: all.
func (s *Shared) View(after uint64, limit int) *messages.SharedConversation {
	v := s.Listing()
	for _, f := range s.Asked {
		v.Queue = append(v.Queue, &messages.WaitingTurn{TurnId: f.GetTurnId(), WorkerId: f.GetWorkerId(), AtUnixMs: s.since[f.GetTurnId()]})
	}
	v.SpeakingSinceUnixMs = s.since[s.Given.GetTurnId()]
	size := 0
	for _, t := range s.Turns {
		if t.GetSeq() <= after {
			continue
		}
		size += len(t.GetTurn().GetText())
		if n := len(v.GetTurns()); limit > 0 && n > 0 && (n == limit || size > MaxPage) {
			v.Next = v.GetTurns()[n-1].GetSeq()
			return v
		}
		v.Turns = append(v.Turns, proto.CloneOf(t))
	}
	return v
}

// Listing is View without turns.
func (s *Shared) Listing() *messages.SharedConversation {
	v := &messages.SharedConversation{
		ConversationId: s.ID, SessionId: s.Session, Name: s.Name, Seq: s.Seq, Speaking: s.Given.GetWorkerId(),
		Count: int32(len(s.Turns)), Waiting: int32(len(s.Asked)), //nolint:gosec // counts
	}
	for _, m := range s.Members {
		v.Members = append(v.Members, proto.CloneOf(m))
	}
	return v
}
