package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// How a session leaves memory (house rule 4). Its timer fires when nothing has been asked of it for a
// while; it then asks its workers, and if they rest, too, the Supervisor (SessionIdle). The Supervisor
// routes nothing to it from then on and says so (Passivate). Whatever it was sent before has been
// handled by then: if something was, it stays (Staying), else it ends its workers, then itself. What
// arrived meanwhile the Supervisor hands to it, or to its next incarnation.

// rest is what a session knows of its own idleness.
type rest struct {
	timer act.Timer
	used  uint64       // commands so far; looking at a session does not keep it, and is not counted
	since time.Time    // of the newest one
	asked uint64       // used as it was when the Supervisor was asked
	away  atomic.Int32 // goroutines that talk to the workers for somebody

	begun atomic.Uint64 // what may have given a worker something to do: starts, and words that it was passed
}

// Messages of a session to itself.
type (
	idleDue   struct{ gen uint64 }
	idleKnown struct {
		used uint64
		idle bool
		left time.Duration // until it has rested long enough
		room bool          // it was asked to leave, however short its rest
	}
)

// use notes that something was asked of the session.
func (s *Session) use() {
	s.rest.used++
	if s.svc.IdleAfter > 0 {
		s.rest.since = s.svc.Now()
	}
}

// aboutRest is what comes while a session rests, or is to.
func (s *Session) aboutRest(c actor.Context) {
	switch m := c.Message().(type) {
	case *idleDue:
		s.idleDue(c, m)
	case *idleKnown:
		s.idleKnown(c, m)
	case *messages.Passivate:
		s.passivate(c)
	case *messages.MakeRoom:
		s.makeRoom(c)
	case *askAwake:
		s.answer(c, s.whoIsAwake())
	case *askSilence:
		s.onSilence(c)
	}
}

// watchRest arms the timer, when sessions leave memory at all.
func (s *Session) watchRest(c actor.Context, after time.Duration) {
	if s.svc.IdleAfter > 0 {
		s.rest.timer.Set(c, after, func(gen uint64) any { return &idleDue{gen} })
	}
}

// resting says whether the session itself has nothing to do. Its workers are asked apart.
func (s *Session) resting() bool {
	if !s.runRests() || !s.sharedRest() || len(s.watchers) > 0 || s.building || len(s.makings) > 0 || s.builds.Len() > 0 || s.rest.away.Load() > 0 {
		return false
	}
	for _, w := range s.workers {
		if w.quarantined == "" && w.pid == nil && !w.dormant || w.queue.Len() > 0 {
			return false
		}
	}
	return true
}

// idleDue asks the workers whether they rest, off the mailbox.
func (s *Session) idleDue(c actor.Context, m *idleDue) {
	if !s.rest.timer.Fresh(m.gen) {
		return
	}
	s.rest.timer.Stop()
	if left := s.svc.IdleAfter - s.svc.Now().Sub(s.rest.since); left > 0 || !s.resting() {
		s.watchRest(c, max(left, s.svc.IdleAfter/2))
		return
	}
	s.askRest(c, &idleKnown{used: s.rest.used, left: s.svc.IdleAfter})
}

// makeRoom leaves memory if the session rests, for how short a while ever.
func (s *Session) makeRoom(c actor.Context) {
	if !s.resting() {
		c.Send(c.Parent(), &messages.Staying{SessionId: s.id})
		return
	}
	s.askRest(c, &idleKnown{used: s.rest.used, left: s.svc.IdleAfter, room: true})
}

// askRest asks the workers whether they rest, off the mailbox.
func (s *Session) askRest(c actor.Context, known *idleKnown) {
	var pids []*actor.PID
	if s.run != nil && s.run.pid != nil {
		pids = append(pids, s.run.pid)
	}
	for _, w := range s.workers {
		if w.pid != nil {
			pids = append(pids, w.pid)
		}
	}
	svc, sys := s.svc, c.ActorSystem()
	svc.spawn(sys, c.Self(), func(*act.Panic) any { return known }, func() any {
		idle, left := restOf(svc, sys, pids)
		known.idle, known.left = idle && (left <= 0 || known.room), left
		return known
	})
}

// restOf asks workers whether they rest, and how long they still should.
func restOf(svc *Services, sys *actor.ActorSystem, pids []*actor.PID) (idle bool, left time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, pid := range pids {
		v, err := act.AskSoon[*messages.Idleness](ctx, sys, pid, &messages.ReportIdle{})
		if err != nil || !v.GetIdle() {
			return false, svc.IdleAfter
		}
		now := svc.Now()
		if due := v.GetDueUnixMs(); due != 0 && time.UnixMilli(due).Sub(now) < dueSoon {
			return false, svc.IdleAfter
		}
		left = max(left, svc.IdleAfter-now.Sub(time.UnixMilli(v.GetSinceUnixMs())))
	}
	return true, left
}

// dueSoon is how near a timer keeps its session in memory.
const dueSoon = time.Minute

// idleKnown asks the Supervisor for the end, unless something has come since.
func (s *Session) idleKnown(c actor.Context, m *idleKnown) {
	if !m.idle || m.used != s.rest.used || !s.resting() {
		if m.room {
			c.Send(c.Parent(), &messages.Staying{SessionId: s.id})
		}
		s.watchRest(c, max(m.left, s.svc.IdleAfter/2))
		return
	}
	s.rest.asked = s.rest.used
	s.log.Debug("session leaves memory, unless somebody needs it")
	c.Request(c.Parent(), &messages.SessionIdle{SessionId: s.id})
}

// passivate is the Supervisor's word that nothing more comes.
func (s *Session) passivate(c actor.Context) {
	if s.rest.asked != s.rest.used || !s.resting() {
		c.Send(c.Parent(), &messages.Staying{SessionId: s.id})
		s.watchRest(c, s.svc.IdleAfter)
		return
	}
	s.ending = true // whoever ends now is not replaced
	s.receive = func(s *Session, c actor.Context) {
		s.answer(c, messages.Fail(messages.CodeUnavailable, "the session leaves memory", "try again"))
	}
	left := 0
	if s.run != nil && s.run.pid != nil {
		left++
		c.Poison(s.run.pid)
	}
	for _, x := range s.shared {
		if x.pid != nil {
			left++
			c.Poison(x.pid)
		}
	}
	for _, w := range s.workers {
		w.timer.Stop()
		if w.pid != nil {
			left++
			c.Poison(w.pid) // what it was sent before is handled first
		}
	}
	if left == 0 {
		c.Stop(c.Self())
	}
}

// lastOut ends a session that leaves memory, after its last worker.
func (s *Session) lastOut(c actor.Context) {
	if s.run != nil && s.run.pid != nil {
		return
	}
	for _, x := range s.shared {
		if x.pid != nil {
			return
		}
	}
	for _, w := range s.workers {
		if w.pid != nil {
			return
		}
	}
	c.Stop(c.Self())
}
