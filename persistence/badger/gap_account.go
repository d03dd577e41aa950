package badger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	engine "github.com/dgraph-io/badger/v4"
)

// The index of a table counts its entries, so it is known how many the damaged blocks held. What should be there and is not can be
// named: commits by the cursors that lead to them, cursors, bodies and pieces by the commits and the stubs, places of timers by the timers. When those are as many as the blocks
// held, they are what the blocks held, each once, and nothing else is lost, whatever else could have stood between their keys.

// hole is where a damaged block of a table was.
type hole struct {
	span
	file   string
	filter []byte // of the table's keys
	top    uint64 // its highest version
}

func (h hole) holds(key []byte) bool {
	return bytes.Compare(h.from, key) <= 0 && (h.to == nil || bytes.Compare(key, h.to) <= 0)
}

// absent is a search for what should be there and is not.
type absent struct {
	ctx   context.Context
	txn   *engine.Txn
	holes []hole
	old   *gaps             // what they hold was lost before
	keys  map[string]string // that were found absent, each with its table
	boot  uint64            // the highest that wrote a record
	// Those of them whose content is known.
	cursors mended
	due     []*engine.Entry // places of timers in their order
}

// absentIn looks for everything that should stand in holes.
func absentIn(ctx context.Context, txn *engine.Txn, holes []hole, old *gaps) (*absent, error) {
	a := &absent{ctx: ctx, txn: txn, holes: holes, old: old, keys: map[string]string{}, cursors: mended{}}
	for _, step := range []struct {
		tag byte
		fn  func(*engine.Item) error
	}{{tagCursor, a.cursor}, {tagCommit, a.commit}, {tagBlob, a.pieces}, {tagSnapshot, a.pieces}, {tagTimer, a.timer}} {
		err := forward(txn, []byte{step.tag}, nil, func(item *engine.Item) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return step.fn(item)
		})
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

// look adds a key that should be there, if there is nothing of it: one that was removed leaves a trace.
func (a *absent) look(key []byte) (missing bool, err error) {
	i := slices.IndexFunc(a.holes, func(h hole) bool { return h.holds(key) })
	if i < 0 || a.old.touching(key, key) != nil || a.keys[string(key)] != "" {
		return false, nil
	}
	_, err = a.txn.Get(key)
	if !errors.Is(err, engine.ErrKeyNotFound) {
		return false, err
	}
	it := a.txn.NewKeyIterator(key, engine.IteratorOptions{AllVersions: true})
	defer it.Close()
	if it.Rewind(); it.Valid() {
		return false, nil
	}
	a.keys[string(key)] = a.holes[i].file
	return true, nil
}

// cursor looks for the commit that one leads to.
func (a *absent) cursor(item *engine.Item) error {
	at, err := decodeCursor(a.txn, item)
	if err != nil || at.lost() {
		return nil //nolint:nilerr // one that does not read tells nothing
	}
	begins, err := first(a.txn, tagCommit, at.stream)
	if err != nil || begins >= at.first+at.n {
		return nil //nolint:nilerr // it was trimmed
	}
	_, err = a.look(nameKey(nil, tagCommit, at.stream, at.first))
	return err
}

// commit looks for its cursor, whose content it tells, and for its bodies.
func (a *absent) commit(item *engine.Item) error {
	if err := a.pieces(item); err != nil {
		return err
	}
	c, err := decodeCommit(a.txn, item)
	if err != nil {
		return nil //nolint:nilerr // one that does not read tells nothing
	}
	for _, r := range c.value.Records {
		a.boot = max(a.boot, r.GetEpoch()>>32)
		if len(r.GetBodyBlob()) == 32 {
			if _, err := a.look(blobKey([32]byte(r.GetBodyBlob()))); err != nil {
				return err
			}
		}
	}
	if c.value.GetSession() == "" {
		return nil
	}
	at := place{session: c.value.Session, cursor: c.value.FirstCursor, first: c.first, n: uint64(len(c.value.Records)), stream: c.stream}
	begins, err := first(a.txn, tagCommit, at.stream)
	if err != nil || begins >= c.end() {
		return nil //nolint:nilerr // it was trimmed
	}
	start, err := first(a.txn, tagCursor, at.session)
	if err != nil || start >= at.cursor+at.n {
		return nil //nolint:nilerr // so was its cursor
	}
	key := nameKey(nil, tagCursor, at.session, at.cursor)
	missing, err := a.look(key)
	if missing {
		a.cursors[string(key)] = mendedCursor{place: at, version: item.Version(), entry: sealed(key, at.value())}
	}
	return err
}

// timer looks for its place in the order of due times.
func (a *absent) timer(item *engine.Item) error {
	value, err := content(a.txn, item)
	if err != nil || len(value) < dueSize {
		return nil //nolint:nilerr // one that does not read tells nothing
	}
	key := dueKey(value[:dueSize], string(item.Key()[1:]))
	missing, err := a.look(key)
	if missing {
		a.due = append(a.due, sealed(key, nil))
	}
	return err
}

// entries are what is written again.
func (a *absent) entries() []*engine.Entry { return a.cursors.entries(a.due) }

// pieces looks for those of a value that is cut.
func (a *absent) pieces(item *engine.Item) error {
	if item.UserMeta()&userPieces == 0 {
		return nil
	}
	key := item.KeyCopy(nil)
	value, err := item.ValueCopy(nil)
	if err == nil {
		value, err = unseal(key, value)
	}
	if err != nil || len(value) != 8 {
		return nil //nolint:nilerr // one that does not read tells nothing
	}
	size := binary.BigEndian.Uint64(value)
	for n := 0; uint64(n)*pieceSize < min(size, maxCut); n++ {
		if _, err := a.look(pieceKey(key, n)); err != nil {
			return err
		}
	}
	return nil
}

// gaps are what is lost: a stream's commits as one gap, as nothing else can lie between two in the same block; a body or a piece by itself.
func (a *absent) gaps() []gap {
	for _, e := range a.entries() {
		delete(a.keys, string(e.Key))
	}
	keys := make([]string, 0, len(a.keys))
	for key := range a.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var out []gap
	for _, key := range keys {
		stream, _, ok := splitName([]byte(key))
		if n := len(out); n > 0 && ok && key[0] == tagCommit && out[n-1].From[0] == tagCommit && out[n-1].File == a.keys[key] {
			if before, _, _ := splitName(out[n-1].To); before == stream && !a.between(out[n-1].To, []byte(key)) {
				out[n-1].To = []byte(key)
				continue
			}
		}
		out = append(out, gap{File: a.keys[key], From: []byte(key), To: []byte(key)})
	}
	return out
}

// between says whether there is a commit between two of the same stream.
func (a *absent) between(from, to []byte) bool {
	found := false
	_ = forward(a.txn, from[:len(from)-8], from, func(item *engine.Item) error { // an error only ends it
		found = bytes.Compare(item.Key(), to) < 0
		return errStop
	})
	return found
}
