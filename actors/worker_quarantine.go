package actors

import (
	"context"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

const (
	// poisonAfter is how many of its own panics without progress quarantine a worker.
	poisonAfter = 3
	// deadlyAfter is the same for ends of the whole process in the middle of a turn: most of them are nobody's
	// fault, but a prompt that kills the process must not do so for ever.
	deadlyAfter = 10
)

// fail ends this incarnation. fact, when given, is journaled on a best effort, and with the one that is too
// much the quarantine: whoever opens the store later knows of it without waking anybody.
func (w *Worker) fail(c actor.Context, reason string, fact *messages.Panicked) {
	reason = w.svc.Redact.String(reason)
	quarantine := false
	if fact != nil && w.state != nil && w.journal != nil {
		quarantine = w.state.Panics()+1 >= poisonAfter
		fact.Quarantined, fact.Reason = quarantine, w.svc.Redact.String(fact.GetReason())
		w.lastError = reason
		w.noteFailure(c, fact)
	}
	w.down(c, reason, quarantine)
}

// noteFailure writes a failure down without waiting for it, and tells the watchers of a quarantine.
func (w *Worker) noteFailure(c actor.Context, fact *messages.Panicked) {
	rec, err := messages.NewRecord(fact, "")
	if err != nil {
		fact = mend(fact)
		rec, err = messages.NewRecord(fact, "")
	}
	if err != nil {
		w.log.Error("failure cannot be written down", "err", err)
		return
	}
	d := persistence.Draft{Records: append(w.late.records, rec), Index: w.late.index}
	w.late = late{}
	if fact.GetQuarantined() {
		v := w.listed()
		v.State, v.Quarantined, v.LastError = stateFailed, true, fact.GetReason()
		d.Index = listing(w.log, WorkerKey(w.session, w.id), v)
	}
	sys, session, id, to := c.ActorSystem(), w.session, w.id, c.Parent()
	w.journal.Append(func(r persistence.Receipt, err error) {
		if err != nil || !fact.GetQuarantined() {
			return
		}
		var p conversation.Projector
		if e := p.Project(session, id, fact, rec, r.Last); e != nil {
			sys.Root.Send(to, &messages.Published{FirstCursor: r.Last, LastCursor: r.Last, Events: []*messages.Event{e}})
		}
	}, d)
}

// suspend writes down that an orderly stop comes in the middle of a turn, so that it does not count as a death, and what people
// have seen of the answer under way. It does not wait; what this activation has begun is written ahead of it. One that has written
// nothing leaves the journal as it found it.
func (w *Worker) suspend() {
	if w.journal == nil || w.journal.Err() != nil || w.phase == stateFailed || !w.activated || w.state.Turn() == nil && w.inflight == nil {
		return
	}
	stop := &messages.Suspended{Text: w.unfinished()}
	turn := ""
	if t := w.state.Turn(); t != nil {
		turn = t.ID
	}
	rec, err := messages.NewRecord(stop, turn)
	if err != nil { // a provider sent what is no text
		rec, err = messages.NewRecord(mend(stop), turn)
	}
	if err != nil {
		w.log.Error("stop cannot be written down", "err", err)
		return
	}
	rec.Ignorable = true // for releases that do not know it
	log := w.log
	w.journal.Append(func(_ persistence.Receipt, err error) {
		if err != nil {
			log.Warn("the stop counts as a death", "err", err)
		}
	}, persistence.Draft{Records: []*messages.Record{rec}})
}

// unfinished is what has arrived of the answer under way; nothing of one to an input that was withdrawn.
func (w *Worker) unfinished() string {
	t := w.state.Turn()
	if t == nil || w.gen == nil || t.Cancelled.GetDiscard() {
		return ""
	}
	return w.gen.arrived.String()
}

// barred quarantines a worker that was just recovered, when its journal says so, and is true then. One that
// somebody releases goes on.
func (w *Worker) barred(c actor.Context) bool {
	reason, deaths := w.state.Quarantined(), w.state.Deaths()
	if w.state.Died() {
		deaths++ // the one before this activation
	}
	fresh := reason == ""
	switch {
	case !fresh:
	case w.state.Panics() >= poisonAfter:
		reason = fmt.Sprintf("it panicked %d times without progress", w.state.Panics())
	case deaths >= deadlyAfter:
		reason = fmt.Sprintf("the process ended %d times in the middle of its turn without progress", deaths)
	default:
		return false
	}
	if w.releasedBy != "" || w.stash.Holds(w.isRelease) {
		w.released(c)
		return true
	}
	w.lastError = reason
	if fresh {
		w.noteFailure(c, &messages.Panicked{Reason: reason, Quarantined: true})
	}
	w.down(c, reason, true)
	return true
}

// isRelease notes who lets the worker go on: the word came before it was known that it is needed.
func (w *Worker) isRelease(msg any) bool {
	m, ok := msg.(*messages.ReleaseWorker)
	if ok {
		w.releasedBy = m.GetBy()
	}
	return ok
}

// released lets a quarantined worker go on, once that is written down.
func (w *Worker) released(c actor.Context) {
	by := w.releasedBy
	w.releasedBy, w.lastError = "", ""
	w.log.Info("worker is released", "by", by)
	w.become((*Worker).common, stateInactive)
	w.activated = true // that it goes on is written down with what it does
	w.append(c, nil, func(c actor.Context) {
		w.activated = false
		w.takeUp(c)
	}, append([]proto.Message{&messages.Released{By: by}}, w.givenBefore(author(by))...)...)
}

// givenBefore ends what shared conversations gave the worker before it was quarantined: they have cut it off, and somebody else may
// have the word by now.
func (w *Worker) givenBefore(by string) (facts []proto.Message) {
	if t := w.state.Turn(); t != nil && t.Cancelled == nil && slices.ContainsFunc(t.Inputs, (*conversation.Input).OfConversation) {
		facts = w.cancelFacts(by, "its shared conversation went on while it was quarantined")
	}
	return append(facts, untold(w.state, by)...)
}

// untold takes back what shared conversations told a member that had not begun with it.
func untold(s *conversation.State, by string) (facts []proto.Message) {
	for _, in := range s.Staged() {
		if in.OfConversation() {
			facts = append(facts, &messages.InputWithdrawn{InputId: in.GetInputId(), By: by})
		}
	}
	return facts
}

// listQuarantine puts a worker whose journal does not fold on the list of those that are quarantined. The journal
// itself gets no record: what it says is not known.
func listQuarantine(svc *Services, j *persistence.Journal, id, session, why string) {
	v := listed(context.Background(), svc, session, id)
	v.State, v.Quarantined, v.LastError, v.UpdatedAtUnixMs = stateFailed, true, svc.Redact.String(why), svc.Now().UnixMilli()
	done := make(chan error, 1)
	j.Append(func(_ persistence.Receipt, err error) { done <- err }, persistence.Draft{Index: listing(svc.Log, WorkerKey(session, id), v)})
	select {
	case err := <-done:
		if err != nil {
			svc.Log.Warn("quarantine cannot be listed", "worker", id, "err", err)
		}
	case <-svc.stopped:
	}
}
