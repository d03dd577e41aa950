package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// stageTimer sets or removes a timer: its own entry, and one in the order of due times. Room was
// made for three entries.
func (c *committer) stageTimer(op persistence.TimerOp) {
	key := textKey(make([]byte, 0, 1+len(op.ID)), tagTimer, op.ID)
	// One that does not read leaves its place in the order behind, which Due passes over.
	if old, err := c.recall(key); err == nil && len(old) >= dueSize {
		c.remove(dueKey(old[:dueSize], op.ID))
	}
	if op.Delete {
		c.remove(key)
		c.remember(string(key), nil)
		return
	}
	value := append(appendDue(make([]byte, 0, dueSize+len(op.Value)+sumSize), op.Due), op.Value...)
	order := dueKey(value[:dueSize], op.ID)
	c.remember(string(key), value)
	c.put(&engine.Entry{Key: key, Value: seal(key, value)})
	c.put(sealed(order, nil))
}

// Due calls fn for the timers due at or before t, the earliest first, and then says when others may be lost (ErrCorrupt).
func (s *Store) Due(ctx context.Context, t time.Time, fn func(persistence.Timer) error) error {
	var due []persistence.Timer // given out after the transaction, which fn may outlast
	last := appendDue([]byte{tagDue}, t)
	err := s.view(ctx, func(txn *engine.Txn) error {
		return forward(txn, []byte{tagDue}, nil, func(item *engine.Item) error {
			key := item.KeyCopy(nil)
			if len(key) <= 1+dueSize || bytes.Compare(key[:1+dueSize], last) > 0 {
				return errStop
			}
			id := string(key[1+dueSize:])
			value, err := get(txn, textKey(nil, tagTimer, id))
			if errors.Is(err, persistence.ErrNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("timer %q: %w", id, err)
			}
			if len(value) < dueSize || !bytes.Equal(value[:dueSize], key[1:1+dueSize]) {
				return nil // set to another time since
			}
			due = append(due, persistence.Timer{ID: id, Due: dueTime(value), Value: value[dueSize:]})
			return ctx.Err()
		})
	})
	if err != nil && !errors.Is(err, errStop) {
		return fmt.Errorf("read timers: %w", err)
	}
	for _, timer := range due {
		if err := fn(timer); err != nil {
			return err
		}
	}
	if err := s.lost.refuseTimers(s.made()); err != nil {
		return fmt.Errorf("read timers: %w", err)
	}
	return nil
}
