package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// opened is the recovered state, read off the mailbox.
type opened struct {
	journal *persistence.Journal
	state   *conversation.State
	snaps   *snapshots
	err     error
	broken  *act.Panic // instead of err
}

// open claims the stream and folds it, in a goroutine: a long history must not hold the mailbox.
func (w *Worker) open(c actor.Context) {
	w.become((*Worker).opening, stateInactive)
	svc, id, session, last := w.svc, w.id, w.session, w.openings+1 >= poisonAfter
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any { return &opened{broken: p} }, func() any {
		return openWorker(svc, id, session, last)
	})
}

// openWorker claims and folds a worker's journal. What is in there may make that panic; with the last try it is put on the list
// of those that are quarantined.
func openWorker(svc *Services, id, session string, last bool) (o *opened) {
	j, err := persistence.OpenJournal(context.Background(), svc.Store, messages.WorkerStream(id), session, svc.Node)
	if err != nil {
		return &opened{err: err}
	}
	j.Now = svc.Now
	if p := act.Guard(func() { o = recoverWorker(svc, j, id, session) }); p != nil {
		if last {
			listQuarantine(svc, j, id, session, openingPanicked(p))
		}
		j.Release()
		return &opened{broken: p}
	}
	return o
}

func openingPanicked(p *act.Panic) string {
	return fmt.Sprintf("opening it panicked %d times in a row: %v", poisonAfter, p.Reason)
}

func recoverWorker(svc *Services, j *persistence.Journal, id, session string) *opened {
	ctx := context.Background()
	s, snaps, err := recoverState(ctx, svc, j)
	if err == nil && !s.Exists() {
		err = fmt.Errorf("worker %s has no beginning: %w", id, persistence.ErrCorrupt)
	}
	if err != nil {
		if errors.Is(err, persistence.ErrCorrupt) {
			listQuarantine(svc, j, id, session, err.Error())
		}
		j.Release()
	}
	return &opened{journal: j, state: s, snaps: snaps, err: err}
}

// opening waits for the recovered state; everything else waits with it.
func (w *Worker) opening(c actor.Context) {
	m, ok := c.Message().(*opened)
	if !ok {
		w.wait(c)
		return
	}
	if m.broken != nil {
		w.openingPanicked(c, m.broken)
		return
	}
	if m.err != nil {
		w.log.Error("worker cannot be recovered", "err", m.err)
		w.down(c, m.err.Error(), errors.Is(m.err, persistence.ErrCorrupt))
		return
	}
	w.recovered(c, m)
}

// recovered goes on with the state that the journal gives.
func (w *Worker) recovered(c actor.Context, m *opened) {
	w.journal, w.state, w.snaps, w.anew = m.journal, m.state, m.snaps, true
	w.projector.Lookup, w.projector.Called = w.generation, w.called
	w.inherit()
	w.reportBudget(c)
	w.narrowSleepers(c)
	c.Send(c.Parent(), &workerKnown{w.id})
	switch {
	case w.barred(c):
	case w.releasedBy != "" || w.openings > 0 && w.stash.Holds(w.isRelease): // from a quarantine that its journal does not know of
		w.released(c)
	default:
		w.takeUp(c)
	}
}

// openingPanicked ends this incarnation. Nothing is known of the journal, so that the Session counts the tries.
func (w *Worker) openingPanicked(c actor.Context, p *act.Panic) {
	w.log.Error("opening the worker panicked", "err", p.Error(), "stack", p.Stack, "count", w.openings+1)
	if w.openings+1 < poisonAfter {
		w.end(c, &messages.WorkerFailed{WorkerId: w.id, Reason: p.Error(), Opening: true})
		return
	}
	w.end(c, &messages.WorkerFailed{WorkerId: w.id, Reason: w.svc.Redact.String(openingPanicked(p)), Opening: true, Quarantine: true})
}

// takeUp goes on with what the journal says: an open turn, or whatever comes next.
func (w *Worker) takeUp(c actor.Context) {
	w.post(c)
	if w.state.Turn() == nil || w.svc.Still {
		w.advance(c)
		w.replay(c)
		return
	}
	w.log.Info("turn goes on after a restart", "turn", w.state.Turn().ID)
	w.resumeTrace()
	w.lease(c, w.consult)
	w.replay(c)
}

// wait keeps a message for later, answering what can be answered before.
func (w *Worker) wait(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.DescribeWorker:
		if w.state == nil { // what its journal says is not known yet, and it is shown as it was listed
			c.Respond(messages.Fail(messages.CodeUnavailable, "the worker reads its journal", "try again"))
			return
		}
		c.Respond(w.view())
	case *messages.Watched:
		w.watch(c, m)
	case *messages.Configure:
		w.configure(c, m)
	default:
		w.stash.Put(c)
	}
}

// resume decides about all open calls at once, writes the decisions down in one append, and only
// then acts on them.
func (w *Worker) resume(c actor.Context) {
	t := w.state.Turn()
	if t == nil { // cancelled while the lease was awaited
		w.giveBackAll(c)
		w.advance(c)
		return
	}
	w.armWall(c)
	w.phase = stateWorking
	decisions := w.state.Recover()
	w.decided = nil
	facts, fail := w.decide(decisions)
	fail = fail || w.failing || t.Cancelled == nil && t.Doomed() != nil
	a := &messages.Activated{Decisions: decisions, Leases: w.leases.held}
	w.activated = false
	w.appendActivated(c, nil, func(c actor.Context) {
		if fail {
			w.failTurn(c)
			return
		}
		w.advance(c)
	}, a, facts...)
}

// decide keeps what is to be done about calls of unknown outcome, and makes the results of those
// about which nothing can be done. fail says that one of these ends the turn.
func (w *Worker) decide(decisions []*messages.RecoveryDecision) (facts []proto.Message, fail bool) {
	if w.decided == nil {
		w.decided = make(map[string]messages.RecoveryDecision_Action, len(decisions))
	}
	t := w.state.Turn()
	w.recall(decisions)
	for _, d := range decisions {
		call := t.Call(d.GetExecId())
		switch d.GetAction() {
		case messages.RecoveryDecision_ASK_PERSON:
			if t.Cancelled != nil {
				facts = append(facts, interrupted(call))
			} else if !call.InDoubt() {
				facts = append(facts, doubted(call))
			}
		case messages.RecoveryDecision_REPORT_UNKNOWN:
			facts = append(facts, interrupted(call))
		case messages.RecoveryDecision_FAIL_TURN:
			facts = append(facts, interrupted(call))
			fail = true
		case messages.RecoveryDecision_KNOWN:
			if call.Settled() {
				facts = append(facts, conversation.ResultOf(call, call.Answer))
			} else {
				facts = append(facts, finished(w.known[d.GetExecId()]))
			}
		default:
			w.decided[d.GetExecId()] = d.GetAction()
		}
	}
	if t.Cancelled != nil {
		facts = append(facts, w.closeCancelled(decisions)...)
	}
	return facts, fail
}

// closeCancelled ends what was open when the process died during a cancel.
func (w *Worker) closeCancelled(decisions []*messages.RecoveryDecision) []proto.Message {
	var facts []proto.Message
	for _, d := range decisions {
		if _, open := w.decided[d.GetExecId()]; open && !w.mustEnd(w.state.Turn().Call(d.GetExecId())) {
			call := w.state.Turn().Call(d.GetExecId())
			if ends := unanswered(call, w.state.Turn().Cancelled.GetBy()); ends != nil {
				facts = append(facts, ends...)
			} else {
				facts = append(facts, cancelledCall(call))
			}
			delete(w.decided, d.GetExecId())
		}
	}
	return facts
}

// readTurn answers for a turn that is not the newest: it is read from the journal.
func (w *Worker) readTurn(c actor.Context, turn string) {
	svc, id, session, sys, asker := w.svc, w.id, w.session, c.ActorSystem(), c.Sender()
	svc.spawn(sys, asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		read, err := ReadTurns(context.Background(), svc.Store, id)
		if err != nil {
			return messages.Fail(messages.CodeCorrupt, err.Error(), "")
		}
		for _, t := range read.Turns {
			if t.ID == turn {
				return outcome(t, t.Result(session, id))
			}
		}
		if read.Trimmed {
			return messages.Fail(messages.CodeTrimmed, fmt.Sprintf("turn %s is not in the journal any more: its beginning was trimmed away", turn), "")
		}
		return messages.Fail(messages.CodeNotFound, fmt.Sprintf("turn %s is not in the journal", turn), "")
	})
}
