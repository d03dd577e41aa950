package badger

import (
	"bytes"
	"context"
	"slices"
	"strings"

	engine "github.com/dgraph-io/badger/v4"
)

// Every record that a session counts has an entry of its cursor, which stands elsewhere and was written in the same transaction. So the
// cursors tell what was in a gap, and which commits in it are what was written there last.

// assess finds out who lost what, and who lost nothing.
func (g *gaps) assess(ctx context.Context, txn *engine.Txn, m mended) error {
	lost := map[string]*lostStream{}
	err := forward(txn, []byte{tagCursor}, nil, func(item *engine.Item) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		at, err := decodeCursor(txn, item)
		if err != nil || at.lost() || !g.took(txn, at) {
			return nil //nolint:nilerr // one that does not read tells nothing
		}
		last := at.first + at.n - 1
		l := lost[at.stream]
		if l == nil {
			l = &lostStream{Stream: at.stream, First: at.first, Last: last, Cursor: item.KeyCopy(nil)}
			lost[at.stream] = l
		}
		l.First, l.Last = min(l.First, at.first), max(l.Last, last)
		return nil
	})
	if err != nil {
		return err
	}
	g.Lost, g.Whole = nil, nil
	for _, l := range lost {
		g.Lost = append(g.Lost, *l)
	}
	slices.SortFunc(g.Lost, func(a, b lostStream) int { return strings.Compare(a.Stream, b.Stream) })
	var there []string
	for _, p := range g.Gaps {
		names, err := namesIn(ctx, txn, p)
		if err != nil {
			return err
		}
		there = append(there, names...)
	}
	slices.Sort(there)
	for _, name := range slices.Compact(there) {
		if lost[name] == nil && g.spared(txn, name) {
			g.Whole = append(g.Whole, name)
		}
	}
	return g.sort(ctx, txn, lost, m)
}

// took says whether a cursor leads to records that were lost in a gap.
func (g *gaps) took(txn *engine.Txn, at place) bool {
	key := nameKey(nil, tagCommit, at.stream, at.first)
	if g.touching(key, key) == nil {
		return false
	}
	if begins, err := first(txn, tagCommit, at.stream); err == nil && begins >= at.first+at.n {
		return false // it was trimmed, or deleted
	}
	item, err := txn.Get(key)
	if err != nil {
		return g.holding(key, 0) != nil
	}
	c, err := decodeCommit(txn, item)
	return err != nil || !g.last(txn, c, item.Version())
}

// last says whether a commit is certain to be what was written last under its key: no gap can hold another, or its cursor shows it, or the commit
// behind it does, which has the same epoch. A stream that was deleted and begun again has another.
func (g *gaps) last(txn *engine.Txn, c commitItem, version uint64) bool {
	if g.holding(nameKey(nil, tagCommit, c.stream, c.first), version) == nil {
		return true
	}
	item, err := txn.Get(nameKey(nil, tagCursor, c.value.GetSession(), c.value.GetFirstCursor()))
	if err == nil && g.holding(item.Key(), item.Version()) == nil && c.current(txn, version) {
		return true
	}
	key := nameKey(nil, tagCommit, c.stream, c.end())
	if item, err = txn.Get(key); err != nil || g.holding(key, item.Version()) != nil {
		return false
	}
	next, err := decodeCommit(txn, item)
	return err == nil && next.value.Records[0].GetEpoch() == c.value.Records[len(c.value.Records)-1].GetEpoch()
}

// current says whether a commit is what was written last under its key: its cursor leads to it, and is not younger.
func (c commitItem) current(txn *engine.Txn, version uint64) bool {
	if c.value.GetSession() == "" {
		return false
	}
	item, err := txn.Get(nameKey(nil, tagCursor, c.value.Session, c.value.FirstCursor))
	if err != nil {
		return false
	}
	at, err := decodeCursor(txn, item)
	return err == nil && item.Version() <= version && at.stream == c.stream && at.first == c.first && at.n == uint64(len(c.value.Records))
}

// namesIn are the streams of which commits are found in a gap.
func namesIn(ctx context.Context, txn *engine.Txn, p gap) ([]string, error) {
	var names []string
	it := txn.NewIterator(engine.IteratorOptions{Prefix: []byte{tagCommit}})
	defer it.Close()
	for it.Seek(slices.MaxFunc([][]byte{p.From, {tagCommit}}, bytes.Compare)); it.Valid(); {
		key := it.Item().KeyCopy(nil)
		name, _, ok := splitName(key)
		if !ok || string(key) > string(p.To) {
			break
		}
		names = append(names, name)
		it.Seek(append(textKey(nil, tagCommit, name), 1)) // the NUL's successor
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// spared says whether a stream is certain to have lost nothing: it is there without a hole, what of it stands in gaps is what was written last,
// and no gap could hold what follows.
func (g *gaps) spared(txn *engine.Txn, name string) bool {
	begins, err := first(txn, tagCommit, name)
	if err != nil || begins == deleted {
		return false
	}
	prefix := namePrefix(nil, tagCommit, name)
	start, err := floor(txn, prefix, begins)
	if err != nil {
		return false
	}
	whole, next, version := true, uint64(0), uint64(0)
	err = forward(txn, prefix, start, func(item *engine.Item) error {
		c, err := decodeCommit(txn, item)
		switch {
		case err != nil, next == 0 && c.first > begins, next != 0 && c.first != next:
			whole = false
		default:
			whole = g.last(txn, c, item.Version())
		}
		if !whole {
			return errStop
		}
		next, version = c.end(), max(version, item.Version())
		return nil
	})
	return err == nil && whole && next > 0 && g.ends(tagCommit, name, next, version)
}
