package actors

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/workspace"
)

// The journal of a workspace's fields is summed up as a worker's is, by the same measure, and what is behind both kept
// snapshots goes with the age that data.trim says. Fencing needs none of it: it is the claim's, and the numbers of records go on.

// fieldsSchema is the form of these snapshots.
const fieldsSchema = 1

// sumFields writes a snapshot of the fields, off the mailbox, when that is due. then is called in any case, once. While something is written there is none:
// the journal may have a record already that the fields do not know of, and a snapshot would stand for it.
func (w *Workspace) sumFields(ending bool, then func()) {
	n := w.book.snaps
	if w.book.fields == nil || w.book.busy || w.book.journal.Err() != nil || !n.due(ending) || !n.writing.CompareAndSwap(false, true) {
		then()
		return
	}
	n.records, n.bytes = 0, 0
	svc, journal, log, uri := w.svc, w.book.journal, w.log, w.uri
	seq, state := journal.Next()-1, w.book.fields.State()
	svc.aside(func() {
		defer then()
		defer n.written()
		err := errors.New("encoding panicked")
		_ = act.Guard(func() {
			if err = putFields(journal, seq, state, n); err == nil {
				err = trimBehind(svc, journal, n, seq+1)
			}
		})
		if err != nil && !errors.Is(err, persistence.ErrFenced) { // a successor has its own
			log.Warn("the fields of a workspace were not summed up; the journal has everything", "workspace", uri, "err", err)
		}
	})
}

func putFields(j *persistence.Journal, seq uint64, state *messages.FieldsState, n *snapshots) error {
	data, err := proto.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode the fields: %w", err)
	}
	if err := j.PutSnapshot(context.Background(), seq, fieldsSchema, data); err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	n.size.Store(int64(len(data)))
	return nil
}

// recoverFields folds the journal: from its newest snapshot that is of use, else the one before, else from the beginning.
func recoverFields(ctx context.Context, j *persistence.Journal) (*workspace.Fields, *snapshots, error) {
	var why error
	for below := j.Next(); below > snapshotNone; {
		snap, err := j.Snapshot(ctx, below)
		if errors.Is(err, persistence.ErrNotFound) {
			break
		}
		if err == nil {
			f, n, err := fieldsFrom(ctx, j, snap)
			if err == nil {
				return f, n, nil
			}
			why = errors.Join(why, err)
		}
		why = errors.Join(why, err)
		if snap.GetSeq() <= 1 {
			break
		}
		below = snap.GetSeq()
	}
	f, n := &workspace.Fields{}, &snapshots{}
	err := foldFields(ctx, j, 1, f, n)
	if errors.Is(err, persistence.ErrTrimmed) { // only a snapshot could have stood for what is gone
		err = fmt.Errorf("no snapshot is of use: %w", errors.Join(persistence.ErrCorrupt, err, why))
	}
	return f, n, err
}

func fieldsFrom(ctx context.Context, j *persistence.Journal, snap *messages.Snapshot) (*workspace.Fields, *snapshots, error) {
	if snap.GetSchema() != fieldsSchema {
		return nil, nil, fmt.Errorf("a snapshot of form %d is of another release", snap.GetSchema())
	}
	state := &messages.FieldsState{}
	if err := proto.Unmarshal(snap.GetState(), state); err != nil {
		return nil, nil, fmt.Errorf("decode the snapshot: %w", err)
	}
	f, n := workspace.RestoreFields(state), &snapshots{}
	n.size.Store(int64(len(snap.GetState())))
	n.needs.Store(snap.GetSeq() + 1)
	return f, n, foldFields(ctx, j, snap.GetSeq()+1, f, n)
}

// foldFields applies the records from a seq on.
func foldFields(ctx context.Context, j *persistence.Journal, from uint64, f *workspace.Fields, n *snapshots) error {
	return j.Replay(ctx, from, func(e persistence.Entry) error {
		fact, err := messages.WorkspaceFactIn(e.Record)
		if err != nil {
			return fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
		}
		f.Apply(fact)
		n.grew([]*messages.Record{e.Record})
		return nil
	})
}
