package badger

import (
	"context"
	"fmt"
	"slices"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// forgetTask removes the records of a session, one append's entries after the other. Keys were looked up before: an
// append that is still in the queue would not be among them, which is why nobody may write the session.
type forgetTask struct {
	waiting
	session string
	streams []string
	appends [][][]byte // keys of each append, the last one first
}

// Forget removes every record of a session, and voids the leases of its streams.
func (s *Store) Forget(ctx context.Context, session string) error {
	t := &forgetTask{waiting: waiting{make(chan error, 1)}, session: session}
	err := s.view(ctx, func(txn *engine.Txn) error { return t.find(txn) })
	if err == nil && len(t.appends) > 0 {
		err = s.wait(ctx, t, t.answers)
	}
	return trail(err, "forget session %s", session)
}

// find collects the keys.
func (t *forgetTask) find(txn *engine.Txn) error {
	err := forward(txn, namePrefix(nil, tagCursor, t.session), nil, func(item *engine.Item) error {
		at, err := decodeCursor(txn, item)
		if err != nil {
			return err
		}
		if !slices.Contains(t.streams, at.stream) {
			t.streams = append(t.streams, at.stream)
		}
		commit := nameKey(nil, tagCommit, at.stream, at.first)
		keys := [][]byte{item.KeyCopy(nil), commit}
		for n := 0; ; n++ {
			piece := pieceKey(commit, n)
			if _, err := txn.Get(piece); err != nil {
				break
			}
			keys = append(keys, piece)
		}
		t.appends = append(t.appends, keys)
		return nil
	})
	slices.Reverse(t.appends)
	return err
}

func (t *forgetTask) stage(c *committer) error {
	for _, keys := range t.appends {
		var size int64
		for _, k := range keys {
			size += int64(len(k))
		}
		if count := int64(len(keys)); count > c.maxCount || size+count*txnOverhead > c.maxSize {
			return fmt.Errorf("remove %d entries at once: %w", count, persistence.ErrTooLarge)
		}
	}
	for _, keys := range t.appends {
		var size int64
		for _, k := range keys {
			size += int64(len(k))
		}
		c.room(int64(len(keys)), size)
		for _, k := range keys {
			c.remove(k)
		}
	}
	for _, stream := range t.streams {
		c.heads[stream] = head{next: 1, group: c.cur.n}
		c.released = append(c.released, stream)
	}
	c.sessions[t.session] = position{group: c.cur.n}
	return nil
}

var _ persistence.Forgetter = (*Store)(nil)
