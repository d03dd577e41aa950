package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Trim forgets the records of a stream up to a seq. See persistence.Store.
func (s *Store) Trim(ctx context.Context, l persistence.Lease, upto uint64) error {
	doing := fmt.Sprintf("trim %s up to %d", l.Stream, upto)
	if err := persistence.CheckName(l.Stream); err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	if err := s.barrier(ctx); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return s.view(ctx, doing, func(st *state) error { return st.trim(l, upto) })
}

func (st *state) trim(l persistence.Lease, upto uint64) error {
	if err := st.holds(l); err != nil {
		return err
	}
	held := uint64(0)
	if kept := st.snapshots[l.Stream]; len(kept) > 0 {
		held = kept[0].GetSeq()
	}
	if upto > held {
		return fmt.Errorf("kept snapshots hold the records up to %d: %w", held, persistence.ErrConflict)
	}
	if upto < max(st.first[l.Stream], 1) {
		return nil
	}
	for i := range st.streams[l.Stream][:upto] {
		st.streams[l.Stream][i].record = nil
	}
	st.first[l.Stream] = upto + 1
	last := st.streams[l.Stream][upto-1]
	if last.session != "" {
		st.starts[last.session] = max(st.starts[last.session], last.cursor+1)
	}
	return nil
}

// begins refuses to read from before what is left.
func begins(what, name string, first, from uint64) error {
	if from < first {
		return &persistence.TrimmedError{Name: what + " " + name, First: first}
	}
	return nil
}

// Delete removes sessions for good. See persistence.Store.
func (s *Store) Delete(ctx context.Context, all ...persistence.Deletion) error {
	for _, d := range all {
		for _, name := range append([]string{d.Session}, d.Streams...) {
			if err := persistence.CheckName(name); err != nil {
				return fmt.Errorf("delete: %w", err)
			}
		}
	}
	if err := s.barrier(ctx); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return s.view(ctx, "delete", func(st *state) error {
		for _, d := range all {
			st.drop(d)
		}
		return nil
	})
}

func (st *state) drop(d persistence.Deletion) {
	streams := map[string]bool{}
	for _, name := range d.Streams {
		streams[name] = true
	}
	for _, e := range st.sessions[d.Session] {
		streams[e.stream] = true
	}
	gone := map[string]bool{}
	for name := range streams {
		for _, e := range st.streams[name] {
			if e.record != nil {
				gone[string(e.record.GetBodyBlob())] = true
			}
		}
		delete(st.streams, name)
		delete(st.snapshots, name)
		delete(st.leases, name)
		delete(st.first, name)
	}
	delete(st.sessions, d.Session)
	delete(st.starts, d.Session)
	for session, entries := range st.sessions { // records that another session counted leave a hole
		for i, e := range entries {
			if streams[e.stream] {
				st.sessions[session][i].record = nil
			}
		}
	}
	for _, key := range d.Index {
		delete(st.index, key)
	}
	for _, key := range d.Keys {
		delete(st.keys, key)
	}
	for _, id := range d.Timers {
		delete(st.timers, id)
	}
	st.forget(gone)
}

// forget removes the blobs among some that no record refers to.
func (st *state) forget(hashes map[string]bool) {
	for _, entries := range st.streams {
		for _, e := range entries {
			delete(hashes, string(e.record.GetBodyBlob()))
		}
	}
	for hash := range maps.Keys(hashes) {
		if len(hash) == 32 {
			delete(st.blobs, [32]byte([]byte(hash)))
		}
	}
}

// there are the entries that were neither trimmed nor deleted.
func there(entries []entry) []entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.record == (*messages.Record)(nil) })
}
