package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	engine "github.com/dgraph-io/badger/v4"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// forward calls fn for the items whose keys begin with prefix, from a key on (nil: the first).
func forward(txn *engine.Txn, prefix, from []byte, fn func(*engine.Item) error) error {
	it := txn.NewIterator(engine.IteratorOptions{Prefix: prefix, PrefetchValues: false})
	defer it.Close()
	if from == nil {
		from = prefix
	}
	for it.Seek(from); it.Valid(); it.Next() {
		if err := fn(it.Item()); err != nil {
			return err
		}
	}
	return nil
}

// backward calls fn for the items whose keys begin with prefix, the last first.
func backward(txn *engine.Txn, prefix []byte, fn func(*engine.Item) error) error {
	return before(txn, prefix, append(slices.Clone(prefix), bytes.Repeat([]byte{0xff}, 8)...), fn)
}

// before is backward from a key on.
func before(txn *engine.Txn, prefix, from []byte, fn func(*engine.Item) error) error {
	it := txn.NewIterator(engine.IteratorOptions{Prefix: prefix, Reverse: true})
	defer it.Close()
	for it.Seek(from); it.Valid(); it.Next() {
		if err := fn(it.Item()); err != nil {
			return err
		}
	}
	return nil
}

// view runs fn in a read transaction of an open store: it sees every append that was answered
// before the call.
func (s *Store) view(ctx context.Context, fn func(*engine.Txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.readers.Done()
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	return fn(txn)
}

// commitItem is one append's records of one stream as read back.
type commitItem struct {
	stream string
	first  uint64
	value  *messages.Commit
}

// decodeCommit reads and checks what stands under a commit's key.
func decodeCommit(txn *engine.Txn, item *engine.Item) (commitItem, error) {
	stream, first, ok := splitName(item.Key())
	if !ok {
		return commitItem{}, fmt.Errorf("key %q: %w", item.Key(), persistence.ErrCorrupt)
	}
	c := commitItem{stream: stream, first: first, value: &messages.Commit{}}
	value, err := content(txn, item)
	if err != nil {
		return c, fmt.Errorf("stream %s seq %d: %w", stream, first, err)
	}
	if err := proto.Unmarshal(value, c.value); err != nil {
		return c, fmt.Errorf("stream %s seq %d: %w: %w", stream, first, persistence.ErrCorrupt, err)
	}
	if len(c.value.Records) == 0 {
		return c, fmt.Errorf("stream %s seq %d: no records: %w", stream, first, persistence.ErrCorrupt)
	}
	complete(c.value, first)
	for i, r := range c.value.Records {
		if r.GetSeq() != first+uint64(i) {
			return c, fmt.Errorf("stream %s seq %d: record says %d: %w", stream, first+uint64(i), r.GetSeq(), persistence.ErrCorrupt)
		}
	}
	return c, nil
}

// end is the seq behind the item's last record.
func (c commitItem) end() uint64 { return c.first + uint64(len(c.value.Records)) }

// cursor is the session cursor of the i-th record, 0 without a session.
func (c commitItem) cursor(i int) uint64 {
	if c.value.Session == "" {
		return 0
	}
	return c.value.FirstCursor + uint64(i)
}

// entry gives out the i-th record with its body.
func (c commitItem) entry(txn *engine.Txn, i int) (persistence.Entry, error) {
	r := c.value.Records[i]
	if len(r.BodyBlob) != 0 {
		if len(r.BodyBlob) != 32 {
			return persistence.Entry{}, fmt.Errorf("stream %s seq %d: blob hash of %d bytes: %w", c.stream, r.Seq, len(r.BodyBlob), persistence.ErrCorrupt)
		}
		body, err := readBlob(txn, [32]byte(r.BodyBlob))
		if errors.Is(err, persistence.ErrNotFound) {
			err = fmt.Errorf("it is missing: %w", persistence.ErrCorrupt)
		}
		if err != nil {
			return persistence.Entry{}, fmt.Errorf("stream %s seq %d: body %x: %w", c.stream, r.Seq, r.BodyBlob[:8], err)
		}
		r.Body = body
	}
	return persistence.Entry{Stream: c.stream, Session: c.value.Session, Cursor: c.cursor(i), Record: r}, nil
}

// begun says whether a stream or a session has entries at all: the first is numbered 1 and stays until it is
// trimmed, which leaves a mark. Without this an iterator would look for the entries of a new one among its neighbours', and
// step one by one over those that are too young for the view: many, where many begin at once.
func begun(txn *engine.Txn, lost *gaps, tag byte, name string) (bool, error) {
	_, err := txn.Get(nameKey(nil, tag, name, 1))
	if err != nil && !errors.Is(err, engine.ErrKeyNotFound) {
		return false, fmt.Errorf("look for the beginning of %s: %w", name, err)
	}
	begins, markErr := first(txn, tag, name)
	if err != nil && begins == 1 && markErr == nil && lost.unsure(markKey(tag, name), 0) != nil { // its mark may be lost
		found := forward(txn, namePrefix(nil, tag, name), nil, func(*engine.Item) error { return errStop })
		return found != nil, nil
	}
	return begins != deleted && (err == nil || begins > 1), markErr
}

// tail is the end of a stream.
type tail struct {
	seq, epoch uint64
}

// lastRecord finds the end of a stream; zero when it does not exist.
func lastRecord(txn *engine.Txn, lost *gaps, stream string) (tail, error) {
	var found tail
	if err := lost.missing(txn, stream); err != nil {
		return tail{}, err
	}
	if known, err := begun(txn, lost, tagCommit, stream); !known {
		return tail{}, err
	}
	err := backward(txn, namePrefix(nil, tagCommit, stream), func(item *engine.Item) error {
		c, err := decodeCommit(txn, item)
		if err != nil {
			return err
		}
		last := c.value.Records[len(c.value.Records)-1]
		found = tail{seq: last.Seq, epoch: last.Epoch}
		return errStop
	})
	if err != nil && !errors.Is(err, errStop) {
		return tail{}, fmt.Errorf("find the end of %s: %w", stream, err)
	}
	return found, nil
}

// lastCursor finds the end of a session; 0 when it has none.
func lastCursor(txn *engine.Txn, lost *gaps, session string) (uint64, error) {
	var last uint64
	if err := lost.refuseSession(session); err != nil {
		return 0, err
	}
	if known, err := begun(txn, lost, tagCursor, session); !known {
		return 0, err
	}
	err := backward(txn, namePrefix(nil, tagCursor, session), func(item *engine.Item) error {
		at, err := decodeCursor(txn, item)
		if err != nil {
			return err
		}
		last = at.cursor + at.n - 1
		return errStop
	})
	if err != nil && !errors.Is(err, errStop) {
		return 0, fmt.Errorf("find the last cursor of %s: %w", session, err)
	}
	return last, nil
}

// place is what a cursor's index entry says: n records from seq first of a stream have the
// cursors from cursor on. Without a stream they are lost, and a repair has said so.
type place struct {
	session          string
	cursor, first, n uint64
	stream           string
}

func (p place) lost() bool { return p.stream == "" }
