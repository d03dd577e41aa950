package actors

import (
	"cmp"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// How turns of a shared conversation are asked for and taken back (ADR 107). One that must wait is durable before whoever asked is told
// that it was accepted, and it waits there: after a crash it is given the word without being asked for again.

// takeTurn takes a turn that is asked for. The same one again is the same turn: whoever asks waits for the same end, or is told that it was accepted.
func (v *Conversation) takeTurn(c actor.Context, m *messages.TakeTurn) {
	id, asker := m.GetTurnId(), c.Sender()
	worker, known := v.whose(id)
	switch {
	case known && worker != m.GetWorkerId():
		v.tell(c, asker, messages.Fail(messages.CodeConflict, fmt.Sprintf("turn %s is somebody else's", id), "give another id"))
	case known && m.GetAccept() && v.state.Withdrawn(id) == nil:
		v.tell(c, asker, v.accepted(m, true))
	case known:
		v.await(c, id)
	default:
		if fail := v.full(); fail != nil {
			v.tell(c, asker, fail)
			return
		}
		done := func(c actor.Context) { v.tell(c, asker, v.accepted(m, false)) }
		if !m.GetAccept() {
			v.waitFor(c, id)
			asker, done = nil, func(actor.Context) {}
		}
		turn := &messages.TurnAsked{TurnId: id, WorkerId: m.GetWorkerId(), Prompt: v.svc.Redact.String(m.GetPrompt()), Name: conversation.PlainName(m.GetMember()), Traceparent: m.GetTraceparent(), By: v.svc.Redact.String(cutText(m.GetBy(), conversation.MaxSharedName))}
		if v.state.Given != nil || len(v.state.Asked) > 0 || v.svc.Still {
			v.appendFor(c, asker, done, turn)
			return
		}
		v.appendFor(c, asker, func(c actor.Context) {
			done(c)
			v.speak(c)
		}, v.gives(turn)...)
	}
}

func (v *Conversation) accepted(m *messages.TakeTurn, before bool) *messages.TurnAccepted {
	return &messages.TurnAccepted{SessionId: v.session, ConversationId: v.id, TurnId: m.GetTurnId(), WorkerId: m.GetWorkerId(), Duplicate: before}
}

// mostAsking is how many turns may wait for the word where limits.queue says nothing.
const mostAsking = 1000

// full refuses one more turn.
func (v *Conversation) full() *messages.Failure {
	if fail := v.over(); fail != nil {
		return fail
	}
	most := v.svc.Limits.Queue
	if most <= 0 {
		most = mostAsking
	}
	if len(v.state.Asked) >= most {
		return messages.Busy(fmt.Sprintf("%d turns wait in the conversation already", most), "wait until some are done, or raise limits.queue", tryAgain)
	}
	return nil
}

// over refuses whatever would be said in a conversation that has all the turns that it may have.
func (v *Conversation) over() *messages.Failure {
	if most := v.svc.Limits.Spoken; most > 0 && v.state.Spoken() >= most {
		return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("conversation %s has %d turns, and may have no more", v.id, v.state.Spoken()), "share another one, or raise limits.spoken")
	}
	if v.state.Full() {
		return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("conversation %s holds %d MiB, and may hold no more", v.id, conversation.MaxTranscript>>20), "share another one")
	}
	return nil
}

// whose is the worker whose turn has an id, also one that waits or was taken back; "" is outside. It is false for an id that nothing has.
func (v *Conversation) whose(id string) (worker string, known bool) {
	if t := v.state.Turn(id); t != nil {
		return cmp.Or(t.GetCut().GetWorkerId(), t.GetTurn().GetWorkerId()), true
	}
	if v.state.Given.GetTurnId() == id {
		return v.state.Given.GetWorkerId(), true
	}
	if f := v.state.Waits(id); f != nil {
		return f.GetWorkerId(), true
	}
	if f := v.state.Withdrawn(id); f != nil {
		return f.GetWorkerId(), true
	}
	return "", false
}

// await answers with the end of a turn, when there is one.
func (v *Conversation) await(c actor.Context, id string) {
	t, back := v.state.Turn(id), v.state.Withdrawn(id)
	_, known := v.whose(id)
	switch {
	case t != nil && t.GetCut() == nil && t.GetTurn().GetWorkerId() == "":
		v.tell(c, c.Sender(), messages.Fail(messages.CodeConflict, fmt.Sprintf("turn %s is a word from outside", id), ""))
	case t != nil:
		v.tell(c, c.Sender(), v.result(t))
	case back != nil:
		v.tell(c, c.Sender(), takenBack(back))
	case !known:
		v.tell(c, c.Sender(), messages.Fail(messages.CodeNotFound, fmt.Sprintf("conversation %s has no turn %s", v.id, id), "ask for it first"))
	default:
		v.waitFor(c, id)
	}
}

func (v *Conversation) waitFor(c actor.Context, id string) {
	if c.Sender() != nil {
		v.waiting[id] = act.Await(c.ActorSystem(), v.waiting[id], c.Sender())
	}
}

func takenBack(f *messages.TurnWithdrawn) *messages.Failure {
	return messages.Fail(messages.CodeWithdrawn, fmt.Sprintf("turn %s was taken back: %s", f.GetTurnId(), orText(f.GetReason(), "cancelled")), "")
}

// next gives the word to who asked first, when nobody has it.
func (v *Conversation) next(c actor.Context) {
	if v.state.Given != nil || len(v.state.Asked) == 0 || v.svc.Still || v.stopped {
		return
	}
	v.append(c, v.speak, v.gives(v.state.Asked[0])...)
}

// gives are the facts that give the word to who has asked; who has not joined joins with it.
func (v *Conversation) gives(f *messages.TurnAsked) (facts []proto.Message) {
	worker := f.GetWorkerId()
	name := v.state.Free(worker, f.GetName())
	if member := v.state.Member(worker); member == nil || member.GetLeft() != "" {
		facts = append(facts, &messages.MemberJoined{WorkerId: worker, Name: name})
	}
	given := v.state.Give(worker, name, f.GetTurnId(), f.GetPrompt())
	given.Traceparent, given.By = f.GetTraceparent(), f.GetBy()
	return append(facts, given)
}

// submit takes a word from outside. Who has the word at that moment hears it with its next turn.
func (v *Conversation) submit(c actor.Context, m *messages.SubmitTurn) {
	asker, id := c.Sender(), m.GetTurnId()
	worker, known := v.whose(id)
	fail := v.over()
	switch {
	case known && worker == "":
		v.tell(c, asker, proto.CloneOf(v.state.Turn(id)))
	case known: // were it written down, the turn that has the id could not be
		v.tell(c, asker, messages.Fail(messages.CodeConflict, fmt.Sprintf("turn %s is a member's", id), "give another id"))
	case fail != nil:
		v.tell(c, asker, fail)
	default:
		said := &messages.TurnSubmitted{TurnId: id, Text: cutText(v.svc.Redact.String(m.GetText()), conversation.MaxSaid), By: conversation.PlainName(m.GetBy())}
		v.appendFor(c, asker, func(c actor.Context) { v.tell(c, asker, proto.CloneOf(v.state.Turn(id))) }, said)
	}
}

// withdraw takes a turn back for somebody outside, who is answered when that is durable. One that has the word is ended: whoever waits for it hears how.
func (v *Conversation) withdraw(c actor.Context, m *messages.WithdrawTurn) {
	id, asker := m.GetTurnId(), c.Sender()
	_, known := v.whose(id)
	switch {
	case !known:
		v.tell(c, asker, messages.Fail(messages.CodeNotFound, fmt.Sprintf("conversation %s has no turn %s", v.id, id), ""))
	case v.state.Turn(id) != nil:
		v.tell(c, asker, committed(id))
	case v.state.Withdrawn(id) != nil:
		v.tell(c, asker, &messages.Ack{})
	case v.state.Waits(id) != nil:
		v.takeBack(c, asker, &messages.RecallInput{By: m.GetBy(), Reason: m.GetReason()}, &messages.Ack{}, v.state.Waits(id))
	case v.talk == nil:
		v.tell(c, asker, messages.Fail(messages.CodeUnavailable, fmt.Sprintf("turn %s has the word, and nobody works here", id), "try again where the session is served"))
	default: // I1: until it is over, the next process would go on with it
		v.ending[id] = act.Await(c.ActorSystem(), v.ending[id], asker)
		v.endTalk(c, &messages.RecallInput{By: m.GetBy(), Reason: m.GetReason()})
	}
}

func committed(turn string) *messages.Failure {
	return messages.Fail(messages.CodeCommitted, fmt.Sprintf("turn %s is over", turn), "what was said stays")
}

// recall takes a turn back that waits for the word, and has the worker end the one that has it.
func (v *Conversation) recall(c actor.Context, m *messages.RecallInput) {
	if f := v.state.Waits(m.GetInputId()); f != nil {
		v.takeBack(c, nil, m, nil, f)
		return
	}
	if v.talk != nil && v.talk.turn == m.GetInputId() {
		v.endTalk(c, m)
	}
}

// takeBack takes turns back that wait, and then replies.
func (v *Conversation) takeBack(c actor.Context, asker *actor.PID, why *messages.RecallInput, reply any, turns ...*messages.TurnAsked) {
	var facts []proto.Message
	for _, f := range turns {
		facts = append(facts, &messages.TurnWithdrawn{
			TurnId: f.GetTurnId(), WorkerId: f.GetWorkerId(), By: v.svc.Redact.String(why.GetBy()), Reason: v.svc.Redact.String(why.GetReason()),
		})
	}
	v.appendFor(c, asker, func(c actor.Context) {
		for _, f := range turns {
			for _, pid := range v.waiting[f.GetTurnId()] {
				v.tell(c, pid, takenBack(v.state.Withdrawn(f.GetTurnId())))
			}
			delete(v.waiting, f.GetTurnId())
		}
		v.tell(c, asker, reply)
	}, facts...)
}

// endTalk has the worker that has the word end its turn.
func (v *Conversation) endTalk(c actor.Context, why *messages.RecallInput) {
	v.toEnd(why)
	c.Send(c.Parent(), v.talk.recall)
}

// toEnd notes that whoever has the word is to end its turn, which is told to its worker when that has it.
func (v *Conversation) toEnd(why *messages.RecallInput) {
	v.talk.recall = &messages.RecallInput{WorkerId: v.talk.worker, InputId: v.talk.turn, By: why.GetBy(), Reason: why.GetReason()}
}

// cancel takes back the turns that wait, and says who has the word. That one's turn ends by its worker, and if it has not reached that, here.
func (v *Conversation) cancel(c actor.Context, m *cancelTalk) {
	why, asker, r := &messages.RecallInput{By: m.why.GetBy(), Reason: m.why.GetReason()}, c.Sender(), &talkCancelled{taken: int32(len(v.state.Asked))} //nolint:gosec // a small count
	if v.talk != nil {
		r.turn = v.talk.turn
		v.toEnd(why)
	}
	if r.taken == 0 {
		v.tell(c, asker, r)
		return
	}
	v.takeBack(c, asker, why, r, v.state.Asked...)
}
