package actors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// When a worker's state is written as a snapshot, so that its next opening reads that and the few
// records after it. The journal stays what counts: a snapshot may always be missing.
const (
	// snapshotRecords and snapshotBytes are how long the tail after the newest snapshot may grow: a
	// turn that ends beyond either is followed by a snapshot.
	snapshotRecords, snapshotBytes = 256, 1 << 20
	// snapshotShare: and the tail is at least this part of the newest snapshot, so that all that is
	// ever written for snapshots stays in proportion to the journal.
	snapshotShare = 4
	// A worker that stops is in no hurry: its tail is worth a snapshot from this part on.
	snapshotAtEnd = 4
	// A journal with no more records than this is folded without looking for one.
	snapshotNone = 8
)

// snapshots is what a worker knows of its own. It belongs to the worker's mailbox, except for what
// the goroutine that writes one leaves behind.
type snapshots struct {
	records, bytes int          // of the tail
	size           atomic.Int64 // of the newest, in bytes
	writing        atomic.Bool
	needs          atomic.Uint64          // the oldest record that the newest snapshot needs; 0: none is known
	after          atomic.Pointer[func()] // what is to be done when none is written any more
}

// written ends the writing of one.
func (n *snapshots) written() {
	n.writing.Store(false)
	n.goOn()
}

// whenWritten calls then once when none is written any more, which may be at once. It is for who ends: there is one then.
func (n *snapshots) whenWritten(then func()) {
	n.after.Store(&then)
	if !n.writing.Load() {
		n.goOn()
	}
}

func (n *snapshots) goOn() {
	if then := n.after.Swap(nil); then != nil {
		(*then)()
	}
}

func (n *snapshots) grew(records []*messages.Record) {
	n.records += len(records)
	for _, r := range records {
		n.bytes += len(r.GetBody())
	}
}

// due says whether the tail is worth a snapshot; ending is for the last one of a worker.
func (n *snapshots) due(ending bool) bool {
	records, size := snapshotRecords, snapshotBytes
	if ending {
		records, size = records/snapshotAtEnd, size/snapshotAtEnd
	}
	return (n.records >= records || n.bytes >= size) && int64(n.bytes) >= n.size.Load()/snapshotShare
}

// snapshot writes the state down, off the mailbox, when that is due. It is called at the end of a turn:
// the picture is taken there, and nothing that comes later changes it.
func (w *Worker) snapshot(c actor.Context) {
	n := w.snaps
	if !n.due(false) || len(w.late.records) > 0 || !n.writing.CompareAndSwap(false, true) {
		return
	}
	n.records, n.bytes = 0, 0
	w.writeSnapshot(c, n.written)
}

// lastSnapshot is for a worker that stops: the journal is released when it is written, and so is one that was under way.
func (w *Worker) lastSnapshot(c actor.Context) {
	if w.journal == nil || w.journal.Err() != nil || w.phase == stateFailed || !w.snaps.due(true) {
		return // after a failure the state may be anything
	}
	journal, n := w.journal, w.snaps
	w.writeSnapshot(c, func() { n.whenWritten(journal.Release) })
	w.journal = nil
}

func (w *Worker) writeSnapshot(c actor.Context, then func()) {
	frozen, journal, n, log := w.state.Freeze(), w.journal, w.snaps, w.log
	svc := w.svc
	svc.running.Add(1)
	svc.pool.Go(func() {
		defer svc.running.Done()
		defer then()
		err := errors.New("encoding panicked")
		if p := act.Guard(func() {
			if err = putSnapshot(journal, frozen, n); err == nil {
				err = trimBehind(svc, journal, n, frozen.Needs())
			}
		}); p != nil {
			log.Error("snapshot panicked", "err", p.Error(), "stack", p.Stack)
			return
		}
		if err != nil && !errors.Is(err, persistence.ErrFenced) { // a successor has its own
			log.Warn("snapshot was not written; the journal has everything", "err", err)
		}
	})
}

func putSnapshot(j *persistence.Journal, f *conversation.Frozen, n *snapshots) error {
	state, err := f.Encode()
	if err != nil {
		return err
	}
	if err := j.PutSnapshot(context.Background(), f.Seq(), conversation.SnapshotSchema, state); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	n.size.Store(int64(len(state)))
	return nil
}

// recoverState folds a worker's journal: from its newest snapshot that is of use, else the one
// before, else from the beginning.
func recoverState(ctx context.Context, svc *Services, j *persistence.Journal) (*conversation.State, *snapshots, error) {
	var why error
	for below := j.Next(); below > snapshotNone; { // one that is ahead of the journal is of another
		snap, err := j.Snapshot(ctx, below)
		if errors.Is(err, persistence.ErrNotFound) {
			break
		}
		var s *conversation.State
		n := &snapshots{}
		if err == nil {
			n.size.Store(int64(len(snap.GetState())))
			s, err = restore(ctx, svc.Store, j.Stream(), snap)
		}
		if err == nil {
			n.needs.Store(s.Needs())
		}
		if err == nil {
			err = replay(ctx, j, s, n)
		}
		if err == nil {
			return s, n, nil
		}
		why = errors.Join(why, err)
		svc.Log.Warn("snapshot is not used", "stream", j.Stream(), "seq", snap.GetSeq(), "err", err)
		if snap.GetSeq() <= 1 {
			break
		}
		below = snap.GetSeq()
	}
	s, n := conversation.Live(), &snapshots{}
	err := replay(ctx, j, s, n)
	if errors.Is(err, persistence.ErrTrimmed) { // only a snapshot could have stood for what is gone
		err = fmt.Errorf("no snapshot is of use: %w", errors.Join(persistence.ErrCorrupt, err, why))
	}
	return s, n, err
}

// restore decodes a snapshot, and makes sure that it is one of this journal.
func restore(ctx context.Context, store persistence.Store, stream string, snap *messages.Snapshot) (*conversation.State, error) {
	if err := conversation.Readable(snap.GetSchema()); err != nil {
		return nil, err
	}
	record := func(seq uint64) (*messages.Record, error) {
		var found *messages.Record
		err := store.Read(ctx, stream, seq, func(e persistence.Entry) error {
			found = e.Record
			return errFound
		})
		if err != nil && !errors.Is(err, errFound) {
			return nil, err
		}
		if found.GetSeq() != seq {
			return nil, fmt.Errorf("record %d is not there: %w", seq, persistence.ErrCorrupt)
		}
		return found, nil
	}
	s, err := conversation.Restore(snap.GetSeq(), snap.GetState(), func(seq uint64) (proto.Message, error) {
		r, err := record(seq)
		if err != nil {
			return nil, err
		}
		return messages.WorkerFactIn(r)
	})
	if err != nil {
		return nil, err
	}
	newest, err := record(snap.GetSeq())
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(newest.GetRecordId(), s.Head()) {
		return nil, fmt.Errorf("record %d is another one than when the snapshot was taken", snap.GetSeq())
	}
	return s, nil
}

var errFound = errors.New("found")

// replay applies what stands in the journal after a state.
func replay(ctx context.Context, j *persistence.Journal, s *conversation.State, n *snapshots) error {
	return j.Replay(ctx, s.Seq()+1, func(e persistence.Entry) error {
		n.grew([]*messages.Record{e.Record})
		if err := s.Apply(e.Record); err != nil { // it would fail again and again
			return fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
		}
		if f, err := messages.WorkerFactIn(e.Record); err == nil {
			if a, ok := f.(*messages.InputAccepted); ok {
				s.SetCursor(a.GetInputId(), e.Cursor)
			}
		}
		return nil
	})
}
