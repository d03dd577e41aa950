package actors

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// A copy, of a folder or a repository, is made off the mailbox before anything is written down, so that the session goes on meanwhile:
// rules are revoked, trust is taken back, other copies are made. Then, in its turn, it is looked at again whether the session may have it.
// Who closes the session, deletes the parent of a worker or cancels the call that delegates ends the making at once: who asked is
// told, and what was made goes.

// making is a copy under way.
type making struct {
	asker  *actor.PID
	spec   *messages.WorkspaceSpec // it is to be attached
	worker *newcomer               // it is a worker's own
	waits  act.Stash               // who asks for the same worker meanwhile
	end    context.CancelFunc
	stage  atomic.Int32
	a      *messages.WorkspaceAttached // once it is made
}

// Stages of a making. Whoever takes it from one to the next sees to the copy.
const (
	underWay int32 = iota
	made           // the copy lies there
	takenOver
)

// copyMade is the end of a making.
type copyMade struct {
	making *making
	fail   *messages.Failure
}

// startMaking makes a copy as it is told.
func (s *Session) startMaking(c actor.Context, m *making, do func(context.Context) (*messages.WorkspaceAttached, *messages.Failure)) {
	if s.makings == nil {
		s.makings = make(map[*making]struct{})
	}
	s.makings[m] = struct{}{}
	svc, away := s.svc, &s.rest.away
	ctx, cancel := svc.whileRunning(s.living())
	m.end = cancel
	away.Add(1)
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		return &copyMade{m, messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		defer away.Add(-1)
		defer cancel()
		a, fail := do(ctx)
		m.a = a
		if fail == nil && m.stage.CompareAndSwap(underWay, made) {
			return &copyMade{making: m}
		}
		svc.unmake(a) // also when nobody wants it any more
		return &copyMade{m, fail}
	})
}

// copyMade gives a copy to what it was made for.
func (s *Session) copyMade(c actor.Context, r *copyMade) {
	m := r.making
	if _, wanted := s.makings[m]; !wanted {
		return
	}
	if r.fail != nil {
		s.endMaking(c, m, r.fail)
		return
	}
	if s.building { // one change of the session at a time
		s.builds.Put(c)
		return
	}
	delete(s.makings, m)
	m.stage.Store(takenOver)
	if m.worker == nil {
		s.attachMade(c, m)
		return
	}
	s.build(c, m.asker, m.worker, m.a)
	m.waits.Replay(c, func(c actor.Context) { s.builds.Put(c) }, func() bool { return true })
}

// attachMade attaches a copy as any workspace is. Others may have come since it was asked for.
func (s *Session) attachMade(c actor.Context, m *making) {
	svc, have := s.svc, s.facts.attached
	s.change(c, m.asker, func() (proto.Message, string, *messages.Failure) {
		a, fail := svc.place(m.spec, have)
		if fail != nil {
			svc.unmake(m.a)
			return nil, "", fail
		}
		m.a.Name, m.a.Order = a.GetName(), a.GetOrder()
		return m.a, m.a.GetUri(), nil
	})
}

// endMaking ends a making, and tells who waits for it why.
func (s *Session) endMaking(c actor.Context, m *making, why *messages.Failure) {
	delete(s.makings, m)
	m.end()
	if svc := s.svc; m.stage.Swap(takenOver) == made {
		svc.aside(func() { svc.unmake(m.a) })
	}
	s.tell(c, m.asker, why)
	m.waits.Each(func(_ any, sender *actor.PID) { s.tell(c, sender, why) })
}

// endMakings ends some makings.
func (s *Session) endMakings(c actor.Context, why *messages.Failure, those func(*making) bool) {
	for m := range s.makings {
		if those(m) {
			s.endMaking(c, m, why)
		}
	}
}

// makingsOf are those for workers that some others have delegated to.
func makingsOf(parents []string) func(*making) bool {
	return func(m *making) bool {
		return m.worker != nil && m.worker.spawned.GetParent() != "" && slices.Contains(parents, m.worker.spawned.GetParent())
	}
}

// makingFor finds the one for the worker of a call.
func (s *Session) makingFor(exec string) *making {
	for m := range s.makings {
		if m.worker != nil && exec != "" && m.worker.spawned.GetExecId() == exec {
			return m
		}
	}
	return nil
}

// endedEarly is told to who waits for a copy that nobody wants any more.
func endedEarly(what string) *messages.Failure {
	return messages.Fail(messages.CodeClosed, what+" while a copy of files was being made for it", "")
}
