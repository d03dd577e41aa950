package actors

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Conversation is a conversation that several workers of a session share: it owns its journal, and gives the word to one member after
// the other, in the order in which their turns were asked for. A member's turn is a turn of its own worker: the Conversation submits
// what the others said as its input, waits for its end, and writes its answer down as the member's.
//
// One append is under way at a time, and what comes in meanwhile waits.
//
// Accepts: openConversation (first); of its Session TakeTurn, AwaitSharedTurn, WithdrawTurn, SubmitTurn, ReadConversation, RecallInput, cancelTalk and memberGone; its own
// conversationRead, conversationWritten, reached and turnOver. Tells its Session when it rests (conversationRests). Parent: Session. Children: none.
type Conversation struct {
	svc *Services
	log *slog.Logger

	id, session string
	gone        []string // workers that were deleted
	journal     *persistence.Journal
	state       *conversation.Shared
	writing     bool
	writer      *actor.PID              // whoever is answered when the append under way is durable; nil: nobody
	waiting     map[string][]*actor.PID // turn -> who waits for its end
	ending      map[string][]*actor.PID // turn that has the word -> who has taken it back
	talk        *talk                   // whoever has the word; nil: nobody
	kept        act.Stash
	taken       uint64 // commands of its Session, the first one counted
	stopped     bool
	fallen      *messages.Failure // it has failed: what still comes is answered with that, until the Session has it stopped
}

// openConversation is what a Session tells its conversation first.
type openConversation struct {
	id, session string
	gone        []string
}

// memberGone says that a worker was deleted.
type memberGone struct{ worker string }

// conversationRests says that nothing is to be done, after so many commands.
type conversationRests struct {
	id    string
	taken uint64
}

// conversationFell says that it has failed, and is to be stopped and started anew. Until then it answers what comes: a mailbox that has stopped
// says nothing (I10).
type conversationFell struct{ id string }

// Messages of a conversation to itself.
type (
	conversationRead struct {
		journal *persistence.Journal
		state   *conversation.Shared
		err     error
	}
	conversationWritten struct {
		facts   []proto.Message
		records []*messages.Record
		receipt persistence.Receipt
		then    func(actor.Context)
		err     error
	}
)

// Receive dispatches.
func (v *Conversation) Receive(c actor.Context) {
	defer v.rescue(c)
	if v.fallen != nil && v.down(c) {
		return
	}
	switch m := c.Message().(type) {
	case *actor.Started:
	case *openConversation:
		v.begin(c, m)
	case *conversationRead:
		v.read(c, m)
	case *messages.TakeTurn, *messages.AwaitSharedTurn, *messages.WithdrawTurn, *messages.SubmitTurn, *messages.ReadConversation, *messages.RecallInput,
		*cancelTalk, *memberGone:
		v.taken++
		v.inTurn(c)
	case *reached, *turnOver:
		v.inTurn(c)
	case *conversationWritten:
		v.written(c, m)
	case *actor.Stopping:
		v.stopping(c)
	case *actor.Stopped:
		if v.journal != nil {
			v.journal.Release()
		}
		v.journal, v.state, v.waiting, v.ending = nil, nil, nil, nil
	default:
		act.Unexpected(c, v.log)
	}
}

// rescue turns a panic of a handler into an end: the Session starts the conversation anew, from its journal.
func (v *Conversation) rescue(c actor.Context) {
	if p := recover(); p != nil {
		v.log.Error("conversation panicked", "err", fmt.Sprint(p), "message", fmt.Sprintf("%T", c.Message()), "stack", string(debug.Stack()))
		if asker := c.Sender(); asker != nil && !v.waits(asker) { // who waits is answered in stopping
			v.tell(c, asker, messages.Fail(messages.CodeInternal, fmt.Sprintf("the conversation failed while handling %T", c.Message()), "it restarts; try again"))
		}
		v.fall(c, messages.Fail(messages.CodeUnavailable, "the conversation failed", "it restarts; try again"))
	}
}

// fall ends this incarnation: the Session starts the next one, from the journal.
func (v *Conversation) fall(c actor.Context, fail *messages.Failure) {
	if v.fallen != nil {
		return
	}
	v.fallen, v.stopped = fail, true
	if v.talk != nil {
		v.talk.stop()
	}
	v.refuse(c, fail)
	c.Send(c.Parent(), &conversationFell{v.id})
}

// down answers what comes to one that has failed.
func (v *Conversation) down(c actor.Context) bool {
	switch c.Message().(type) {
	case *actor.Stopping, *actor.Stopped:
		return false
	}
	v.tell(c, c.Sender(), v.fallen)
	return true
}

func (v *Conversation) waits(asker *actor.PID) bool {
	for _, asks := range []map[string][]*actor.PID{v.waiting, v.ending} {
		for _, asked := range asks {
			if slices.ContainsFunc(asked, asker.Equal) {
				return true
			}
		}
	}
	return false
}

func (v *Conversation) begin(c actor.Context, m *openConversation) {
	v.taken++
	v.id, v.session, v.gone, v.waiting = m.id, m.session, m.gone, make(map[string][]*actor.PID)
	v.ending = make(map[string][]*actor.PID)
	v.log = v.svc.Log.With("session", m.session, "conversation", m.id)
	svc, id, session := v.svc, m.id, m.session
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any { return &conversationRead{err: p} }, func() any {
		ctx := context.Background()
		j, err := persistence.OpenJournal(ctx, svc.Store, messages.ConversationStream(id), session, svc.Node)
		if err != nil {
			return &conversationRead{err: err}
		}
		j.Now = svc.Now
		state := &conversation.Shared{}
		err = j.Replay(ctx, 1, func(e persistence.Entry) error { return foldShared(state, e) })
		return &conversationRead{journal: j, state: state, err: err}
	})
}

// foldShared applies a record to a shared conversation; one that may be skipped counts.
func foldShared(state *conversation.Shared, e persistence.Entry) error {
	f, err := messages.ConversationFactIn(e.Record)
	if err == nil {
		err = state.Apply(f, e.Record)
	}
	return asDamage(err)
}

func (v *Conversation) read(c actor.Context, m *conversationRead) {
	if m.err != nil {
		v.log.Error("conversation cannot be read", "err", m.err)
		if m.journal != nil {
			m.journal.Release()
		}
		code := messages.CodeUnavailable
		if damaged(m.err) {
			code = messages.CodeCorrupt
		}
		v.fall(c, messages.Fail(code, "read conversation "+v.id+": "+m.err.Error(), "see the log; `troupe verify` looks for damage"))
		return
	}
	v.journal, v.state = m.journal, m.state
	v.speak(c)
	var left []proto.Message
	for _, member := range v.state.Members {
		if slices.Contains(v.gone, member.GetWorkerId()) {
			left = append(left, v.leaves(member.GetWorkerId())...)
		}
	}
	if len(left) > 0 {
		v.append(c, func(actor.Context) {}, left...)
	}
	v.settle(c)
}

// inTurn takes what comes, one at a time.
func (v *Conversation) inTurn(c actor.Context) {
	if v.state == nil || v.writing {
		v.kept.Put(c)
		return
	}
	v.take(c)
	v.settle(c)
}

// settle goes on with what waited, and says when there is nothing left to do.
func (v *Conversation) settle(c actor.Context) {
	v.kept.Replay(c, v.take, func() bool { return !v.writing })
	if !v.writing {
		v.next(c)
	}
	if !v.writing && v.talk == nil {
		c.Send(c.Parent(), &conversationRests{v.id, v.taken})
	}
}

func (v *Conversation) take(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.TakeTurn:
		v.takeTurn(c, m)
	case *messages.AwaitSharedTurn:
		v.await(c, m.GetTurnId())
	case *messages.WithdrawTurn:
		v.withdraw(c, m)
	case *messages.SubmitTurn:
		v.submit(c, m)
	case *messages.ReadConversation:
		v.tell(c, c.Sender(), v.state.View(m.GetAfter(), int(m.GetLimit())))
	case *messages.RecallInput:
		v.recall(c, m)
	case *cancelTalk:
		v.cancel(c, m)
	case *memberGone:
		v.memberGone(c, m)
	case *reached:
		v.reached(c, m)
	case *turnOver:
		v.spoken(c, m)
	}
}

func (v *Conversation) tell(c actor.Context, to *actor.PID, m any) {
	if to != nil {
		c.Send(to, m)
	}
}

// appendFor is append for somebody who waits for it: then answers, or refuse when it does not come to that (I10).
func (v *Conversation) appendFor(c actor.Context, asker *actor.PID, then func(actor.Context), facts ...proto.Message) {
	v.writer = asker
	v.append(c, then, facts...)
}

// append makes facts durable, applies them, and then goes on.
func (v *Conversation) append(c actor.Context, then func(actor.Context), facts ...proto.Message) {
	w := &conversationWritten{facts: facts, then: then}
	for _, f := range facts {
		rec, err := messages.NewConversationRecord(f)
		if err != nil {
			w.err = err
			break
		}
		w.records = append(w.records, rec)
	}
	v.writing = true
	var index []persistence.IndexOp
	if w.err == nil {
		index, w.err = sharedEntry(listedAfter(v.state, facts))
	}
	sys, self := c.ActorSystem(), c.Self()
	if w.err != nil {
		c.Send(self, w)
		return
	}
	v.journal.Append(func(r persistence.Receipt, err error) {
		w.receipt, w.err = r, err
		sys.Root.Send(self, w)
	}, persistence.Draft{Records: w.records, Index: index})
}

// written applies what is durable now, and acts on it.
func (v *Conversation) written(c actor.Context, m *conversationWritten) {
	if m.err == nil {
		for i, f := range m.facts {
			if m.err = v.state.Apply(f, m.records[i]); m.err != nil {
				break
			}
		}
	}
	if m.err != nil {
		v.log.Error("conversation cannot be written", "err", m.err)
		v.fall(c, messages.Fail(messages.CodeUnavailable, "the conversation could not be written", "try again")) // the next incarnation knows what was written
		return
	}
	v.writing, v.writer = false, nil
	p := &messages.Published{FirstCursor: m.receipt.First, LastCursor: m.receipt.Last}
	for i, f := range m.facts {
		if e := conversation.ProjectShared(v.session, v.id, f, m.records[i], m.receipt.First+uint64(i)); e != nil {
			p.Events = append(p.Events, e)
		}
	}
	c.Send(c.Parent(), p)
	m.then(c)
	v.settle(c)
}

// stopping answers whoever waits, once (I10).
func (v *Conversation) stopping(c actor.Context) {
	v.stopped = true
	if v.talk != nil {
		v.talk.stop()
	}
	v.refuse(c, messages.Fail(messages.CodeUnavailable, "the conversation is stopping", "try again"))
}

// refuse answers everybody who waits with the same.
func (v *Conversation) refuse(c actor.Context, fail *messages.Failure) {
	for _, asks := range []map[string][]*actor.PID{v.waiting, v.ending} {
		for _, asked := range asks {
			for _, pid := range asked {
				v.tell(c, pid, fail)
			}
		}
		clear(asks)
	}
	v.tell(c, v.writer, fail)
	v.kept.Each(func(msg any, sender *actor.PID) { v.tell(c, sender, fail) })
	v.writer, v.kept = nil, act.Stash{}
}
