package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// The worker of an item of a run leaves memory once its item is over and it rests: a run has thousands of them, and is there as long as
// the last one works. Those that it has delegated to leave after it. A worker comes back like a child that slept, when somebody wants something of it, and
// leaves again: only while its run works with it (member.needed) it stays, so that whatever wakes it need not say that it is done.

// restsAt is the end of the wait for a worker that is to leave memory.
type restsAt struct {
	worker string
	pid    *actor.PID
	used   uint64 // what the worker was asked before
	rests  bool
	late   bool // it has not come to rest for long
}

// longestRetreat is how long one waits for a worker to come to rest, before one looks anew at whether it still is to leave.
const longestRetreat = time.Minute

// stepOver lets a worker leave that its run works with no longer.
func (s *Session) stepOver(c actor.Context, m *messages.StepOver) {
	w := s.workers[m.GetWorkerId()]
	switch {
	case w != nil:
		w.needed = false
		s.retreat(c, w)
	case s.building: // it may be just that one, or one that waits behind it
		s.builds.Put(c)
	}
}

// leaves says whether a worker is to be in memory no longer than it has something to do.
func (s *Session) leaves(w *member) bool {
	if w.spawned.GetRunId() != "" {
		return !w.needed
	}
	parent := s.workers[w.spawned.GetParent()]
	return parent != nil && parent.spawned.GetRunId() != "" && !parent.needed
}

// retreat waits until a worker rests that is to leave, off the mailbox.
func (s *Session) retreat(c actor.Context, w *member) {
	if w.pid == nil || w.retreating || w.quarantined != "" || s.ending || !s.leaves(w) {
		return
	}
	w.retreating = true
	svc, sys, out := s.svc, c.ActorSystem(), &restsAt{worker: w.id, pid: w.pid, used: w.used}
	svc.spawn(sys, c.Self(), func(*act.Panic) any { return out }, func() any {
		ctx, cancel := context.WithTimeout(context.Background(), longestRetreat)
		defer cancel()
		for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
			if _, err := act.Ask[*messages.Ack](ctx, sys, out.pid, &messages.WaitIdle{WorkerId: out.worker}); err != nil {
				break
			}
			v, err := act.AskSoon[*messages.Idleness](ctx, sys, out.pid, &messages.ReportIdle{})
			if out.rests = err == nil && v.GetIdle(); out.rests || err != nil || !svc.pause(pause) { // who waits for a turn of it keeps it
				break
			}
		}
		out.late = ctx.Err() != nil
		return out
	})
}

// retire ends a worker that rests; one that was asked something since is waited for again. What it was sent before is handled first; what comes
// now waits for its end.
func (s *Session) retire(c actor.Context, m *restsAt) {
	w := s.workers[m.worker]
	if w == nil {
		return
	}
	w.retreating = false
	switch {
	case w.pid == nil || w.quarantined != "" || s.ending || !s.leaves(w):
		return
	case !w.pid.Equal(m.pid) || w.used != m.used || m.late:
		s.retreat(c, w)
		return
	case !m.rests:
		return // it ends, or fails: its successor is looked at when it starts
	}
	c.Poison(w.pid)
	w.pid, w.retiring = nil, true
	for _, id := range w.children {
		if child := s.workers[id]; child != nil {
			s.retreat(c, child)
		}
	}
}

// retired says whether it was such a worker that ended, which now sleeps.
func (s *Session) retired(c actor.Context, w *member) bool {
	if !w.retiring {
		return false
	}
	w.retiring, w.dormant = false, true
	if w.queue.Len() > 0 {
		s.wake(c, w)
	}
	return true
}

// unneeded is every worker at the start of its run, which says anew what it works with.
func (s *Session) unneeded(c actor.Context) {
	for _, id := range s.order {
		if w := s.workers[id]; w.needed {
			w.needed = false
			s.retreat(c, w)
		}
	}
}
