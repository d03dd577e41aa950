package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// release starts a quarantined worker again. It writes down that it was released before it does anything, and
// answers then. What is free already is answered as it is.
func (s *Session) release(c actor.Context, asked *messages.ReleaseWorker) {
	m := proto.CloneOf(asked)
	if m.GetWorkerId() == "" {
		m.WorkerId = s.first()
	}
	if m.GetBy() == "" {
		m.By = "user"
	}
	if w := s.workers[m.GetWorkerId()]; w != nil {
		w.tried = false
	}
	s.releaseOnce(c, m)
}

// releaseOnce is release for a word that a worker handed back, too: one that failed again before it could say so is
// not started for ever.
func (s *Session) releaseOnce(c actor.Context, m *messages.ReleaseWorker) {
	w := s.workers[m.GetWorkerId()]
	switch {
	case w == nil || w.quarantined == "" || w.tried:
		s.route(c, m)
		return
	case w.ending:
		w.keep(c, m)
		return
	}
	s.log.Info("worker is released", "worker", w.id, "by", m.GetBy())
	w.quarantined, w.lastError, w.failures, w.release = "", "", 0, m.GetBy()
	w.tried, w.openings = true, 0
	s.start(c, w)
	for _, other := range s.workers {
		if other.pid != nil && other != w {
			c.Send(other.pid, &wayFree{w.id})
		}
	}
	s.tellAgain(c, w.id)
	s.route(c, m) // its answer comes behind the record
}

// late handles what waited for the end of a worker that turned out to be quarantined.
func (s *Session) late(c actor.Context) {
	if m, ok := c.Message().(*messages.ReleaseWorker); ok {
		s.releaseOnce(c, m)
		return
	}
	s.route(c, c.Message())
}

// refused is why nothing is routed to a worker that is quarantined.
func (w *member) refused() *messages.Failure {
	hint := "let it try again with: troupe workers release " + w.id
	if w.damaged {
		hint = "run `troupe verify`"
	}
	return messages.Fail(messages.CodeQuarantined, fmt.Sprintf("worker %s is quarantined: %s", w.id, w.quarantined), hint)
}

// respawn starts a worker anew after its pause.
type respawn struct {
	worker string
	gen    uint64
}
