package actors

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// What a copy of a session does with the conversations that its workers share: it has them as they were, and where somebody had the
// word its turn is cut off, as it is in the member's own conversation.

// addShared takes a record of a shared conversation.
func (v *Survey) addShared(id string, e persistence.Entry) error {
	f := v.sharing(id)
	if f == nil || !messages.ValidID(messages.ConversationPrefix, id) {
		return fmt.Errorf("conversation %s was never shared: %w", id, persistence.ErrCorrupt)
	}
	s := v.shared[id]
	if s == nil {
		s = &conversation.Shared{}
	}
	if err := foldShared(s, e); err != nil {
		return fmt.Errorf("conversation %s: %w", id, err)
	}
	if s.ID != id || s.Session != v.Session || s.Name != f.GetName() {
		return fmt.Errorf("stream of conversation %q holds %q of session %q: %w", id, s.ID, s.Session, persistence.ErrCorrupt)
	}
	for _, m := range s.Members {
		if !slices.Contains(v.order, m.GetWorkerId()) {
			return fmt.Errorf("worker %s in conversation %s was never spawned: %w", m.GetWorkerId(), id, persistence.ErrCorrupt)
		}
	}
	if v.shared == nil {
		v.shared = make(map[string]*conversation.Shared)
	}
	v.shared[id] = s
	return nil
}

func (v *Survey) sharing(id string) *messages.ConversationShared {
	for _, f := range v.facts.shared {
		if f.GetConversationId() == id {
			return f
		}
	}
	return nil
}

// closeShared cuts the turns off that were open, and takes back those that waited.
func (p *Copying) closeShared(ctx context.Context) error {
	for _, f := range p.Survey.facts.shared {
		s := p.Survey.shared[f.GetConversationId()]
		var ends []proto.Message
		for _, f := range s.Asked {
			ends = append(ends, &messages.TurnWithdrawn{TurnId: f.GetTurnId(), WorkerId: f.GetWorkerId(), Reason: p.Reason})
		}
		if g := s.Given; g != nil {
			ends = append(ends, &messages.TurnCut{
				TurnId: g.GetTurnId(), WorkerId: g.GetWorkerId(), Outcome: conversation.OutcomeName(messages.TurnCompleted_ABORTED), Reason: p.Reason,
				Heard: p.Survey.workers[g.GetWorkerId()].Heard(g.GetTurnId()), Member: s.Member(g.GetWorkerId()).GetName(),
			})
		}
		if err := p.endShared(ctx, s, ends); err != nil {
			return err
		}
	}
	return nil
}

// endShared adds facts to the copy of a conversation.
func (p *Copying) endShared(ctx context.Context, s *conversation.Shared, ends []proto.Message) error {
	for _, cut := range ends {
		r := &messages.Record{Seq: s.Seq + 1, AtUnixMs: p.svc.Now().UnixMilli()}
		if err := s.Apply(cut, r); err != nil {
			return fmt.Errorf("close conversation %s in the copy: %w", s.ID, err)
		}
		own := proto.Clone(cut)
		p.names.fact(own)
		rec, err := messages.NewConversationRecord(own)
		if err != nil {
			return err
		}
		rec.RecordId, rec.AtUnixMs = newRecordID(), r.GetAtUnixMs()
		if err := p.add(ctx, p.stream(messages.ConversationStream(s.ID)), rec); err != nil {
			return err
		}
	}
	return nil
}

// shared renames a listing.
func (n *naming) shared(v *messages.SharedConversation) *messages.SharedConversation {
	if n == nil {
		return v
	}
	v.ConversationId, v.SessionId, v.Speaking = n.id(v.GetConversationId()), n.id(v.GetSessionId()), n.id(v.GetSpeaking())
	for _, m := range v.GetMembers() {
		m.WorkerId = n.id(m.GetWorkerId())
	}
	return v
}

// recordOf is the record of a fact in the journal that it is of.
func recordOf(stream string, f proto.Message) (*messages.Record, error) {
	if strings.HasPrefix(stream, messages.ConversationStream("")) {
		return messages.NewConversationRecord(f)
	}
	return messages.NewRecord(f, "")
}
