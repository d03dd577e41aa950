package memory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Read calls fn for the records of a stream that exist when it is called.
func (s *Store) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	return s.walk(ctx, "read "+stream, func(st *state) ([]entry, error) {
		return after(st.streams[stream], max(from, 1)-1), begins("stream", stream, st.first[stream], max(from, 1))
	}, fn)
}

// ReadSession calls fn for the records of a session that exist when it is called.
func (s *Store) ReadSession(ctx context.Context, session string, cursor uint64, fn func(persistence.Entry) error) error {
	return s.walk(ctx, "read session "+session, func(st *state) ([]entry, error) {
		return there(after(st.sessions[session], cursor)), begins("session", session, st.starts[session], cursor+1)
	}, fn)
}

func after(all []entry, n uint64) []entry {
	if n >= uint64(len(all)) {
		return nil
	}
	return all[n:]
}

// walk gives entries out without the lock, so that fn may use the store.
func (s *Store) walk(ctx context.Context, doing string, pick func(*state) ([]entry, error), fn func(persistence.Entry) error) error {
	var picked []entry
	if err := s.view(ctx, doing, func(st *state) (err error) { picked, err = pick(st); return err }); err != nil {
		return err
	}
	for _, e := range picked {
		var out persistence.Entry
		err := s.view(ctx, doing, func(st *state) (err error) { out, err = st.entry(e); return err })
		if err != nil {
			return err
		}
		if err := fn(out); err != nil {
			return err
		}
	}
	return nil
}

// Head returns the last seq of a stream.
func (s *Store) Head(ctx context.Context, stream string) (head uint64, err error) {
	err = s.view(ctx, "head of "+stream, func(st *state) error { head = st.next(stream) - 1; return nil })
	return head, err
}

// Cursor returns the last cursor of a session.
func (s *Store) Cursor(ctx context.Context, session string) (cursor uint64, err error) {
	err = s.view(ctx, "cursor of "+session, func(st *state) error {
		cursor = uint64(len(st.sessions[session]))
		return nil
	})
	return cursor, err
}

// Streams calls fn for the streams with the prefix, in order.
func (s *Store) Streams(ctx context.Context, prefix string, fn func(string) error) error {
	var names []string
	err := s.view(ctx, "list streams", func(st *state) error { names = sorted(st.streams, prefix); return nil })
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := fn(name); err != nil {
			return err
		}
	}
	return nil
}

func sorted[V any](m map[string]V, prefix string) []string {
	names := slices.Collect(maps.Keys(m))
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	slices.Sort(names)
	return names
}

// Index calls fn for the secondary entries with the prefix, in order of their keys.
func (s *Store) Index(ctx context.Context, prefix string, fn func(key string, value []byte) error) error {
	var keys []string
	var values [][]byte
	err := s.view(ctx, "read index", func(st *state) error {
		keys = sorted(st.index, prefix)
		for _, k := range keys {
			values = append(values, bytes.Clone(st.index[k]))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, k := range keys {
		if err := fn(k, values[i]); err != nil {
			return err
		}
	}
	return nil
}

// Lookup returns the value of an idempotency key.
func (s *Store) Lookup(ctx context.Context, key string) (value []byte, err error) {
	err = s.view(ctx, fmt.Sprintf("look up %q", key), func(st *state) error {
		v, ok := st.keys[key]
		if !ok {
			return persistence.ErrNotFound
		}
		value = bytes.Clone(v)
		return nil
	})
	return value, err
}

// Due calls fn for the timers due at or before t, the earliest first.
func (s *Store) Due(ctx context.Context, t time.Time, fn func(persistence.Timer) error) error {
	var due []persistence.Timer
	err := s.view(ctx, "read timers", func(st *state) error {
		for _, timer := range st.timers {
			if !timer.Due.After(t) {
				timer.Value = bytes.Clone(timer.Value)
				due = append(due, timer)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(due, func(a, b persistence.Timer) int {
		return cmp.Or(a.Due.Compare(b.Due), strings.Compare(a.ID, b.ID))
	})
	for _, timer := range due {
		if err := fn(timer); err != nil {
			return err
		}
	}
	return nil
}

// Blob returns kept content.
func (s *Store) Blob(ctx context.Context, hash [32]byte) (data []byte, err error) {
	err = s.view(ctx, fmt.Sprintf("read blob %x", hash[:8]), func(st *state) error {
		kept, ok := st.blobs[hash]
		if !ok {
			return persistence.ErrNotFound
		}
		data = bytes.Clone(kept)
		return nil
	})
	return data, err
}

// PutBlob keeps content.
func (s *Store) PutBlob(ctx context.Context, b persistence.Blob) error {
	if err := persistence.CheckBlob(b); err != nil {
		return fmt.Errorf("put blob: %w", err)
	}
	return s.view(ctx, "put blob", func(st *state) error {
		st.blobs[b.Hash] = bytes.Clone(b.Data)
		return nil
	})
}

// Snapshot returns the newest fold of a stream under below.
func (s *Store) Snapshot(ctx context.Context, stream string, below uint64) (snap *messages.Snapshot, err error) {
	err = s.view(ctx, "snapshot of "+stream, func(st *state) error {
		for _, kept := range slices.Backward(st.snapshots[stream]) {
			if below == 0 || kept.GetSeq() < below {
				snap = proto.CloneOf(kept)
				return nil
			}
		}
		return persistence.ErrNotFound
	})
	return snap, err
}

// Verify checks order and epochs; there are no checksums in memory.
func (s *Store) Verify(ctx context.Context, streams []string, report func(persistence.Finding)) (persistence.Summary, error) {
	var sum persistence.Summary
	if streams == nil {
		err := s.Streams(ctx, "", func(name string) error { streams = append(streams, name); return nil })
		if err != nil {
			return sum, fmt.Errorf("verify: %w", err)
		}
	}
	for _, name := range streams {
		var seq, epoch, start uint64
		err := s.view(ctx, "verify", func(st *state) error { start = max(st.first[name], 1); return nil })
		if err != nil {
			return sum, err
		}
		seq = start - 1
		err = s.Read(ctx, name, start, func(e persistence.Entry) error {
			seq++
			sum.Records++
			if e.Record.Seq != seq {
				report(persistence.Finding{Stream: name, Seq: e.Record.Seq, Problem: fmt.Sprintf("seq %d where %d was expected", e.Record.Seq, seq)})
			}
			if e.Record.Epoch < epoch {
				report(persistence.Finding{Stream: name, Seq: e.Record.Seq, Problem: "epoch goes back"})
			}
			seq, epoch = e.Record.Seq, e.Record.Epoch
			return nil
		})
		if errors.Is(err, persistence.ErrCorrupt) {
			report(persistence.Finding{Stream: name, Seq: seq + 1, Problem: err.Error()})
			err = nil
		}
		if err != nil {
			return sum, fmt.Errorf("verify: %w", err)
		}
		sum.Streams++
	}
	return sum, nil
}
