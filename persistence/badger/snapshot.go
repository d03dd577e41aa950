package badger

import (
	"context"
	"errors"
	"fmt"

	engine "github.com/dgraph-io/badger/v4"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// keptSnapshots is how many folds of a stream are kept: the newest, and one to fall back on when
// it does not read.
const keptSnapshots = 2

type snapshotTask struct {
	waiting
	lease persistence.Lease
	seq   uint64
	value []byte // the encoded Snapshot
}

// PutSnapshot keeps a fold of a stream up to a durable record; the two newest are kept.
func (s *Store) PutSnapshot(ctx context.Context, l persistence.Lease, snap *messages.Snapshot) error {
	if err := persistence.CheckSnapshot(l, snap); err != nil {
		return err
	}
	value, err := proto.Marshal(&messages.Snapshot{Stream: l.Stream, Seq: snap.Seq, Schema: snap.Schema, State: snap.State})
	if err != nil {
		return fmt.Errorf("encode snapshot of %s: %w: %w", l.Stream, persistence.ErrInvalid, err)
	}
	t := &snapshotTask{waiting: waiting{make(chan error, 1)}, lease: l, seq: snap.Seq, value: value}
	if err := s.wait(ctx, t, t.answers); err != nil {
		return fmt.Errorf("snapshot of %s at %d: %w", l.Stream, snap.Seq, err)
	}
	return nil
}

func (t *snapshotTask) stage(c *committer) error {
	if c.full != nil {
		return c.full
	}
	h, claimed := c.heads[t.lease.Stream]
	if !claimed || h.epoch != t.lease.Epoch {
		return fmt.Errorf("epoch %d, newest is %d: %w", t.lease.Epoch, h.epoch, persistence.ErrFenced)
	}
	if t.seq >= h.next {
		return fmt.Errorf("next seq is %d: %w", h.next, persistence.ErrConflict)
	}
	known, err := c.snapshotSeqs(t.lease.Stream)
	if err != nil {
		return err
	}
	if len(known) >= keptSnapshots && known[keptSnapshots-1].seq > t.seq {
		return nil // older than those that are kept
	}
	c.putLong(nameKey(nil, tagSnapshot, t.lease.Stream, t.seq), t.value)
	kept := 1
	for _, k := range known { // newest first
		if k.seq == t.seq {
			continue
		}
		if kept++; kept > keptSnapshots {
			c.removeLong(nameKey(nil, tagSnapshot, t.lease.Stream, k.seq), k.pieces)
		}
	}
	return nil
}

// knownSnapshot is one that the view holds.
type knownSnapshot struct {
	seq    uint64
	pieces bool
}

// snapshotSeqs lists a stream's snapshots, newest first. One that is in flight is not among them
// and is removed by the next but one: keeping three for a moment does no harm.
func (c *committer) snapshotSeqs(stream string) ([]knownSnapshot, error) {
	var known []knownSnapshot
	err := backward(c.cur.view, namePrefix(nil, tagSnapshot, stream), func(item *engine.Item) error {
		_, seq, ok := splitName(item.Key())
		if ok {
			known = append(known, knownSnapshot{seq, item.UserMeta() == userPieces})
		}
		return nil
	})
	return known, err
}

// removeLong deletes a value and its pieces.
func (c *committer) removeLong(key []byte, inPieces bool) {
	c.room(1, int64(len(key)))
	c.remove(key)
	for n := 0; inPieces; n++ {
		piece := pieceKey(key, n)
		exists, err := c.has(piece)
		if err != nil || !exists {
			return // what stays is never read again
		}
		c.room(1, int64(len(piece)))
		c.remove(piece)
	}
}

// Snapshot returns the newest fold that reads, ErrNotFound when there is none.
func (s *Store) Snapshot(ctx context.Context, stream string) (*messages.Snapshot, error) {
	var found *messages.Snapshot
	err := s.view(ctx, func(txn *engine.Txn) error {
		return backward(txn, namePrefix(nil, tagSnapshot, stream), func(item *engine.Item) error {
			value, err := content(txn, item)
			snap := &messages.Snapshot{}
			if err == nil {
				err = proto.Unmarshal(value, snap)
			}
			if err != nil || snap.Stream != stream {
				s.log.Warn("snapshot does not read", "stream", stream, "error", err)
				return nil
			}
			found = snap
			return errStop
		})
	})
	if err != nil && !errors.Is(err, errStop) {
		return nil, fmt.Errorf("snapshot of %s: %w", stream, err)
	}
	if found == nil {
		return nil, fmt.Errorf("snapshot of %s: %w", stream, persistence.ErrNotFound)
	}
	return found, nil
}

// errStop ends a walk early; it is never returned.
var errStop = errors.New("stop")
