package badger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
	known, err := c.knownSnapshots(t.lease.Stream)
	if err != nil {
		return err
	}
	if len(known) >= keptSnapshots && known[keptSnapshots-1].seq > t.seq {
		return nil // older than those that are kept
	}
	pieces := c.putLong(nameKey(nil, tagSnapshot, t.lease.Stream, t.seq), t.value)
	c.cur.snapshots = append(c.cur.snapshots, knownSnapshot{t.lease.Stream, t.seq, pieces})
	kept := 1
	for _, k := range known { // newest first
		if k.seq == t.seq {
			continue
		}
		if kept++; kept > keptSnapshots {
			c.removeSnapshot(k)
		}
	}
	return nil
}

// knownSnapshot is one that was staged or that the view holds.
type knownSnapshot struct {
	stream string
	seq    uint64
	pieces int // entries besides its own
}

// knownSnapshots lists a stream's snapshots as the tasks before have left them, newest first. One
// that they have removed may still be among them: it is removed again.
func (c *committer) knownSnapshots(stream string) ([]knownSnapshot, error) {
	var known []knownSnapshot
	for _, k := range slices.Concat(c.cur.snapshots, c.flyingSnapshots) {
		if k.stream == stream {
			known = append(known, k)
		}
	}
	err := backward(c.cur.view, namePrefix(nil, tagSnapshot, stream), func(item *engine.Item) error {
		key := item.KeyCopy(nil)
		_, seq, ok := splitName(key)
		if !ok || slices.ContainsFunc(known, func(k knownSnapshot) bool { return k.seq == seq }) {
			return nil
		}
		k := knownSnapshot{stream: stream, seq: seq}
		for item.UserMeta() == userPieces {
			exists, err := c.has(pieceKey(key, k.pieces))
			if err != nil {
				return err
			}
			if !exists {
				break
			}
			k.pieces++
		}
		known = append(known, k)
		return nil
	})
	slices.SortFunc(known, func(a, b knownSnapshot) int { return cmp.Compare(b.seq, a.seq) })
	return known, err
}

func (c *committer) removeSnapshot(k knownSnapshot) {
	key := nameKey(nil, tagSnapshot, k.stream, k.seq)
	c.room(1, int64(len(key)))
	c.remove(key)
	for n := range k.pieces {
		piece := pieceKey(key, n)
		c.room(1, int64(len(piece)))
		c.remove(piece)
	}
}

// Snapshot returns the newest fold that reads of those under below, ErrNotFound when there is none.
func (s *Store) Snapshot(ctx context.Context, stream string, below uint64) (*messages.Snapshot, error) {
	var found *messages.Snapshot
	err := s.view(ctx, func(txn *engine.Txn) error {
		return backward(txn, namePrefix(nil, tagSnapshot, stream), func(item *engine.Item) error {
			if _, seq, ok := splitName(item.Key()); ok && below != 0 && seq >= below {
				return nil
			}
			value, err := content(txn, item)
			if p := s.lost.unsure(item.Key(), item.Version()); p != nil {
				err = p.refusal("it may not be what was kept last")
			}
			snap := &messages.Snapshot{}
			if err == nil {
				err = proto.Unmarshal(value, snap)
			}
			if err != nil || snap.Stream != stream {
				s.log.Warn("snapshot does not read", "stream", stream, "err", err)
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
