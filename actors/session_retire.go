package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// The worker of an item of a run leaves memory once its item is over and it rests: a run has thousands of them, and is there as long as
// the last one works. It comes back like a child that slept, when somebody wants something of it.

// restsAt is the end of the wait for a worker that is to leave memory.
type restsAt struct {
	worker string
	used   uint64 // what the worker was asked before
	rests  bool
}

// longestRetreat is how long one waits for a worker to come to rest. One that does not stays until its session leaves.
const longestRetreat = time.Minute

// stepOver waits until a worker rests, off the mailbox.
func (s *Session) stepOver(c actor.Context, m *messages.StepOver) {
	w := s.workers[m.GetWorkerId()]
	switch {
	case w == nil && s.building: // it may be just that one, or one that waits behind it
		s.builds.Put(c)
		return
	case w == nil || w.pid == nil || w.quarantined != "":
		return
	}
	sys, pid, out := c.ActorSystem(), w.pid, &restsAt{worker: w.id, used: w.used}
	s.svc.spawn(sys, c.Self(), func(*act.Panic) any { return out }, func() any {
		ctx, cancel := context.WithTimeout(context.Background(), longestRetreat)
		defer cancel()
		if _, err := act.Ask[*messages.Ack](ctx, sys, pid, &messages.WaitIdle{WorkerId: out.worker}); err == nil {
			v, err := act.AskSoon[*messages.Idleness](ctx, sys, pid, &messages.ReportIdle{})
			out.rests = err == nil && v.GetIdle()
		}
		return out
	})
}

// retire ends a worker that rests; one that was asked something since is waited for again. What it was sent before is handled first; what comes
// now waits for its end.
func (s *Session) retire(c actor.Context, m *restsAt) {
	w := s.workers[m.worker]
	switch {
	case w == nil || w.pid == nil || w.quarantined != "" || s.ending || !m.rests:
		return
	case w.used != m.used:
		s.stepOver(c, &messages.StepOver{WorkerId: m.worker})
		return
	}
	c.Poison(w.pid)
	w.pid, w.retiring = nil, true
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
