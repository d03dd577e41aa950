package memory

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// state is what appends have made; every use holds the store's lock.
type state struct {
	log       [][]persistence.Batch // every append as kept, for Cut
	streams   map[string][]entry
	sessions  map[string][]entry // at index cursor-1
	leases    map[string]uint64  // newest epoch of each claimed stream
	claims    uint64
	index     map[string][]byte
	keys      map[string][]byte
	timers    map[string]persistence.Timer
	blobs     map[[32]byte][]byte
	snapshots map[string][]*messages.Snapshot // oldest first, at most two
	first     map[string]uint64               // seq at which a trimmed stream begins
	starts    map[string]uint64               // cursor at which a trimmed session does
}

// entry is a record as kept, without the body that went to a blob.
type entry struct {
	stream, session string
	cursor          uint64
	record          *messages.Record
}

func newState() *state {
	return &state{
		streams:   make(map[string][]entry),
		sessions:  make(map[string][]entry),
		leases:    make(map[string]uint64),
		index:     make(map[string][]byte),
		keys:      make(map[string][]byte),
		timers:    make(map[string]persistence.Timer),
		blobs:     make(map[[32]byte][]byte),
		snapshots: make(map[string][]*messages.Snapshot),
		first:     make(map[string]uint64),
		starts:    make(map[string]uint64),
	}
}

func (st *state) next(stream string) uint64 {
	return uint64(len(st.streams[stream])) + 1
}

// holds refuses every lease but the newest of its stream.
func (st *state) holds(l persistence.Lease) error {
	if epoch, claimed := st.leases[l.Stream]; !claimed || epoch != l.Epoch {
		return fmt.Errorf("epoch %d of %s, newest is %d: %w", l.Epoch, l.Stream, epoch, persistence.ErrFenced)
	}
	return nil
}

// check refuses an append that the state does not allow; nothing is changed.
func (st *state) check(batches []persistence.Batch) error {
	for _, b := range batches {
		if err := st.holds(b.Lease); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		if next := st.next(b.Lease.Stream); b.Expect != next {
			return fmt.Errorf("append to %s at seq %d, next is %d: %w", b.Lease.Stream, b.Expect, next, persistence.ErrConflict)
		}
		for _, k := range b.Keys {
			if _, exists := st.keys[k.Name]; exists {
				return fmt.Errorf("append to %s with key %q: %w", b.Lease.Stream, k.Name, persistence.ErrDuplicate)
			}
		}
	}
	for _, b := range batches {
		for _, r := range b.Records {
			if len(r.Body) == 0 && len(r.BodyBlob) != 0 && !st.known(batches, [32]byte(r.BodyBlob)) {
				return fmt.Errorf("append to %s: blob %x: %w", b.Lease.Stream, r.BodyBlob[:8], persistence.ErrNotFound)
			}
		}
	}
	return nil
}

func (st *state) known(batches []persistence.Batch, hash [32]byte) bool {
	if _, ok := st.blobs[hash]; ok {
		return true
	}
	for _, b := range batches {
		if slices.ContainsFunc(b.Blobs, func(blob persistence.Blob) bool { return blob.Hash == hash }) {
			return true
		}
	}
	return false
}

// keep copies an append, with large bodies moved to blobs, so that nothing of it is shared
// with the writer.
func (st *state) keep(batches []persistence.Batch) []persistence.Batch {
	kept := slices.Clone(batches)
	for i := range kept {
		b := &kept[i]
		records := make([]*messages.Record, len(b.Records))
		for j, r := range b.Records {
			r, blob := persistence.Detach(r)
			if blob != nil {
				st.blobs[blob.Hash] = bytes.Clone(blob.Data)
			}
			records[j] = proto.CloneOf(r)
		}
		for _, blob := range b.Blobs {
			st.blobs[blob.Hash] = bytes.Clone(blob.Data)
		}
		b.Records, b.Blobs = records, nil
		b.Keys, b.Index, b.Timers = slices.Clone(b.Keys), slices.Clone(b.Index), slices.Clone(b.Timers)
		for j := range b.Keys {
			b.Keys[j].Value = bytes.Clone(b.Keys[j].Value)
		}
		for j := range b.Index {
			b.Index[j].Value = bytes.Clone(b.Index[j].Value)
		}
		for j := range b.Timers {
			b.Timers[j].Value = bytes.Clone(b.Timers[j].Value)
		}
	}
	return kept
}

// apply makes a kept append.
func (st *state) apply(batches []persistence.Batch) persistence.Receipt {
	var receipt persistence.Receipt
	for i, b := range batches {
		for j, r := range b.Records {
			e := entry{stream: b.Lease.Stream, session: b.Session, record: r}
			if b.Session != "" {
				e.cursor = uint64(len(st.sessions[b.Session])) + 1
				st.sessions[b.Session] = append(st.sessions[b.Session], e)
			}
			if i == 0 && j == 0 {
				receipt.First = e.cursor
			}
			if i == len(batches)-1 {
				receipt.Last = e.cursor
			}
			st.streams[b.Lease.Stream] = append(st.streams[b.Lease.Stream], e)
		}
		for _, k := range b.Keys {
			st.keys[k.Name] = k.Value
		}
		for _, op := range b.Index {
			if op.Delete {
				delete(st.index, op.Key)
			} else {
				st.index[op.Key] = op.Value
			}
		}
		for _, t := range b.Timers {
			if t.Delete {
				delete(st.timers, t.ID)
			} else {
				st.timers[t.ID] = persistence.Timer{ID: t.ID, Due: t.Due, Value: t.Value}
			}
		}
	}
	return receipt
}

// entry gives a record out, whole and not shared.
func (st *state) entry(e entry) (persistence.Entry, error) {
	r := proto.CloneOf(e.record)
	if len(r.BodyBlob) != 0 {
		data, ok := st.blobs[[32]byte(r.BodyBlob)]
		if !ok {
			return persistence.Entry{}, fmt.Errorf("%s seq %d: blob %x is gone: %w", e.stream, r.Seq, r.BodyBlob[:8], persistence.ErrCorrupt)
		}
		r.Body = bytes.Clone(data)
	}
	return persistence.Entry{Stream: e.stream, Session: e.session, Cursor: e.cursor, Record: r}, nil
}

func (st *state) putSnapshot(l persistence.Lease, s *messages.Snapshot) error {
	if err := st.holds(l); err != nil {
		return err
	}
	if s.Seq >= st.next(l.Stream) {
		return fmt.Errorf("snapshot at seq %d, next is %d: %w", s.Seq, st.next(l.Stream), persistence.ErrConflict)
	}
	kept := slices.DeleteFunc(st.snapshots[l.Stream], func(old *messages.Snapshot) bool { return old.Seq == s.Seq })
	own := proto.CloneOf(s)
	own.Stream = l.Stream
	kept = append(kept, own)
	slices.SortFunc(kept, func(a, b *messages.Snapshot) int { return cmp.Compare(a.Seq, b.Seq) })
	st.snapshots[l.Stream] = slices.Clone(kept[max(0, len(kept)-2):])
	return nil
}
