package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// maxTurnsAsked is how many turns may wait for the word.
const maxTurnsAsked = 1000

// takeTurn takes a turn that is asked for. The same one again waits for the same end.
func (v *Conversation) takeTurn(c actor.Context, m *messages.TakeTurn) {
	id := m.GetTurnId()
	worker, known := v.whose(id)
	switch t := v.state.Turn(id); {
	case known && worker != m.GetWorkerId():
		v.tell(c, c.Sender(), messages.Fail(messages.CodeConflict, fmt.Sprintf("turn %s is somebody else's", id), "give another id"))
		return
	case t != nil:
		v.tell(c, c.Sender(), v.result(t))
		return
	case !known && len(v.queue) >= maxTurnsAsked:
		v.tell(c, c.Sender(), messages.Fail(messages.CodeBusy, fmt.Sprintf("%d turns wait in the conversation already", len(v.queue)), "try again later"))
		return
	case !known:
		v.queue = append(v.queue, m)
	}
	if c.Sender() != nil {
		v.waiting[id] = act.Await(c.ActorSystem(), v.waiting[id], c.Sender())
	}
}

// whose is the worker whose turn has an id, also one that waits; "" is outside. It is false for an id that nothing has.
func (v *Conversation) whose(id string) (worker string, known bool) {
	if t := v.state.Turn(id); t != nil {
		return cmp.Or(t.GetCut().GetWorkerId(), t.GetTurn().GetWorkerId()), true
	}
	if v.state.Given.GetTurnId() == id {
		return v.state.Given.GetWorkerId(), true
	}
	for _, m := range v.queue {
		if m.GetTurnId() == id {
			return m.GetWorkerId(), true
		}
	}
	return "", false
}

// next gives the word to who asked first, when nobody has it.
func (v *Conversation) next(c actor.Context) {
	if v.state.Given != nil || len(v.queue) == 0 || v.svc.Still || v.stopped {
		return
	}
	m := v.queue[0]
	v.queue = v.queue[1:]
	worker := m.GetWorkerId()
	var facts []proto.Message
	if member := v.state.Member(worker); member == nil || member.GetLeft() != "" {
		facts = append(facts, &messages.MemberJoined{WorkerId: worker, Name: v.state.Free(worker, m.GetMember())})
	}
	v.append(c, v.speak, append(facts, v.state.Give(worker, m.GetTurnId(), v.svc.Redact.String(m.GetPrompt())))...)
}

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
	done := func(c actor.Context) { v.answer(c, m.turn) }
	if m.err == nil && res.GetOutcome() == messages.TurnCompleted_DONE {
		v.append(c, done, &messages.TurnSubmitted{
			WorkerId: g.GetWorkerId(), TurnId: m.turn, Text: cutText(strings.TrimSpace(res.GetText()), conversation.MaxSaid), Usage: res.GetUsage(), ConversationSeq: res.GetConversationSeq(),
		})
		return
	}
	cut := &messages.TurnCut{TurnId: m.turn, WorkerId: g.GetWorkerId()}
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
		facts = append(facts, &messages.MemberLeft{WorkerId: g.GetWorkerId(), Reason: orText(cut.GetReason(), "it was deleted")})
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

// submit takes a word from outside. Who has the word at that moment hears it with its next turn.
func (v *Conversation) submit(c actor.Context, m *messages.SubmitTurn) {
	asker, id := c.Sender(), m.GetTurnId()
	switch worker, known := v.whose(id); {
	case !known:
		said := &messages.TurnSubmitted{TurnId: id, Text: cutText(v.svc.Redact.String(m.GetText()), conversation.MaxSaid), By: conversation.PlainName(m.GetBy())}
		v.append(c, func(c actor.Context) { v.tell(c, asker, proto.CloneOf(v.state.Turn(id))) }, said)
	case worker == "":
		v.tell(c, asker, proto.CloneOf(v.state.Turn(id)))
	default: // were it written down, the turn that has the id could not be
		v.tell(c, asker, messages.Fail(messages.CodeConflict, fmt.Sprintf("turn %s is a member's", id), "give another id"))
	}
}

// recall takes a turn back that waits for the word, and has the worker end the one that has it.
func (v *Conversation) recall(c actor.Context, turn string, m *messages.RecallInput) {
	for i, other := range v.queue {
		if other.GetTurnId() == turn {
			v.queue = append(v.queue[:i:i], v.queue[i+1:]...)
			for _, pid := range v.waiting[turn] {
				v.tell(c, pid, messages.Fail(messages.CodeWithdrawn, fmt.Sprintf("turn %s was taken back: %s", turn, orText(m.GetReason(), "cancelled")), ""))
			}
			delete(v.waiting, turn)
			return
		}
	}
	if v.talk == nil || v.talk.turn != turn {
		return
	}
	v.talk.recall = &messages.RecallInput{WorkerId: v.talk.worker, InputId: turn, By: m.GetBy(), Reason: m.GetReason()}
	c.Send(c.Parent(), v.talk.recall)
}

// cancel ends the turn that has the word, and takes back those that wait for it.
func (v *Conversation) cancel(c actor.Context, m *messages.CancelSession) {
	why := &messages.RecallInput{By: m.GetBy(), Reason: m.GetReason()}
	for len(v.queue) > 0 {
		v.recall(c, v.queue[0].GetTurnId(), why)
	}
	if v.talk != nil {
		v.recall(c, v.talk.turn, why)
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
	if m := v.state.Member(worker); m == nil || m.GetLeft() != "" || v.state.Given.GetWorkerId() == worker {
		return nil
	}
	return []proto.Message{&messages.MemberLeft{WorkerId: worker, Reason: "it was deleted"}}
}
