package actors

import (
	"crypto/rand"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Facts that nothing hangs on may wait in memory for the next append that something does hang on, when the session's
// persistence policy says so (row 25): with `task` until the turn's end, with `manual` until then, or a save. They are applied at once, so
// that here, and only here, the fold runs ahead of the disk (I3), and what was kept back goes ahead of the next
// append, in the same batch. What is acknowledged, approved, or has an effect is never kept back (I1, I2).
//
// maxLate, in bytes and records, is when facts are written down though nothing hangs on them: an append has limits.
const (
	maxLate        = 2 << 20
	maxLateRecords = 1024
)

// late is what was kept back: applied, and not in the journal.
type late struct {
	facts   []proto.Message
	records []*messages.Record
	index   []persistence.IndexOp // the newest listing entry
	bytes   int
}

// waits says whether an append can be kept back. While somebody watches none is: their events are facts that are durable, and
// must not lag behind the text that they see come in.
func (w *Worker) waits(in *appending) bool {
	if w.persist == messages.Persist_MESSAGE || w.watched.Load() || in.asker != nil || len(in.facts) == 0 {
		return false
	}
	for _, f := range in.facts {
		if !w.idleFact(f, in.facts) {
			return false
		}
	}
	size := w.late.bytes
	for _, r := range in.records {
		size += len(r.GetBody())
	}
	return size <= maxLate && len(w.late.records)+len(in.records) <= maxLateRecords
}

// idleFact says whether nothing hangs on a fact being durable: it is no acknowledgement, no approval, no word of a person's, and
// no part of an effect. all are the facts that it comes with.
func (w *Worker) idleFact(fact proto.Message, all []proto.Message) bool {
	switch f := fact.(type) {
	case *messages.TurnStarted, *messages.GenerationStarted, *messages.GenerationCompleted, *messages.GenerationFailed, *messages.ToolPlanned:
		return true
	case *messages.ToolFinished:
		return !w.dispatchedEver(f.GetExecId(), all)
	case *messages.TurnCompleted:
		return w.persist == messages.Persist_MANUAL
	}
	return false
}

func (w *Worker) dispatchedEver(exec string, all []proto.Message) bool {
	for _, f := range all {
		if d, ok := f.(*messages.ToolDispatched); ok && d.GetExecId() == exec {
			return true
		}
	}
	t := w.state.Turn()
	return t != nil && t.Call(exec) != nil && t.Call(exec).Dispatched != nil
}

// keepBack gives the records the places that they will have, and sends them to be applied.
func (w *Worker) keepBack(c actor.Context, in *appending) {
	at := w.svc.Now().UnixMilli()
	for _, r := range in.records {
		r.Seq, r.Epoch, r.AtUnixMs, r.RecordId = w.next(), w.journal.Lease().Epoch, at, make([]byte, 16)
		_, _ = rand.Read(r.RecordId) // crypto/rand ends the process rather than fail
		w.late.records = append(w.late.records, r)
		w.late.bytes += len(r.GetBody())
	}
	w.late.facts = append(w.late.facts, in.facts...)
	if index := w.index(in.facts); index != nil {
		w.late.index = index
	}
	w.inflight = in
	c.Send(c.Self(), &appended{of: in, late: true})
}

// next is the seq of the next record, counting what was kept back.
func (w *Worker) next() uint64 { return w.journal.Next() + uint64(len(w.late.records)) }

// draft is an append with what was kept back ahead of it, and forgets that.
func (w *Worker) draft(in *appending) persistence.Draft {
	d := persistence.Draft{Records: in.records, Index: w.index(in.facts), Timers: w.timerOps(in.facts)}
	if len(w.late.records) == 0 {
		return d
	}
	in.before, w.late = w.late, late{}
	d.Records = append(in.before.records[:len(in.before.records):len(in.before.records)], in.records...)
	if d.Index == nil {
		d.Index = in.before.index
	}
	return d
}

// save makes durable what was kept back.
func (w *Worker) save(c actor.Context) {
	asker := c.Sender()
	if len(w.late.records) == 0 {
		c.Respond(&messages.Ack{})
		return
	}
	w.append(c, asker, func(c actor.Context) { c.Send(asker, &messages.Ack{}) })
}

// showLate makes durable what was kept back before somebody came to watch: their events are facts that are durable, and
// at the end of a turn no other append may follow. While an input waits for its turn's lease, one does, and takes them along.
func (w *Worker) showLate(c actor.Context) {
	if w.watched.Load() && !w.held() && w.phase != stateFailed && len(w.late.records) > 0 {
		w.append(c, nil, func(actor.Context) {})
	}
}

// saveAtEnd is for a worker that stops: its append is made before the journal is released.
func (w *Worker) saveAtEnd() {
	if w.journal == nil || w.phase == stateFailed || len(w.late.records) == 0 {
		return
	}
	log := w.log
	w.journal.Append(func(_ persistence.Receipt, err error) {
		if err != nil {
			log.Error("what was kept back is lost", "err", err)
		}
	}, w.draft(&appending{}))
}
