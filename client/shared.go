package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// shared says which request a command about shared conversations is; nil for any other. What is said gets its id here, when it has none: sent
// twice, it is said once.
func shared(base string, m *messages.ToSession) *call {
	switch x := m.GetCommand().(type) {
	case *messages.ToSession_ShareConversation:
		return post(base, messages.ShareJSON{Name: x.ShareConversation.GetName()}, as[messages.ConversationJSON])
	case *messages.ToSession_ReadConversation:
		q := get(base+"/"+segment(x.ReadConversation.GetName()), as[messages.ConversationJSON], "limit", strconv.Itoa(int(x.ReadConversation.GetLimit())))
		if after := x.ReadConversation.GetAfter(); after > 0 {
			q.query.Set("after", strconv.FormatUint(min(after, 1<<63-1), 10)) // the largest that a route takes; no record comes near to it
		}
		return q
	case *messages.ToSession_SubmitTurn:
		body := messages.WordFrom(x.SubmitTurn)
		if body.Turn == "" {
			body.Turn = messages.NewID(messages.InputPrefix)
		}
		q := post(base+"/"+segment(x.SubmitTurn.GetName())+"/words", body, as[messages.SharedTurnJSON])
		q.key = body.Turn
		return q
	case *messages.ToSession_TakeTurn:
		body := messages.TakeTurnFrom(x.TakeTurn)
		if body.Turn == "" {
			body.Turn = messages.NewID(messages.InputPrefix)
		}
		q := post(base+"/"+segment(x.TakeTurn.GetName())+"/turns", body, accepted)
		q.key = body.Turn
		return q
	case *messages.ToSession_AwaitSharedTurn:
		return get(base+"/"+segment(x.AwaitSharedTurn.GetName())+"/turns/"+segment(x.AwaitSharedTurn.GetTurnId()), as[messages.ResultJSON])
	case *messages.ToSession_WithdrawTurn:
		return remove(base+"/"+segment(x.WithdrawTurn.GetName())+"/turns/"+segment(x.WithdrawTurn.GetTurnId()),
			"by", x.WithdrawTurn.GetBy(), "reason", x.WithdrawTurn.GetReason())
	}
	return nil
}

func accepted(body []byte, h http.Header) (proto.Message, error) {
	m, err := as[messages.TurnAcceptedJSON](body, h)
	if t, is := m.(*messages.TurnAccepted); is {
		t.Duplicate = h.Get(replayedHeader) != ""
	}
	return m, err
}

// turn asks for a turn of a shared conversation, and then waits for its end.
func (c *Client) turn(ctx context.Context, session string, m *messages.TakeTurn) (proto.Message, error) {
	m = proto.CloneOf(m)
	m.Accept = true
	reply, err := c.askOnce(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_TakeTurn{TakeTurn: m}})
	if err != nil {
		return nil, err
	}
	t, is := reply.(*messages.TurnAccepted)
	if !is {
		return nil, fmt.Errorf("ask for a turn: answered %T", reply)
	}
	return c.askOnce(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_AwaitSharedTurn{
		AwaitSharedTurn: &messages.AwaitSharedTurn{Name: t.GetConversationId(), TurnId: t.GetTurnId()},
	}})
}

// wholePage is how many turns are asked for at once where all are wanted.
const wholePage = 1000

// transcript reads all turns of a shared conversation, page by page.
func (c *Client) transcript(ctx context.Context, session string, m *messages.ReadConversation) (proto.Message, error) {
	var turns []*messages.SharedTurn
	for after := m.GetAfter(); ; {
		reply, err := c.askOnce(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_ReadConversation{
			ReadConversation: &messages.ReadConversation{Name: m.GetName(), After: after, Limit: wholePage},
		}})
		if err != nil {
			return nil, err
		}
		v, is := reply.(*messages.SharedConversation)
		if !is {
			return nil, fmt.Errorf("read a conversation: answered %T", reply)
		}
		turns = append(turns, v.GetTurns()...)
		if v.GetNext() == 0 {
			v.Turns = turns
			return v, nil
		}
		after = v.GetNext()
	}
}
