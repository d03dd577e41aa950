package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// workerBuilt is what the goroutine that wrote a new worker down came to.
type workerBuilt struct {
	asker   *actor.PID
	journal *persistence.Journal // of the session, nil when it is the same
	spawned *messages.WorkerSpawned
	facts   []proto.Message // of the session
	records []*messages.Record
	grant   *messages.Grant // with its copy; nil: it has none
	born    *opened         // its beginning; nil: it reads that itself
	fail    *messages.Failure
}

// spawnWorker adds a worker to the session. It is written down, in one append over both journals,
// before it exists; the mailbox goes on meanwhile, and when it fails nothing half-built remains
// (row 82). Requests for workers are served one after the other: they share the session's journal.
func (s *Session) spawnWorker(c actor.Context, m *messages.SpawnWorker) {
	if s.building {
		s.builds.Put(c)
		return
	}
	profile, ok := s.svc.agent(m.GetAgent())
	if !ok {
		s.answer(c, messages.Fail(messages.CodeAgent, fmt.Sprintf("agent %q is not configured", m.GetAgent()), "see `agents:` in the configuration"))
		return
	}
	if most := s.svc.Limits.Workers; most > 0 && s.hired() >= most {
		s.answer(c, messages.Fail(messages.CodeBusy, fmt.Sprintf("the session has %d workers already", most), "delete some, or raise limits.workers"))
		return
	}
	created := &messages.WorkerCreated{
		WorkerId: messages.NewID(messages.WorkerPrefix), SessionId: s.id, Agent: profile.Name, Model: m.GetModel(), System: s.svc.Redact.String(m.GetSystem()),
		Origin: m.GetOrigin(), Copied: m.GetCopied(),
	}
	if created.GetModel() == "" {
		created.Model = profile.Model
	}
	if created.GetModel() == "" {
		created.Model = s.facts.created.GetModel()
	}
	if created.GetSystem() == "" {
		created.System = profile.System
	}
	var of *messages.WorkspaceGrant
	if m.GetIsolate() || profile.Isolate {
		var fail *messages.Failure
		if of, fail = s.isolated(s.grant.GetWorkspaces(), m.GetIsolate()); fail != nil {
			s.answer(c, fail)
			return
		}
	}
	s.hire(c, &newcomer{spawned: &messages.WorkerSpawned{WorkerId: created.GetWorkerId(), Agent: created.GetAgent(), Model: created.GetModel()}, created: created}, of)
}

// newcomer is a worker that is to be.
type newcomer struct {
	spawned *messages.WorkerSpawned
	created *messages.WorkerCreated
	task    *messages.InputAccepted // its first input; nil: it has none
}

// hire makes a worker for who asked. of is the workspace that it gets a copy of first; nil: none.
func (s *Session) hire(c actor.Context, n *newcomer, of *messages.WorkspaceGrant) {
	if of == nil {
		s.build(c, c.Sender(), n, nil)
		return
	}
	svc, session := s.svc, s.id
	s.startMaking(c, &making{asker: c.Sender(), worker: n}, func(ctx context.Context) (*messages.WorkspaceAttached, *messages.Failure) {
		if fail := n.renders(); fail != nil {
			return nil, fail
		}
		return svc.ownCopy(ctx, session, n.spawned.GetWorkerId(), of)
	})
}

// renders refuses a copied history that cannot be rendered, before anything is made for it.
func (n *newcomer) renders() *messages.Failure {
	if err := (&conversation.State{}).ApplyFact(n.created, &messages.Record{Seq: 1}); err != nil {
		return messages.Fail(messages.CodeBadRequest, "spawn a worker: "+err.Error(), "")
	}
	return nil
}

// build writes a worker down off the mailbox, for who asked. a is the copy that it works in; nil: it has none.
func (s *Session) build(c actor.Context, asker *actor.PID, n *newcomer, a *messages.WorkspaceAttached) {
	s.building = true
	svc, sys, journal, facts := s.svc, c.ActorSystem(), s.journal, s.facts
	i := slices.IndexFunc(s.grant.GetWorkspaces(), func(g *messages.WorkspaceGrant) bool { return g.GetUri() == a.GetSource() })
	of := &messages.WorkspaceGrant{}
	if i >= 0 {
		of = s.grant.GetWorkspaces()[i]
	}
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		return &workerBuilt{asker: asker, fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		j, err := writable(svc, journal, facts.seq)
		if err != nil {
			svc.unmake(a)
			return &workerBuilt{asker: asker, fail: messages.Fail(messages.CodeUnavailable, "spawn a worker: "+err.Error(), "")}
		}
		fail := n.renders()
		if fail == nil && a != nil && i < 0 {
			fail = messages.Fail(messages.CodeNoWorkspace, a.GetSource()+" was detached while a copy of it was made", "")
		}
		if fail != nil {
			svc.unmake(a)
			return &workerBuilt{asker: asker, journal: j, fail: fail}
		}
		own := &ownGrant{}
		if a != nil {
			if own, fail = withCopy(svc, sys, facts, n.spawned, of, a); fail != nil {
				return &workerBuilt{asker: asker, journal: j, fail: fail}
			}
		}
		b := buildWorker(svc, j, own, n.spawned, n.created, n.task)
		b.asker, b.journal, b.grant = asker, j, own.grant
		return b
	})
}

// hired counts the workers that somebody has spawned: those that agents delegate to have a limit of their own.
func (s *Session) hired() (n int) {
	for _, w := range s.workers {
		if w.spawned.GetParent() == "" && w.spawned.GetRunId() == "" {
			n++
		}
	}
	for m := range s.makings {
		if m.worker != nil && m.worker.spawned.GetParent() == "" {
			n++
		}
	}
	return n
}

// writable returns the session's journal, opened again when an earlier append of it was refused. One that
// another runtime has taken over stays theirs.
func writable(svc *Services, j *persistence.Journal, seq uint64) (*persistence.Journal, error) {
	if j.Err() == nil || errors.Is(j.Err(), persistence.ErrFenced) {
		return j, j.Err()
	}
	again, err := persistence.OpenJournal(context.Background(), svc.Store, j.Stream(), j.Session(), svc.Node)
	if err != nil {
		return nil, err
	}
	if again.Next() != seq+1 { // the refused append was made after all
		again.Release()
		return nil, fmt.Errorf("journal %s has %d records, of which %d are known: %w", j.Stream(), again.Next()-1, seq, persistence.ErrConflict)
	}
	again.Now = svc.Now
	return again, nil
}

// buildWorker writes a worker down, with its task if it has one.
func buildWorker(svc *Services, journal *persistence.Journal, own *ownGrant, spawned *messages.WorkerSpawned, created *messages.WorkerCreated, task *messages.InputAccepted) *workerBuilt {
	failed := func(code string, err error) *workerBuilt {
		return &workerBuilt{fail: messages.Fail(code, "spawn a worker: "+err.Error(), "")}
	}
	ofSession := []proto.Message{spawned}
	if own.attached != nil { // its copy is known before it is
		ofSession = []proto.Message{own.attached, spawned}
	}
	srecs, err := records(ofSession)
	if err != nil {
		return failed(messages.CodeInternal, err)
	}
	facts, state, staged := []proto.Message{created}, stateInactive, int32(0)
	if task != nil {
		facts, state, staged = append(facts, task), stateWaiting, 1
	}
	wrecs, err := records(facts)
	if err != nil {
		return failed(messages.CodeInternal, err)
	}
	wj, err := persistence.OpenJournal(context.Background(), svc.Store, messages.WorkerStream(created.GetWorkerId()), created.GetSessionId(), svc.Node)
	if err != nil {
		return failed(messages.CodeUnavailable, err)
	}
	wj.Now = svc.Now
	view, err := proto.Marshal(&messages.WorkerView{
		Id: created.GetWorkerId(), SessionId: created.GetSessionId(), State: state, Staged: staged, Agent: created.GetAgent(), Model: created.GetModel(),
		UpdatedAtUnixMs: svc.Now().UnixMilli(), Parent: created.GetParent(), Background: created.GetBackground(),
	})
	if err != nil {
		wj.Release()
		return failed(messages.CodeInternal, err)
	}
	index := append([]persistence.IndexOp{{Key: WorkerKey(created.GetSessionId(), created.GetWorkerId()), Value: view}}, own.entry...)
	receipt, err := appendAndWait(svc,
		persistence.Part{Journal: journal, Draft: persistence.Draft{Records: srecs, Index: index}},
		persistence.Part{Journal: wj, Draft: persistence.Draft{Records: wrecs}})
	if err != nil {
		wj.Release()
		return failed(messages.CodeUnavailable, err)
	}
	return &workerBuilt{spawned: spawned, facts: ofSession, records: srecs, born: bear(wj, facts, wrecs, receipt.Last)}
}

// workerBuilt starts a worker that was written down, and answers.
func (s *Session) workerBuilt(c actor.Context, m *workerBuilt) {
	s.building = false
	if m.journal != nil {
		s.journal = m.journal
	}
	var reply any = m.fail
	switch {
	case m.fail != nil:
	case m.spawned.GetParent() != "" || m.spawned.GetRunId() != "":
		reply = &messages.ChildReady{WorkerId: m.spawned.GetWorkerId(), InputId: m.spawned.GetInputId()}
	default:
		reply = &messages.WorkerView{
			Id: m.spawned.GetWorkerId(), SessionId: s.id, State: stateInactive, Agent: m.spawned.GetAgent(), Model: m.spawned.GetModel(),
		}
	}
	if m.fail == nil {
		s.rest.begun.Add(1) // before who asked goes on, and may rest: who waits for all to rest looks again
	}
	if m.asker != nil { // it is durable, whatever comes
		c.Send(m.asker, reply)
	}
	if m.fail == nil {
		for i, f := range m.facts {
			if err := s.facts.apply(f, m.records[i]); err != nil {
				s.log.Error("session facts out of order", "err", err)
			}
		}
		if m.grant != nil {
			s.regrantAll(c, m.grant)
		}
		w := s.add(m.spawned)
		w.born = m.born
		w.needed = m.spawned.GetRunId() != ""
		s.joinTill(m.spawned)
		s.start(c, w)
	}
	s.goOn(c)
}

// goOn takes up what came while the session's journal was being written: it may be that nothing else comes for a long time.
func (s *Session) goOn(c actor.Context) {
	s.builds.Replay(c, s.ready, func() bool { return !s.building })
	s.pay(c)
}

// keep holds a command back until the worker's successor is there.
func (w *member) keep(c actor.Context, cmd any) { w.queue.PutAs(c, cmd) }

// canAsk says whether somebody may answer what its workers' calls ask.
func (s *Session) canAsk() bool {
	return !s.facts.created.GetNoInput() && (s.facts.created.GetAsk() || s.svc.Asks)
}

// oneRecord is the record of a fact, with the journal that takes it.
func oneRecord(svc *Services, journal *persistence.Journal, seq uint64, fact proto.Message) (*persistence.Journal, *messages.Record, error) {
	j, err := writable(svc, journal, seq)
	if err != nil {
		return nil, nil, err
	}
	recs, err := records([]proto.Message{fact})
	if err != nil {
		return j, nil, err
	}
	recs[0].AtUnixMs = svc.Now().UnixMilli()
	return j, recs[0], nil
}
