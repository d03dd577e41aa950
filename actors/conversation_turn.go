package actors

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// How a shared conversation gives the word (ADR 60). TurnGiven is durable before the member's worker has the input, and TurnSubmitted or
// TurnCut before anybody else has the word. The input's id is the turn's, so that it is taken once however often it is submitted.

// talk is who has the word.
type talk struct {
	turn, worker string
	stop         context.CancelFunc
	recall       *messages.RecallInput // it is to end; nil: it is not
}

type (
	// reached says that the worker has the input.
	reached struct{ turn string }
	// turnOver is what a turn came to.
	turnOver struct {
		turn   string
		result *messages.TurnResult
		err    error
	}
)

// speak has whoever has the word take its turn, off the mailbox.
func (v *Conversation) speak(c actor.Context) {
	g := v.state.Given
	if g == nil || v.talk != nil || v.svc.Still || v.stopped {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	v.talk = &talk{turn: g.GetTurnId(), worker: g.GetWorkerId(), stop: stop}
	svc, sys, self, session, turn := v.svc, c.ActorSystem(), c.Self(), c.Parent(), g.GetTurnId()
	input := &messages.SubmitInput{
		WorkerId: g.GetWorkerId(), InputId: turn, Origin: messages.InputAccepted_SYSTEM, From: v.id, Parts: textParts(v.state.Told()),
		Traceparent: g.GetTraceparent(),
	}
	svc.spawn(sys, self, func(p *act.Panic) any { return &turnOver{turn: turn, err: p} }, func() any {
		defer stop()
		var f *messages.Failure
		_, err := untilKnown(ctx, svc, func() (*messages.InputReply, error) { return act.Ask[*messages.InputReply](ctx, sys, session, input) })
		if err != nil && (!errors.As(err, &f) || f.GetCode() != messages.CodeConflict) { // it may have it from an earlier version, in other words
			return &turnOver{turn: turn, err: err}
		}
		sys.Root.Send(self, &reached{turn})
		res, err := untilKnown(ctx, svc, func() (*messages.TurnResult, error) {
			return act.Ask[*messages.TurnResult](ctx, sys, session, &messages.AwaitTurn{WorkerId: input.GetWorkerId(), InputId: turn})
		})
		return &turnOver{turn, res, err}
	})
}

// untilKnown asks until there is an answer, however long something restarts.
func untilKnown[T any](ctx context.Context, svc *Services, ask func() (T, error)) (T, error) {
	for {
		got, err := patiently(ctx, ask)
		var f *messages.Failure
		passing := errors.Is(err, act.ErrGone) || errors.As(err, &f) && f.GetCode() == messages.CodeUnavailable
		if err == nil || !passing || ctx.Err() != nil || !svc.pause(postPause) {
			return got, err
		}
	}
}

// reached recalls an input that was to end before its worker had it.
func (v *Conversation) reached(c actor.Context, m *reached) {
	if v.talk != nil && v.talk.turn == m.turn && v.talk.recall != nil {
		c.Send(c.Parent(), v.talk.recall)
	}
}

// spoken writes down what became of a turn. Who cannot speak any more is a member no longer.
func (v *Conversation) spoken(c actor.Context, m *turnOver) {
	if v.talk == nil || v.talk.turn != m.turn || v.state.Given.GetTurnId() != m.turn {
		return
	}
	v.talk = nil
	g, res := v.state.Given, m.result
	done, member := func(c actor.Context) { v.answer(c, m.turn) }, v.state.Member(g.GetWorkerId()).GetName()
	if m.err == nil && res.GetOutcome() == messages.TurnCompleted_DONE {
		v.append(c, done, &messages.TurnSubmitted{
			WorkerId: g.GetWorkerId(), TurnId: m.turn, Text: cutText(strings.TrimSpace(res.GetText()), conversation.MaxSaid), Usage: res.GetUsage(), ConversationSeq: res.GetConversationSeq(),
			Member: member,
		})
		return
	}
	cut := &messages.TurnCut{TurnId: m.turn, WorkerId: g.GetWorkerId(), Member: member}
	if m.err == nil {
		cut.Outcome, cut.Code, cut.Reason = conversation.OutcomeName(res.GetOutcome()), res.GetErrorCode(), res.GetReason()
		cut.Heard, cut.Usage, cut.ConversationSeq = !res.GetUnheard(), res.GetUsage(), res.GetConversationSeq()
	} else {
		var f *messages.Failure
		cut.Code, cut.Reason = messages.CodeInternal, m.err.Error()
		if errors.As(m.err, &f) {
			cut.Code, cut.Reason = f.GetCode(), f.GetMessage()
		}
	}
	facts, dead := []proto.Message{cut}, slices.Contains(v.gone, g.GetWorkerId())
	switch cut.GetCode() {
	case messages.CodeQuarantined, messages.CodeNotFound, messages.CodeClosed:
		dead = dead || m.err != nil
	}
	if dead {
		facts = append(facts, &messages.MemberLeft{WorkerId: g.GetWorkerId(), Member: member, Reason: orText(cut.GetReason(), "it was deleted")})
	}
	v.append(c, done, facts...)
}

// answer tells whoever waits for a turn what it came to.
func (v *Conversation) answer(c actor.Context, turn string) {
	t := v.state.Turn(turn)
	for _, pid := range v.waiting[turn] {
		v.tell(c, pid, v.result(t))
	}
	delete(v.waiting, turn)
	for _, pid := range v.ending[turn] {
		if t.GetCut() == nil {
			v.tell(c, pid, committed(turn))
			continue
		}
		v.tell(c, pid, &messages.Ack{})
	}
	delete(v.ending, turn)
}

// result is what a turn came to, as the journal has it.
func (v *Conversation) result(t *messages.SharedTurn) any {
	cut := t.GetCut()
	switch {
	case cut != nil && cut.GetOutcome() == "":
		return messages.Fail(cut.GetCode(), cut.GetReason(), "")
	case cut != nil:
		return &messages.TurnResult{
			SessionId: v.session, WorkerId: cut.GetWorkerId(), TurnId: cut.GetTurnId(), Outcome: conversation.OutcomeNamed(cut.GetOutcome()), Reason: cut.GetReason(),
			ErrorCode: cut.GetCode(), Usage: cut.GetUsage(), ConversationSeq: cut.GetConversationSeq(), Unheard: !cut.GetHeard(), CompletedAtUnixMs: t.GetAtUnixMs(),
		}
	}
	said := t.GetTurn()
	return &messages.TurnResult{
		SessionId: v.session, WorkerId: said.GetWorkerId(), TurnId: said.GetTurnId(), Outcome: messages.TurnCompleted_DONE, Text: said.GetText(), Usage: said.GetUsage(),
		ConversationSeq: said.GetConversationSeq(), CompletedAtUnixMs: t.GetAtUnixMs(),
	}
}

// memberGone notes that a worker was deleted.
func (v *Conversation) memberGone(c actor.Context, m *memberGone) {
	v.gone = append(v.gone, m.worker)
	if left := v.leaves(m.worker); len(left) > 0 {
		v.append(c, func(actor.Context) {}, left...)
	}
}

// leaves is the end of a worker that was deleted as a member. One that has the word leaves with the end of its turn.
func (v *Conversation) leaves(worker string) []proto.Message {
	m := v.state.Member(worker)
	if m == nil || m.GetLeft() != "" || v.state.Given.GetWorkerId() == worker {
		return nil
	}
	return []proto.Message{&messages.MemberLeft{WorkerId: worker, Member: m.GetName(), Reason: "it was deleted"}}
}
