package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/messages"
)

// idleness says whether this worker could leave memory: everything that it knows is in its journal, and
// nobody waits for anything. It is asked in turn, so that no append is under way.
func (w *Worker) idleness() *messages.Idleness {
	return &messages.Idleness{
		Idle:        w.state.Turn() == nil && len(w.state.Staged()) == 0 && !w.leases.busy() && len(w.running) == 0 && len(w.waiting) == 0 && w.compacting == nil,
		SinceUnixMs: w.state.At(), DueUnixMs: w.nextTimer(),
	}
}

// waitIdle answers when there is nothing to do.
func (w *Worker) waitIdle(c actor.Context) {
	if w.state.Turn() == nil && len(w.state.Staged()) == 0 && !w.leases.busy() && w.compacting == nil {
		c.Respond(&messages.Ack{})
		return
	}
	w.idlers = append(w.idlers, c.Sender())
}
