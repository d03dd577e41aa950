package actors

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// A worker is deleted in two steps: it writes down its end (Closed), after that of its turn, and then the session
// writes down that it has ended (WorkerEnded). Between the two it takes nothing, and is deleted again by who asks again.
//
// A session that is to go for good is marked as such before the first step: from then on it takes nothing, nobody opens it, and what a crash
// leaves of it goes at the next start.

// ending is a deletion under way: of one worker, or of the session with all of its workers.
type ending struct {
	asker   *actor.PID
	workers []string
	reason  string
	by      string
	session bool
	doom    bool // only the mark is written
}

// Results of the goroutines of a deletion.
type (
	workersClosed struct { // the first step is done
		ending
		fail *messages.Failure
	}
	endWritten struct { // the second step is done
		ending
		journal *persistence.Journal
		facts   []proto.Message
		records []*messages.Record
		receipt persistence.Receipt
		grant   *messages.Grant // without their copies; nil: they had none
		fail    *messages.Failure
	}
)

func (s *Session) deleteWorker(c actor.Context, m *messages.DeleteWorker) {
	if s.workers[m.GetWorkerId()] == nil {
		s.route(c, m) // to be refused
		return
	}
	s.end(c, ending{asker: c.Sender(), workers: []string{m.GetWorkerId()}, reason: m.GetReason(), by: m.GetBy()})
}

func (s *Session) closeSession(c actor.Context, m *messages.CloseSession) {
	e := ending{asker: c.Sender(), workers: append([]string(nil), s.order...), reason: m.GetReason(), by: cmp.Or(m.GetBy(), byUser), session: true}
	s.closeRun(c)
	s.closeShared(c)
	s.endMakings(c, endedEarly("the session was closed"), func(*making) bool { return true })
	switch {
	case !m.GetForget() || s.doomed:
		s.end(c, e)
	case s.building: // the session's journal has one append at a time
		s.builds.Put(c)
	default:
		e.doom, s.building = true, true
		svc, journal, seq, index := s.svc, s.journal, s.facts.seq, []persistence.IndexOp{{Key: markKey(s.id), Value: []byte(markDoomed)}}
		svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
			return &endWritten{ending: e, fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
		}, func() any { return writeEnd(svc, journal, seq, &endWritten{ending: e}, index) })
	}
}

// byUser is who closes a session when nobody is named.
const byUser = "user"

// doom goes on with a session whose mark is written.
func (s *Session) doom(c actor.Context, e ending) {
	s.doomed, e.doom = true, false
	e.workers = append([]string(nil), s.order...)
	s.end(c, e)
	s.goOn(c)
}

// end takes the first step.
func (s *Session) end(c actor.Context, e ending) {
	s.endMakings(c, endedEarly("the agent that delegates was deleted"), makingsOf(e.workers))
	svc, sys, self, session, away := s.svc, c.ActorSystem(), c.Self(), s.id, &s.rest.away
	away.Add(1)
	svc.spawn(sys, self, func(p *act.Panic) any {
		return &workersClosed{e, messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), svc.Limits.Grace+cancelWait)
		defer cancel()
		_, barred, fail := each(ctx, sys, self, e.workers, func(id string) proto.Message {
			return &messages.DeleteWorker{WorkerId: id, By: e.by, Reason: e.reason}
		})
		svc.folders.endOf(e.workers, "its agent was deleted") // on machines of others, too
		svc.away.forget(e.workers)
		for _, id := range barred { // it writes nothing more, whether its end has come or not: the claim takes its journal from it
			// One that is damaged is written by nobody.
			if err := closeJournal(ctx, svc, session, id, e.reason); err != nil && !damaged(err) && fail == nil {
				fail = messages.Fail(messages.CodeUnavailable, "delete worker "+id+": "+err.Error(), "try again")
			}
		}
		return &workersClosed{e, fail}
	})
}

// closeJournal writes down the end of a worker that is quarantined: nobody else writes its journal.
func closeJournal(ctx context.Context, svc *Services, session, id, reason string) error {
	j, err := persistence.OpenJournal(ctx, svc.Store, messages.WorkerStream(id), session, svc.Node)
	if err != nil {
		return err
	}
	defer j.Release()
	j.Now = svc.Now
	recs, err := records([]proto.Message{&messages.Closed{Reason: reason}})
	if err != nil {
		return err
	}
	d := persistence.Draft{Records: recs}
	if d.Index, d.Timers, err = owed(ctx, svc.Store, session, id); err != nil {
		return err
	}
	_, err = appendAndWait(svc, persistence.Part{Journal: j, Draft: d})
	return err
}

// unasked takes back what the run of a session that is closed still asks. The claim takes its journal from it: it asks nothing more.
func unasked(svc *Services, session, run string) ([]persistence.IndexOp, error) {
	ctx := context.Background()
	j, err := persistence.OpenJournal(ctx, svc.Store, messages.RunStream(run), "", svc.Node)
	switch {
	case err == nil:
		j.Release()
	case !damaged(err): // one that is damaged is written by nobody
		return nil, err
	}
	ops, _, err := owed(ctx, svc.Store, session, run)
	return ops, err
}

// owed takes back what is listed of a worker, or run, whose journal perhaps does not fold: approvals, calls in doubt, timers.
func owed(ctx context.Context, store persistence.Store, session, worker string) (ops []persistence.IndexOp, timers []persistence.TimerOp, err error) {
	questions, err := Approvals(ctx, store, session)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range questions {
		if v.GetWorkerId() == worker {
			word := []byte(conversation.DecisionName(messages.Decision_CANCELLED))
			ops = append(ops, persistence.IndexOp{Key: ApprovalKey(session, v.GetApprovalId()), Delete: true}, persistence.IndexOp{Key: AnsweredKey(v.GetApprovalId(), session), Value: word})
		}
	}
	doubts, err := CallsInDoubt(ctx, store, session)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range doubts {
		if v.GetWorkerId() == worker {
			ops = append(ops, persistence.IndexOp{Key: DoubtKey(session, v.GetExecId()), Delete: true})
		}
	}
	err = store.Due(ctx, time.Unix(1<<40, 0), func(t persistence.Timer) error {
		if strings.HasPrefix(t.ID, timerKey(session, worker, "")) {
			timers = append(timers, persistence.TimerOp{ID: t.ID, Delete: true})
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list timers: %w", err)
	}
	return ops, timers, nil
}

// workersClosed takes the second step, in its turn: the session's journal has one append at a time.
func (s *Session) workersClosed(c actor.Context, m *workersClosed) {
	if s.building {
		s.builds.Put(c)
		return
	}
	if m.fail != nil {
		s.tell(c, m.asker, m.fail)
		return
	}
	var facts []proto.Message
	var index []persistence.IndexOp
	for _, id := range m.workers {
		if s.workers[id] == nil {
			continue // deleted by somebody else meanwhile
		}
		facts = append(facts, &messages.WorkerEnded{WorkerId: id, Reason: m.reason})
		index = append(index, persistence.IndexOp{Key: WorkerKey(s.id, id), Delete: true})
	}
	if m.session {
		facts = append(facts, &messages.SessionClosed{Reason: m.reason, By: m.by})
		index = append(index, persistence.IndexOp{Key: SessionKey(s.id), Delete: true})
		if id := s.facts.created.GetRunId(); id != "" {
			index = append(index, persistence.IndexOp{Key: RunKey(id), Delete: true})
		}
		for _, f := range s.facts.shared {
			index = append(index, persistence.IndexOp{Key: SharedKey(s.id, f.GetConversationId()), Delete: true})
		}
		for _, v := range s.facts.rules {
			index = append(index, persistence.IndexOp{Key: RuleKey(s.id, v.GetRuleId()), Delete: true})
		}
	}
	if len(facts) == 0 {
		s.tell(c, m.asker, &messages.Ack{})
		return
	}
	s.building = true
	svc, sys, id, journal, is, e := s.svc, c.ActorSystem(), s.id, s.journal, s.facts, m.ending
	copies := !m.session && s.copiesOfWorkers(m.workers)
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		return &endWritten{ending: e, fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		w, seq := &endWritten{ending: e, facts: facts}, is.seq
		if copies {
			var entry []persistence.IndexOp
			if w.grant, entry, w.fail = changed(svc, &is, facts...); w.fail == nil {
				w.fail = openWorkspaces(svc, sys, id, w.grant)
			}
			if w.fail != nil {
				return w
			}
			index = append(index, entry...)
		}
		if run := is.created.GetRunId(); m.session && run != "" {
			ops, err := unasked(svc, id, run)
			if err != nil {
				w.fail = messages.Fail(messages.CodeUnavailable, "delete: "+err.Error(), "try again")
				return w
			}
			index = append(index, ops...)
		}
		return writeEnd(svc, journal, seq, w, index)
	})
}

func writeEnd(svc *Services, journal *persistence.Journal, seq uint64, w *endWritten, index []persistence.IndexOp) *endWritten {
	j, err := writable(svc, journal, seq)
	if err == nil {
		w.journal = j
		w.records, err = records(w.facts)
	}
	if err == nil {
		w.receipt, err = appendAndWait(svc, persistence.Part{Journal: j, Draft: persistence.Draft{Records: w.records, Index: index}})
	}
	if err != nil {
		w.fail = messages.Fail(messages.CodeUnavailable, "delete: "+err.Error(), "try again")
	}
	return w
}

// appendAndWait makes one append and waits for it.
func appendAndWait(svc *Services, parts ...persistence.Part) (persistence.Receipt, error) {
	type answer struct {
		receipt persistence.Receipt
		err     error
	}
	done := make(chan answer, 1)
	persistence.AppendTogether(func(r persistence.Receipt, err error) { done <- answer{r, err} }, parts...)
	select {
	case a := <-done:
		return a.receipt, a.err
	case <-svc.stopped:
		return persistence.Receipt{}, persistence.ErrClosed
	}
}

// endWritten lets go of the workers that have ended, and of the session if that has.
func (s *Session) endWritten(c actor.Context, m *endWritten) {
	s.building = false
	if m.journal != nil {
		s.journal = m.journal
	}
	if m.fail != nil {
		s.tell(c, m.asker, m.fail)
		s.goOn(c)
		return
	}
	if m.doom {
		s.doom(c, m.ending)
		return
	}
	s.discardCopies(func(a *messages.WorkspaceAttached) bool {
		return !m.session && slices.Contains(m.workers, a.GetWorker())
	})
	s.written(c, m.facts, m.records, m.receipt)
	for _, id := range m.workers {
		s.remove(c, id)
	}
	if m.grant != nil {
		s.regrantAll(c, m.grant)
		s.keepWorkspaces(c)
	}
	s.tell(c, m.asker, &messages.Ack{})
	if m.session {
		s.over(c)
		return
	}
	for _, id := range m.workers {
		if f := s.facts.gone[id]; f != nil {
			s.tellLost(f, wasDeleted, c)
		}
	}
	s.recallOrphans(c)
	s.goOn(c)
}

// written applies facts of the session that are durable now, and tells the watchers.
func (s *Session) written(c actor.Context, facts []proto.Message, records []*messages.Record, r persistence.Receipt) {
	p := &messages.Published{FirstCursor: r.First, LastCursor: r.Last}
	var projector conversation.Projector
	for i, f := range facts {
		if err := s.facts.apply(f, records[i]); err != nil {
			s.log.Error("session facts out of order", "err", err)
		}
		if e := projector.Project(s.id, "", f, records[i], r.First+uint64(i)); e != nil {
			p.Events = append(p.Events, e)
		}
	}
	s.publish(c, p)
}

func (s *Session) tell(c actor.Context, who *actor.PID, msg any) {
	if who != nil {
		c.Send(who, msg)
	}
}

// remove forgets a worker that has ended.
func (s *Session) remove(c actor.Context, id string) {
	w := s.workers[id]
	if w == nil {
		return
	}
	w.timer.Stop()
	gone := messages.Fail(messages.CodeNotFound, fmt.Sprintf("worker %s was deleted", id), "")
	w.queue.Each(func(_ any, sender *actor.PID) { s.tell(c, sender, gone) })
	if w.pid != nil {
		c.Poison(w.pid)
	}
	s.tellShared(c, &memberGone{id})
	w.born.release()
	delete(s.workers, id)
	delete(s.byCall, w.spawned.GetExecId())
	for i, other := range s.order {
		if other == id {
			s.order = append(s.order[:i:i], s.order[i+1:]...)
			break
		}
	}
}

// over refuses everything from now on, and asks the Supervisor for the end.
func (s *Session) over(c actor.Context) {
	s.discardCopies(func(*messages.WorkspaceAttached) bool { return true })
	closed := sessionClosed(s.id)
	s.endMakings(c, closed, func(*making) bool { return true })
	s.endLife()
	refuse := func(_ any, sender *actor.PID) { s.tell(c, sender, closed) }
	s.builds.Each(refuse)
	s.receive = func(s *Session, c actor.Context) { s.answer(c, closed) }
	c.Send(c.Parent(), &messages.SessionEnded{SessionId: s.id})
}

func sessionClosed(id string) *messages.Failure {
	return messages.Fail(messages.CodeClosed, fmt.Sprintf("session %s was closed", id), "begin another one")
}
