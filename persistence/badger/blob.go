package badger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

func blobKey(hash [32]byte) []byte {
	return append([]byte{tagBlob}, hash[:]...)
}

// stageBlob stages a blob that the store does not hold. Its pieces may be committed ahead of the
// entry that makes them a blob.
func (c *committer) stageBlob(b persistence.Blob) error {
	key := blobKey(b.Hash)
	c.touch(b.Hash)
	known, err := c.has(key)
	if err != nil || known {
		return err
	}
	c.putLong(key, b.Data)
	c.remember(string(key), present())
	return nil
}

// touch remembers that a blob is referred to, while blobs are being deleted.
func (c *committer) touch(hash [32]byte) {
	if c.touched != nil {
		c.touched[hash] = true
	}
}

// putLong stages a value of any size under a key; the pieces of a long one come first. It
// returns their number.
func (c *committer) putLong(key, value []byte) int {
	e := sealed(key, value)
	pieces, stub := cut(key, e.Value, pieceSize)
	for _, piece := range pieces {
		c.room(1, int64(len(piece.Key)+len(piece.Value)))
		c.put(piece)
	}
	if pieces != nil {
		e.Value, e.UserMeta = stub, userPieces
	}
	c.room(1, int64(len(e.Key)+len(e.Value)))
	c.put(e)
	return len(pieces)
}

// waiting is a task whose maker waits for it.
type waiting struct {
	answers chan error // capacity 1
}

func (w waiting) answer(err error) { w.answers <- err }

// wait adds a task to the queue and waits for its answer. When ctx ends first the outcome is
// ErrAmbiguous.
func (s *Store) wait(ctx context.Context, t task, answers <-chan error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.commits.queue.add(t) {
		return persistence.ErrClosed
	}
	select {
	case err := <-answers:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", persistence.ErrAmbiguous, ctx.Err())
	}
}

type blobTask struct {
	waiting
	blob persistence.Blob
}

// PutBlob keeps content ahead of an append that refers to it.
func (s *Store) PutBlob(ctx context.Context, b persistence.Blob) error {
	if err := persistence.CheckBlob(b); err != nil {
		return fmt.Errorf("put blob: %w", err)
	}
	t := &blobTask{waiting: waiting{make(chan error, 1)}, blob: b}
	if err := s.wait(ctx, t, t.answers); err != nil {
		return fmt.Errorf("put blob %x: %w", b.Hash[:8], err)
	}
	return nil
}

func (t *blobTask) stage(c *committer) error {
	if c.full != nil {
		return c.full
	}
	return c.stageBlob(t.blob)
}

// Blob returns kept content, checked against its hash.
func (s *Store) Blob(ctx context.Context, hash [32]byte) (data []byte, err error) {
	err = s.view(ctx, func(txn *engine.Txn) error {
		data, err = readBlob(txn, hash)
		if p := s.lost.holding(blobKey(hash), 0); p != nil && errors.Is(err, persistence.ErrNotFound) {
			return fmt.Errorf("%s (see troupe repair): %w", p, persistence.ErrCorrupt)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read blob %x: %w", hash[:8], err)
	}
	return data, nil
}

func readBlob(txn *engine.Txn, hash [32]byte) ([]byte, error) {
	data, err := get(txn, blobKey(hash))
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(data) != hash {
		return nil, fmt.Errorf("content has another hash: %w", persistence.ErrCorrupt)
	}
	return data, nil
}
