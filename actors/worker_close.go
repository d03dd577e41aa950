package actors

import (
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// closing is a worker's end, while it is awaited.
type closing struct {
	asked *messages.DeleteWorker // nil: nobody wants it to end
	who   []*actor.PID
}

// close ends the worker for good: first its turn, then everything that waits.
func (w *Worker) close(c actor.Context, m *messages.DeleteWorker) {
	if w.state.Closed() {
		c.Respond(&messages.Ack{})
		return
	}
	w.closing.asked = m
	w.closing.who = append(w.closing.who, c.Sender())
	w.endChildren(c)
	t := w.state.Turn()
	switch {
	case t == nil && w.compacting != nil: // its end goes on with this
		if w.cancelCompaction(c); w.compacting == nil {
			w.advance(c)
		}
	case t == nil: // when what it has sent has arrived
		w.advance(c)
	case t.Cancelled == nil:
		w.interrupt(c)
		w.append(c, nil, w.settled, w.cancelFacts(author(m.GetBy()), "the worker is deleted")...)
	default: // it ends already
		w.interrupt(c)
	}
}

// writeClosed writes the end down, once no turn is open.
func (w *Worker) writeClosed(c actor.Context) {
	var facts []proto.Message
	if task := w.state.Task(); w.state.Background() && slices.ContainsFunc(w.state.Staged(), func(in *conversation.Input) bool { return in.GetInputId() == task }) {
		w.takeBack(c, task, author(w.closing.asked.GetBy()), nil) // of which its parent is told first
		return
	}
	for _, in := range w.state.Staged() {
		facts = append(facts, &messages.InputWithdrawn{InputId: in.GetInputId(), By: author(w.closing.asked.GetBy())})
	}
	for _, t := range w.state.Timers() {
		facts = append(facts, &messages.TimerCancelled{TimerId: t.GetTimerId()})
	}
	w.giveBackAll(c)
	w.append(c, nil, func(c actor.Context) {
		w.allWithdrawn(c, facts)
		for _, pid := range w.closing.who {
			if pid != nil {
				c.Send(pid, &messages.Ack{})
			}
		}
		w.closing = closing{}
		w.advance(c)
	}, append(facts, &messages.Closed{Reason: w.closing.asked.GetReason()})...)
}
