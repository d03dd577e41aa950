package actors

import (
	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// A worker that was just written down is given its journal by whoever claimed it for that, and the fold of what stands there: nobody else
// has written since, so that it need not claim the stream again, nor read it. Its successors do (worker_open.go).

// newborn is the first word to such a worker.
type newborn struct {
	configure *messages.Configure
	opened    *opened
}

// born learns who the worker is and what it may use.
func (w *Worker) born(c actor.Context, m *messages.Configure) {
	w.id, w.session, w.restarts, w.releasedBy = m.GetWorkerId(), m.GetSessionId(), m.GetRestarts(), m.GetRelease()
	w.openings = m.GetOpenings()
	w.persist, w.canAsk = m.GetPersist(), m.GetAsk()
	if m.GetRun() {
		w.ofRun = &toldRun{}
	}
	w.log = w.logger()
	w.configure(c, m)
}

// bear folds the first records of a worker, which are durable; last is the session's cursor of the last of them. nil: what they say does not fold,
// and the worker is to find that out by itself. The journal is released then.
func bear(j *persistence.Journal, facts []proto.Message, records []*messages.Record, last uint64) *opened {
	o := &opened{journal: j, state: conversation.Live(), snaps: &snapshots{}}
	o.snaps.grew(records)
	if p := act.Guard(func() {
		for i, r := range records {
			if o.err = o.state.ApplyFact(facts[i], r); o.err != nil {
				return
			}
			if in, ok := facts[i].(*messages.InputAccepted); ok {
				o.state.SetCursor(in.GetInputId(), last-uint64(len(records)-1-i))
			}
		}
	}); p != nil || o.err != nil {
		j.Release()
		return nil
	}
	return o
}

// release gives up a journal that no worker took.
func (o *opened) release() {
	if o != nil {
		o.journal.Release()
	}
}
