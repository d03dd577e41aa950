package badger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// A mark says where a stream or a session begins, since it was trimmed: one entry, so that a trim is made in one
// step. What lies before it is removed afterwards, and again when a crash came between. The last commit of a stream, and the last
// cursor of a session, always stay: they say where it ends.

// deleted is the mark of a name that is being deleted: there is nothing from any number on.
const deleted = math.MaxUint64

func markKey(tag byte, name string) []byte {
	return append([]byte{tagFirst, tag}, name...)
}

// first reads where a name begins: 1 when it was never trimmed.
func first(txn *engine.Txn, tag byte, name string) (uint64, error) {
	value, err := get(txn, markKey(tag, name))
	if errors.Is(err, persistence.ErrNotFound) {
		return 1, nil
	}
	return readMark(name, value, err)
}

func readMark(name string, value []byte, err error) (uint64, error) {
	if err != nil {
		return 0, fmt.Errorf("find the beginning of %s: %w", name, err)
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("find the beginning of %s: %w", name, persistence.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(value), nil
}

// Trim forgets the records of a stream up to a seq. See persistence.Store.
func (s *Store) Trim(ctx context.Context, l persistence.Lease, upto uint64) error {
	if err := persistence.CheckName(l.Stream); err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	err := s.guard.refuseFlush() // what gives room back takes a little first
	if err == nil {
		err = s.trim(ctx, l, upto)
	}
	if err != nil {
		return fmt.Errorf("trim %s up to %d: %w", l.Stream, upto, err)
	}
	return nil
}

func (s *Store) trim(ctx context.Context, l persistence.Lease, upto uint64) error {
	b := &barrierTask{waiting{make(chan error, 1)}}
	if err := s.wait(ctx, b, b.answers); err != nil { // a snapshot that was answered is then seen
		return err
	}
	t := &trimTask{waiting: waiting{make(chan error, 1)}, lease: l, first: upto + 1}
	err := s.view(ctx, func(txn *engine.Txn) error { return t.look(txn, upto) })
	if err != nil || upto == 0 {
		return err
	}
	if err := s.wait(ctx, t, t.answers); err != nil {
		return err
	}
	return s.purgeBelow(ctx, l.Stream, t.session)
}

// barrierTask is answered when everything before it is durable.
type barrierTask struct{ waiting }

func (*barrierTask) stage(*committer) error { return nil }

type trimTask struct {
	waiting
	lease   persistence.Lease
	first   uint64 // seq that will be the first
	session string
	cursor  uint64 // that will be its first
}

// look refuses what no snapshot holds, and finds the cursor of the last record that goes.
func (t *trimTask) look(txn *engine.Txn, upto uint64) error {
	stream := t.lease.Stream
	var seqs []uint64 // of the kept snapshots, the newest first
	err := backward(txn, namePrefix(nil, tagSnapshot, stream), func(item *engine.Item) error {
		if _, err := content(txn, item); err == nil {
			if _, seq, ok := splitName(item.Key()); ok {
				seqs = append(seqs, seq)
			}
		}
		if len(seqs) == keptSnapshots {
			return errStop
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		return err
	}
	held := uint64(0)
	if n := len(seqs); n > 0 {
		held = seqs[n-1]
	}
	if upto > held {
		return fmt.Errorf("kept snapshots hold the records up to %d: %w", held, persistence.ErrConflict)
	}
	begins, err := first(txn, tagCommit, stream)
	if err != nil || upto < begins {
		return err
	}
	prefix := namePrefix(nil, tagCommit, stream)
	err = before(txn, prefix, binary.BigEndian.AppendUint64(prefix[:len(prefix):len(prefix)], upto), func(item *engine.Item) error {
		c, err := decodeCommit(txn, item)
		if err != nil {
			return err
		}
		if upto >= c.end() {
			return fmt.Errorf("stream %s seq %d: missing: %w", stream, c.end(), persistence.ErrCorrupt)
		}
		if t.session = c.value.Session; t.session != "" {
			t.cursor = c.cursor(int(upto-c.first)) + 1
		}
		return errStop
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func (t *trimTask) stage(c *committer) error {
	h, claimed := c.heads[t.lease.Stream]
	if !claimed || h.epoch != t.lease.Epoch {
		return fmt.Errorf("epoch %d, newest is %d: %w", t.lease.Epoch, h.epoch, persistence.ErrFenced)
	}
	if t.first > h.next {
		return fmt.Errorf("next seq is %d: %w", h.next, persistence.ErrConflict)
	}
	if err := c.raise(tagCommit, t.lease.Stream, t.first); err != nil || t.session == "" {
		return err
	}
	return c.raise(tagCursor, t.session, t.cursor)
}

// raise moves the beginning of a name up.
func (c *committer) raise(tag byte, name string, to uint64) error {
	key := markKey(tag, name)
	value, err := c.recall(key)
	begins := uint64(1)
	if err != nil || value != nil {
		if begins, err = readMark(name, value, err); err != nil {
			return err
		}
	}
	if to <= begins {
		return nil
	}
	c.setMark(key, to)
	return nil
}

func (c *committer) setMark(key []byte, n uint64) {
	value := binary.BigEndian.AppendUint64(nil, n)
	c.room(1, int64(len(key)+len(value)+sumSize))
	c.put(sealed(key, value))
	c.remember(string(key), value)
}
