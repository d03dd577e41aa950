package badger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// Read calls fn for every record of a stream with seq >= from, in order. Bytes that do not match
// their checksum, a gap and an epoch that goes back are ErrCorrupt, naming stream and seq. fn
// must not close the store.
func (s *Store) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	err := s.view(ctx, func(txn *engine.Txn) error { return readStream(ctx, txn, s.lost, stream, max(from, 1), fn) })
	return trail(err, "read %s from %d", stream, from)
}

// given is an error of the caller's function: it is returned as it is.
type given struct{ err error }

func (g given) Error() string { return g.err.Error() }

// trail says what was being done, but returns an error of fn unchanged.
func trail(err error, format string, args ...any) error {
	var own given
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own.err
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// call runs the caller's function.
func call(fn func(persistence.Entry) error, e persistence.Entry) error {
	if err := fn(e); err != nil {
		return given{err}
	}
	return nil
}

func readStream(ctx context.Context, txn *engine.Txn, lost *gaps, stream string, from uint64, fn func(persistence.Entry) error) error {
	begins, err := first(txn, tagCommit, stream)
	switch {
	case err != nil || begins == deleted:
		return err
	case from < begins:
		return &persistence.TrimmedError{Name: "stream " + stream, First: begins}
	}
	prefix := namePrefix(nil, tagCommit, stream)
	start, err := floor(txn, prefix, from)
	if err != nil {
		return err
	}
	hole := lost.behind(stream, slices.MaxFunc([][]byte{start, prefix}, bytes.Compare))
	var next, epoch uint64
	err = forward(txn, prefix, start, func(item *engine.Item) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if hole != nil && bytes.Compare(item.Key(), hole.From) >= 0 {
			return errStop
		}
		c, err := decodeCommit(txn, item)
		if err != nil {
			return err
		}
		if next == 0 && c.first > from {
			next = from // the record asked for must be there
		}
		if next != 0 && c.first != next {
			return fmt.Errorf("stream %s seq %d: missing, the next is %d: %w", stream, next, c.first, persistence.ErrCorrupt)
		}
		next = c.end()
		for i, r := range c.value.Records {
			if r.Epoch < epoch {
				return fmt.Errorf("stream %s seq %d: epoch %d after %d: %w", stream, r.Seq, r.Epoch, epoch, persistence.ErrCorrupt)
			}
			epoch = r.Epoch
			if r.Seq < from {
				continue
			}
			e, err := c.entry(txn, i)
			if err != nil {
				return err
			}
			if err := call(fn, e); err != nil {
				return err
			}
		}
		return nil
	})
	if hole != nil && (err == nil || errors.Is(err, errStop)) {
		return hole.refuse(stream)
	}
	return err
}

// floor finds the key at which a walk from the n-th thing of a name begins: the last one not
// behind it. nil stands for the first.
func floor(txn *engine.Txn, prefix []byte, n uint64) ([]byte, error) {
	if n <= 1 {
		return nil, nil
	}
	var key []byte
	err := before(txn, prefix, binary.BigEndian.AppendUint64(prefix[:len(prefix):len(prefix)], n), func(item *engine.Item) error {
		key = item.KeyCopy(nil)
		return errStop
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return key, err
}

// decodeCursor reads a cursor's index entry.
func decodeCursor(txn *engine.Txn, item *engine.Item) (place, error) {
	session, cursor, ok := splitName(item.Key())
	if !ok {
		return place{}, fmt.Errorf("key %q: %w", item.Key(), persistence.ErrCorrupt)
	}
	at := place{session: session, cursor: cursor}
	value, err := content(txn, item)
	if err != nil {
		return at, fmt.Errorf("session %s cursor %d: %w", session, cursor, err)
	}
	var n int
	for _, field := range []*uint64{&at.first, &at.n} {
		if *field, n = binary.Uvarint(value); n <= 0 {
			return at, fmt.Errorf("session %s cursor %d: short entry: %w", session, cursor, persistence.ErrCorrupt)
		}
		value = value[n:]
	}
	at.stream = string(value)
	if at.n == 0 || (at.first == 0) != (at.stream == "") {
		return at, fmt.Errorf("session %s cursor %d: leads nowhere: %w", session, cursor, persistence.ErrCorrupt)
	}
	return at, nil
}

// follow reads the commit that a cursor leads to and checks that it says the same.
func (p place) follow(txn *engine.Txn, lost *gaps) (commitItem, error) {
	key := nameKey(nil, tagCommit, p.stream, p.first)
	if err := lost.at(p.stream, key); err != nil {
		return commitItem{}, fmt.Errorf("session %s cursor %d: %w", p.session, p.cursor, err)
	}
	item, err := txn.Get(key)
	if err != nil {
		return commitItem{}, fmt.Errorf("session %s cursor %d: stream %s seq %d: %w: %w", p.session, p.cursor, p.stream, p.first, persistence.ErrCorrupt, err)
	}
	c, err := decodeCommit(txn, item)
	if err != nil {
		return c, err
	}
	if c.value.Session != p.session || c.value.FirstCursor != p.cursor || uint64(len(c.value.Records)) != p.n {
		return c, fmt.Errorf("session %s cursor %d: stream %s seq %d has cursor %d of session %q: %w",
			p.session, p.cursor, p.stream, p.first, c.value.FirstCursor, c.value.Session, persistence.ErrCorrupt)
	}
	return c, nil
}

// ReadSession calls fn for every record of a session with a cursor > after, in order.
func (s *Store) ReadSession(ctx context.Context, session string, after uint64, fn func(persistence.Entry) error) error {
	err := s.view(ctx, func(txn *engine.Txn) error { return readSession(ctx, txn, s.lost, session, after, fn) })
	return trail(err, "read session %s after %d", session, after)
}

func readSession(ctx context.Context, txn *engine.Txn, lost *gaps, session string, after uint64, fn func(persistence.Entry) error) error {
	if after == math.MaxUint64 {
		return nil
	}
	begins, err := first(txn, tagCursor, session)
	switch {
	case err != nil || begins == deleted:
		return err
	case after+1 < begins:
		return &persistence.TrimmedError{Name: "session " + session, First: begins}
	}
	prefix := namePrefix(nil, tagCursor, session)
	start, err := floor(txn, prefix, after+1)
	if err != nil {
		return err
	}
	var next uint64
	err = forward(txn, prefix, start, func(item *engine.Item) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		at, err := decodeCursor(txn, item)
		if err != nil {
			return err
		}
		if next == 0 && at.cursor > after+1 {
			next = after + 1
		}
		if next != 0 && at.cursor != next {
			return fmt.Errorf("session %s cursor %d: missing, the next is %d: %w", session, next, at.cursor, persistence.ErrCorrupt)
		}
		next = at.cursor + at.n
		if next <= after+1 || at.lost() {
			return nil
		}
		c, err := at.follow(txn, lost)
		if err != nil {
			return err
		}
		for i := range c.value.Records {
			if c.cursor(i) <= after {
				continue
			}
			e, err := c.entry(txn, i)
			if err != nil {
				return err
			}
			if err := call(fn, e); err != nil {
				return err
			}
		}
		return nil
	})
	if refusal := lost.refuseSession(session); refusal != nil && (err == nil || errors.Is(err, persistence.ErrCorrupt)) {
		return refusal
	}
	return err
}

// Head returns the last durable seq of a stream, 0 when it does not exist.
func (s *Store) Head(ctx context.Context, stream string) (uint64, error) {
	var end tail
	err := s.view(ctx, func(txn *engine.Txn) (err error) { end, err = lastRecord(txn, s.lost, stream); return err })
	return end.seq, trail(err, "head of %s", stream)
}

// Cursor returns the last durable cursor of a session, 0 when it has none.
func (s *Store) Cursor(ctx context.Context, session string) (last uint64, err error) {
	err = s.view(ctx, func(txn *engine.Txn) (err error) { last, err = lastCursor(txn, s.lost, session); return err })
	return last, trail(err, "cursor of %s", session)
}

// Streams calls fn for the name of every stream with the prefix, in order, and then says when others may be lost (ErrCorrupt).
func (s *Store) Streams(ctx context.Context, prefix string, fn func(string) error) error {
	err := s.view(ctx, func(txn *engine.Txn) error {
		if err := streams(ctx, txn, s.lost, prefix, fn); err != nil {
			return err
		}
		return s.lost.refuseNames(prefix)
	})
	return trail(err, "list streams of %q", prefix)
}

// streams jumps from one name to the next: a stream's commits are not walked. Streams of which nothing is left are among them.
func streams(ctx context.Context, txn *engine.Txn, lost *gaps, prefix string, fn func(string) error) error {
	missing, err := lost.names(txn, prefix)
	if err != nil {
		return err
	}
	upTo := func(name string) error { // gives out the missing ones that come before a name
		for len(missing) > 0 && missing[0] <= name {
			if missing[0] < name {
				if err := fn(missing[0]); err != nil {
					return given{err}
				}
			}
			missing = missing[1:]
		}
		return nil
	}
	begin := textKey(nil, tagCommit, prefix)
	it := txn.NewIterator(engine.IteratorOptions{Prefix: begin})
	defer it.Close()
	for it.Seek(begin); it.Valid(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		name, _, ok := splitName(it.Item().Key())
		if !ok {
			return fmt.Errorf("key %q: %w", it.Item().Key(), persistence.ErrCorrupt)
		}
		if err := upTo(name); err != nil {
			return err
		}
		// A mark that does not read is for those to hear of who read the stream.
		if begins, err := first(txn, tagCommit, name); err != nil || begins != deleted {
			if err := fn(name); err != nil {
				return given{err}
			}
		}
		it.Seek(append(textKey(nil, tagCommit, name), 1)) // the NUL's successor
	}
	return upTo("\xff")
}

// Index calls fn for every secondary entry with the prefix, in order of its key. Where entries may be lost that were not made again, it gives out
// those that are certain, and then ErrCorrupt.
func (s *Store) Index(ctx context.Context, prefix string, fn func(key string, value []byte) error) error {
	err := s.view(ctx, func(txn *engine.Txn) error {
		refusal := s.lost.refuseIndex(s.made(), prefix)
		err := forward(txn, textKey(nil, tagIndex, prefix), nil, func(item *engine.Item) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if refusal != nil && s.lost.unsure(item.Key(), item.Version()) != nil {
				return nil
			}
			value, err := content(txn, item)
			key := string(item.Key()[1:])
			if err != nil {
				return fmt.Errorf("entry %q: %w", key, err)
			}
			if err := fn(key, value); err != nil {
				return given{err}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return refusal
	})
	return trail(err, "read index %q", prefix)
}

// Lookup returns the value of an idempotency key, ErrNotFound when there is none.
func (s *Store) Lookup(ctx context.Context, key string) (value []byte, err error) {
	err = s.view(ctx, func(txn *engine.Txn) error {
		if err := s.lost.refuseKey(txn, key); err != nil {
			return err
		}
		value, err = get(txn, textKey(nil, tagOnce, key))
		return err
	})
	return value, trail(err, "look up %q", key)
}
