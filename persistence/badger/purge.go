package badger

import (
	"context"
	"errors"
	"fmt"

	engine "github.com/dgraph-io/badger/v4"
)

// purgeBelow removes what lies before the beginnings of a stream and of its session.
func (s *Store) purgeBelow(ctx context.Context, stream, session string) error {
	return s.purge(ctx, func(p *purger) error {
		if err := p.below(tagCommit, stream); err != nil || session == "" {
			return err
		}
		return p.below(tagCursor, session)
	})
}

// purge removes entries in as many transactions as it takes: nothing leads to them any more.
func (s *Store) purge(ctx context.Context, do func(p *purger) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.readers.Done()
	return purgeIn(ctx, s.db, do)
}

func purgeIn(ctx context.Context, db *engine.DB, do func(p *purger) error) error {
	batch := db.NewWriteBatch()
	defer batch.Cancel()
	err := db.View(func(txn *engine.Txn) error { return do(&purger{ctx: ctx, txn: txn, batch: batch}) })
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	if err := batch.Flush(); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}

// purger removes what a view of the database shows.
type purger struct {
	ctx   context.Context
	txn   *engine.Txn
	batch *engine.WriteBatch
}

// below removes the entries of a name that end before its beginning: those behind which another one stands that
// does not begin after it.
func (p *purger) below(tag byte, name string) error {
	begins, err := first(p.txn, tag, name)
	if err != nil {
		return err
	}
	var held []byte
	var pieces bool
	err = forward(p.txn, namePrefix(nil, tag, name), nil, func(item *engine.Item) error {
		_, n, ok := splitName(item.Key())
		if !ok || n > begins {
			return errStop
		}
		if held != nil {
			if err := p.drop(held, pieces); err != nil {
				return err
			}
		}
		held, pieces = item.KeyCopy(nil), item.UserMeta()&userPieces != 0
		return p.ctx.Err()
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// drop removes an entry, and its pieces.
func (p *purger) drop(key []byte, pieces bool) error {
	if err := p.batch.Delete(key); err != nil || !pieces {
		return err
	}
	return forward(p.txn, append([]byte{tagPiece}, key...), nil, func(item *engine.Item) error {
		return p.batch.Delete(item.KeyCopy(nil))
	})
}

// all removes every entry below a prefix.
func (p *purger) all(prefix []byte) error {
	return forward(p.txn, prefix, nil, func(item *engine.Item) error {
		if err := p.drop(item.KeyCopy(nil), item.UserMeta()&userPieces != 0); err != nil {
			return err
		}
		return p.ctx.Err()
	})
}
