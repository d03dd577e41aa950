package badger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	engine "github.com/dgraph-io/badger/v4"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// A deletion is made in three steps. The first is one task of the committer: it voids the leases, marks every name as
// deleted, and writes down what is to go, so that from then on nothing of it is there for anybody. The second removes
// the entries. The third, another task, removes the marks, the note and the blobs that nobody refers to any more. A crash in between
// is finished at the next opening, from the note.

// Delete removes sessions for good. See persistence.Store.
func (s *Store) Delete(ctx context.Context, all ...persistence.Deletion) error {
	plan := &messages.DeletionPlan{}
	if err := s.guard.refuseFlush(); err != nil { // what gives room back takes a little first
		return fmt.Errorf("delete %d sessions: %w", len(all), err)
	}
	err := s.view(ctx, func(txn *engine.Txn) error {
		for _, d := range all {
			if err := persistence.CheckName(d.Session); err != nil {
				return err
			}
			if err := planDeletion(txn, d, plan); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.deletePlanned(ctx, all, plan)
	}
	if err != nil {
		return fmt.Errorf("delete %d sessions: %w", len(all), err)
	}
	return nil
}

// planDeletion finds the streams of a session.
func planDeletion(txn *engine.Txn, d persistence.Deletion, plan *messages.DeletionPlan) error {
	add := func(stream string) {
		if stream != "" && !slices.Contains(plan.Streams, stream) {
			plan.Streams = append(plan.Streams, stream)
		}
	}
	plan.Sessions = append(plan.Sessions, d.Session)
	for _, stream := range d.Streams {
		if err := persistence.CheckName(stream); err != nil {
			return err
		}
		add(stream)
	}
	return forward(txn, namePrefix(nil, tagCursor, d.Session), nil, func(item *engine.Item) error {
		at, err := decodeCursor(txn, item)
		if err == nil { // of one that does not read nothing is known but its key, which goes too
			add(at.stream)
		}
		return nil
	})
}

func (s *Store) deletePlanned(ctx context.Context, all []persistence.Deletion, plan *messages.DeletionPlan) error {
	value, err := proto.Marshal(plan)
	if err != nil {
		return fmt.Errorf("encode the plan: %w: %w", persistence.ErrInvalid, err)
	}
	t := &deleteTask{waiting: waiting{make(chan error, 1)}, all: all, plan: plan, value: value}
	if err := s.wait(ctx, t, t.answers); err != nil {
		return err
	}
	// From here on it is made; what follows only gives the room back.
	blobs := map[[32]byte]bool{}
	if err := s.purge(ctx, func(p *purger) error { return p.planned(plan, blobs) }); err != nil {
		return err
	}
	orphans, err := s.orphans(ctx, blobs)
	if err != nil {
		return err
	}
	e := &deletedTask{waiting: waiting{make(chan error, 1)}, plan: plan, key: t.key, blobs: orphans}
	return s.wait(ctx, e, e.answers)
}

type deleteTask struct {
	waiting
	all   []persistence.Deletion
	plan  *messages.DeletionPlan
	value []byte
	key   []byte
}

func (t *deleteTask) stage(c *committer) error {
	for _, name := range t.plan.Streams {
		if c.gone[name] {
			return fmt.Errorf("stream %s is being deleted: %w", name, persistence.ErrUnavailable)
		}
	}
	if c.touched == nil {
		c.touched = make(map[[32]byte]bool)
	}
	c.deletions++
	for _, stream := range t.plan.Streams {
		delete(c.heads, stream)
		c.gone[stream] = true
		c.setMark(markKey(tagCommit, stream), deleted)
	}
	for _, session := range t.plan.Sessions {
		delete(c.sessions, session)
		c.goneSessions[session] = true
		c.setMark(markKey(tagCursor, session), deleted)
	}
	for _, d := range t.all {
		for _, key := range d.Index {
			c.removeOne(textKey(nil, tagIndex, key))
		}
		for _, key := range d.Keys {
			once := textKey(nil, tagOnce, key)
			c.removeOne(once)
			c.remember(string(once), nil)
		}
		for _, id := range d.Timers {
			c.room(3, int64(3*len(id))+3*dueSize)
			c.stageTimer(persistence.TimerOp{ID: id, Delete: true})
		}
	}
	t.key = nameKey(nil, tagPlan, "delete", c.s.boot<<32|uint64(c.deletions))
	c.putLong(t.key, t.value)
	return nil
}

func (c *committer) removeOne(key []byte) {
	c.room(1, int64(len(key)))
	c.remove(key)
}

// deletedTask ends a deletion.
type deletedTask struct {
	waiting
	plan  *messages.DeletionPlan
	key   []byte
	blobs [][32]byte
}

func (t *deletedTask) stage(c *committer) error {
	for _, hash := range t.blobs {
		if !c.touched[hash] { // nobody has come to refer to it meanwhile
			c.removeOne(blobKey(hash))
			c.remember(string(blobKey(hash)), nil)
		}
	}
	if c.deletions--; c.deletions == 0 {
		c.touched = nil
	}
	for _, stream := range t.plan.Streams {
		delete(c.gone, stream)
		c.removeOne(markKey(tagCommit, stream))
		c.remember(string(markKey(tagCommit, stream)), nil)
	}
	for _, session := range t.plan.Sessions {
		delete(c.goneSessions, session)
		c.removeOne(markKey(tagCursor, session))
		c.remember(string(markKey(tagCursor, session)), nil)
	}
	c.removeOne(t.key)
	return nil
}

// planned removes the entries of a plan, and collects the blobs that its records refer to.
func (p *purger) planned(plan *messages.DeletionPlan, blobs map[[32]byte]bool) error {
	for _, stream := range plan.GetStreams() {
		if err := p.stream(stream, plan, blobs); err != nil {
			return err
		}
		if err := p.all(namePrefix(nil, tagSnapshot, stream)); err != nil {
			return err
		}
	}
	for _, session := range plan.GetSessions() {
		if err := p.all(namePrefix(nil, tagCursor, session)); err != nil {
			return err
		}
	}
	return nil
}

// stream removes one, and leaves word in the sessions of others that counted its records.
func (p *purger) stream(name string, plan *messages.DeletionPlan, blobs map[[32]byte]bool) error {
	return forward(p.txn, namePrefix(nil, tagCommit, name), nil, func(item *engine.Item) error {
		c, err := decodeCommit(p.txn, item)
		if err == nil {
			for _, r := range c.value.GetRecords() {
				if len(r.GetBodyBlob()) == 32 {
					blobs[[32]byte(r.GetBodyBlob())] = true
				}
			}
			if other := c.value.GetSession(); other != "" && !slices.Contains(plan.GetSessions(), other) {
				at := place{session: other, cursor: c.value.GetFirstCursor(), n: uint64(len(c.value.GetRecords()))}
				if err := p.batch.SetEntry(sealed(nameKey(nil, tagCursor, other, at.cursor), at.value())); err != nil {
					return err
				}
			}
		}
		if err := p.drop(item.KeyCopy(nil), item.UserMeta()&userPieces != 0); err != nil {
			return err
		}
		return p.ctx.Err()
	})
}

// orphans are the blobs among some that no record refers to. It reads the store once, when there are any.
func (s *Store) orphans(ctx context.Context, blobs map[[32]byte]bool) ([][32]byte, error) {
	if len(blobs) == 0 {
		return nil, nil
	}
	err := s.view(ctx, func(txn *engine.Txn) error { return keepReferred(ctx, txn, s.lost, blobs) })
	out := make([][32]byte, 0, len(blobs))
	for hash := range blobs {
		out = append(out, hash)
	}
	return out, err
}

func keepReferred(ctx context.Context, txn *engine.Txn, lost *gaps, blobs map[[32]byte]bool) error {
	if lost != nil { // what is in there may refer to any of them
		clear(blobs)
	}
	return forward(txn, []byte{tagCommit}, nil, func(item *engine.Item) error {
		c, err := decodeCommit(txn, item)
		if err != nil { // it may refer to any of them
			clear(blobs)
			return nil //nolint:nilerr // Read says so to whom it concerns
		}
		for _, r := range c.value.GetRecords() {
			if len(r.GetBodyBlob()) == 32 {
				delete(blobs, [32]byte(r.GetBodyBlob()))
			}
		}
		return ctx.Err()
	})
}

// finishDeletions ends what a crash cut, before anybody uses the store.
func finishDeletions(ctx context.Context, db *engine.DB, lost *gaps) error {
	type noted struct {
		key  []byte
		plan *messages.DeletionPlan
	}
	var left []noted
	err := db.View(func(txn *engine.Txn) error {
		return forward(txn, []byte{tagPlan}, nil, func(item *engine.Item) error {
			n := noted{item.KeyCopy(nil), &messages.DeletionPlan{}}
			value, err := content(txn, item)
			if err == nil {
				err = proto.Unmarshal(value, n.plan)
			}
			if err != nil {
				return fmt.Errorf("read what is to be deleted: %w: %w", persistence.ErrCorrupt, err)
			}
			left = append(left, n)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if len(left) == 0 {
		return nil
	}
	for _, n := range left {
		if err := purgeIn(ctx, db, func(p *purger) error { return p.planned(n.plan, map[[32]byte]bool{}) }); err != nil {
			return fmt.Errorf("finish a deletion: %w", err)
		}
	}
	// What the deleted records referred to is not known any more, when they were gone before.
	if err := purgeIn(ctx, db, func(p *purger) error { return p.unreferred(lost) }); err != nil {
		return fmt.Errorf("sweep blobs: %w", err)
	}
	for _, n := range left {
		err := purgeIn(ctx, db, func(p *purger) error { return p.marks(n.plan) })
		if err == nil { // the note goes last: what a crash cuts now is finished once more
			err = purgeIn(ctx, db, func(p *purger) error { return p.all(n.key) })
		}
		if err != nil {
			return fmt.Errorf("finish a deletion: %w", err)
		}
	}
	return nil
}

// unreferred removes the blobs that no record refers to. It is for a store that nobody uses: a blob may be there ahead of
// the append that refers to it.
func (p *purger) unreferred(lost *gaps) error {
	blobs := map[[32]byte]bool{}
	err := forward(p.txn, []byte{tagBlob}, nil, func(item *engine.Item) error {
		if key := item.Key(); len(key) == 33 {
			blobs[[32]byte(key[1:])] = item.UserMeta()&userPieces != 0
		}
		return p.ctx.Err()
	})
	if err != nil || len(blobs) == 0 {
		return err
	}
	if err := keepReferred(p.ctx, p.txn, lost, blobs); err != nil {
		return err
	}
	for hash, pieces := range blobs {
		if err := p.drop(blobKey(hash), pieces); err != nil {
			return err
		}
	}
	return nil
}

func (p *purger) marks(plan *messages.DeletionPlan) error {
	var errs []error
	for _, stream := range plan.GetStreams() {
		errs = append(errs, p.batch.Delete(markKey(tagCommit, stream)))
	}
	for _, session := range plan.GetSessions() {
		errs = append(errs, p.batch.Delete(markKey(tagCursor, session)))
	}
	return errors.Join(errs...)
}
