package conversation

import (
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// ProjectShared returns the event of a fact of a shared conversation; nil when it is nobody's business outside. Each fact says all that its
// event needs. input_id is the turn's id, which is that of the input in the member's own conversation.
func ProjectShared(session, id string, fact proto.Message, r *messages.Record, cursor uint64) *messages.Event {
	e := projectShared(fact)
	if e != nil {
		e.Seq, e.AtUnixMs, e.Session, e.Conversation = cursor, r.GetAtUnixMs(), session, id
	}
	return e
}

func projectShared(fact proto.Message) *messages.Event {
	switch f := fact.(type) {
	case *messages.MemberJoined:
		return &messages.Event{Type: messages.EventConversationJoined, Worker: f.GetWorkerId(), Member: f.GetName()}
	case *messages.MemberLeft:
		return &messages.Event{Type: messages.EventConversationLeft, Worker: f.GetWorkerId(), Member: f.GetMember(), Reason: f.GetReason()}
	case *messages.TurnAsked:
		return &messages.Event{Type: messages.EventConversationAsked, Worker: f.GetWorkerId(), InputId: f.GetTurnId(), By: f.GetBy()}
	case *messages.TurnWithdrawn:
		return &messages.Event{Type: messages.EventConversationWithdrawn, Worker: f.GetWorkerId(), InputId: f.GetTurnId(), By: f.GetBy(), Reason: f.GetReason()}
	case *messages.TurnGiven:
		return &messages.Event{Type: messages.EventConversationGiven, Worker: f.GetWorkerId(), Member: f.GetMember(), InputId: f.GetTurnId(), By: f.GetBy()}
	case *messages.TurnSubmitted:
		return &messages.Event{
			Type: messages.EventConversationSaid, Worker: f.GetWorkerId(), Member: f.GetMember(), InputId: f.GetTurnId(), Text: f.GetText(), By: f.GetBy(), Usage: f.GetUsage(),
		}
	case *messages.TurnCut:
		return &messages.Event{
			Type: messages.EventConversationCut, Worker: f.GetWorkerId(), Member: f.GetMember(), InputId: f.GetTurnId(),
			Outcome: f.GetOutcome(), ErrorCode: f.GetCode(), Reason: f.GetReason(), Usage: f.GetUsage(),
		}
	}
	return nil
}
