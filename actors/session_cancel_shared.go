package actors

import (
	"context"
	"errors"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// How a session's work is cancelled where workers share conversations (ADR 109): what waits for the word is taken back durably before the workers are cancelled,
// and the answer comes after whoever had the word has lost it. Else what was cancelled would go on in the next process.

type (
	// cancelTalk has a conversation take back what waits in it. Reply: talkCancelled, once that is durable.
	cancelTalk struct {
		id  string
		why *messages.CancelSession
	}
	talkCancelled struct {
		turn  string // has the word still; empty: nobody has
		taken int32  // turns that waited
	}
	// cancelWorkers is the rest of a CancelSession.
	cancelWorkers struct{ m *messages.CancelSession }
)

// cancelTalks says whether it goes on with a cancel: off the mailbox, and in the end it has the workers cancelled, too.
func (s *Session) cancelTalks(c actor.Context, m *messages.CancelSession) bool {
	if len(s.facts.shared) == 0 {
		return false
	}
	awake := make(map[string]bool)
	for id, x := range s.shared {
		if !x.closing && (x.pid != nil || x.failures > 0 || x.queue.Len() > 0) {
			awake[id] = true
		}
	}
	svc, sys, self, id, asker, away := s.svc, c.ActorSystem(), c.Self(), s.id, c.Sender(), &s.rest.away
	away.Add(1)
	svc.spawn(sys, asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), svc.Limits.Grace+cancelWait)
		defer cancel()
		return cancelAround(ctx, svc, sys, self, talksOf(ctx, svc, id, awake), m)
	})
	return true
}

// talksOf adds to the conversations that are there those in which, as they are listed, somebody has the word or waits.
func talksOf(ctx context.Context, svc *Services, session string, awake map[string]bool) map[string]bool {
	all, err := SharedConversations(ctx, svc.Store, session)
	if err != nil { // whoever reads them says what is wrong
		svc.Log.Warn("shared conversations cannot be listed", "session", session, "err", err)
	}
	for _, v := range all {
		if v.GetSpeaking() != "" || v.GetWaiting() > 0 {
			awake[v.GetConversationId()] = true
		}
	}
	return awake
}

// cancelAround cancels conversations, the workers, and then what a worker has of a conversation before its own turn.
func cancelAround(ctx context.Context, svc *Services, sys *actor.ActorSystem, session *actor.PID, talks map[string]bool, m *messages.CancelSession) proto.Message {
	var taken int32
	var fail *messages.Failure
	speaking := make(map[string]string)
	for id := range talks {
		r, err := untilKnown(ctx, svc, func() (*talkCancelled, error) { return act.Ask[*talkCancelled](ctx, sys, session, &cancelTalk{id, m}) })
		switch {
		case err == nil:
			taken += r.taken
			speaking[id] = r.turn
		case !noTalk(err):
			fail = asFailure(err)
		}
	}
	sum, err := act.Ask[*messages.Cancelled](ctx, sys, session, &cancelWorkers{m})
	if err != nil {
		return asFailure(err)
	}
	for id, turn := range speaking {
		if turn == "" {
			continue
		}
		_, err := untilKnown(ctx, svc, func() (proto.Message, error) {
			sys.Root.Send(session, &messages.RecallInput{Conversation: id, InputId: turn, By: m.GetBy(), Reason: m.GetReason()})
			return act.Ask[proto.Message](ctx, sys, session, &messages.AwaitSharedTurn{Name: id, TurnId: turn})
		})
		var over *messages.Failure
		// An end that is told as a failure is an end; a conversation that cannot say, as its end cannot be written down, has not told of one (I1).
		if err != nil && (!errors.As(err, &over) || over.GetCode() == messages.CodeUnavailable) {
			fail = asFailure(err)
		}
	}
	if fail != nil {
		return fail
	}
	sum = proto.CloneOf(sum)
	sum.Inputs += taken
	return sum
}

// noTalk says of a conversation that nothing of it goes on: it is closed, or its journal is damaged.
func noTalk(err error) bool {
	var f *messages.Failure
	return errors.As(err, &f) && (f.GetCode() == messages.CodeClosed || f.GetCode() == messages.CodeCorrupt || f.GetCode() == messages.CodeNotFound)
}
