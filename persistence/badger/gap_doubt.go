package badger

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	engine "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
)

// A block that held cursors and the commits that they lead to leaves nothing that counts them. What it cannot have held is still known: the
// table keeps a filter of its keys, which is sure about those that it does not know, and its highest version. The keys of a stream follow from one
// another, and so do a session's. So a stream is whole when its commits follow one another and the filter does not know the key that would come
// next. Those that were there at the opening are told apart then, and kept as Whole and Doubt; a stream or a session that was not there is refused when
// the filter may know its first key: it is lost, or, once in some thirty times, new.

// maxFilter bounds the filters that are written down: that of some 70,000 keys.
const maxFilter = 64 << 10

// doubtful are the tags of entries that may have been in such a block. They are told by others, by their neighbours, or are not
// needed to tell what is true (gap_second.go).
const doubtful = string(tagBlob) + string(tagCursor) + string(tagDue) + string(tagCommit) + string(tagFirst) + string(tagIndex) + string(tagOnce) + string(tagMeta) +
	string(tagPiece) + string(tagSnapshot) + string(tagTimer) + string(tagPlan)

// doubts are gaps with filters, when the holes cannot have held anything that nobody would miss.
func (m *missing) doubts() (found []gap, ok bool) {
	for _, h := range m.holes {
		if h.to == nil {
			h.to = []byte{behindAll}
		}
		if len(h.filter) == 0 || len(h.filter) > maxFilter || !isDoubtful(h.from) || !isDoubtful(h.to) && h.to[0] != behindAll {
			return nil, false
		}
		found = append(found, gap{File: h.file, From: h.from, To: h.to, Filter: h.filter, Top: h.top})
	}
	return found, true
}

func isDoubtful(key []byte) bool { return bytes.IndexByte([]byte(doubtful), key[0]) >= 0 }

// covers says whether a key lies between a gap's.
func (p *gap) covers(key []byte) bool {
	return bytes.Compare(p.From, key) <= 0 && bytes.Compare(key, p.To) <= 0
}

// mayHold says whether a gap may have held a key with a version that is not older than one. Without a filter it is asked for the place only.
func (p *gap) mayHold(key []byte, version uint64) bool {
	return p.covers(key) && (p.Filter == nil || version <= p.Top && y.Filter(p.Filter).MayContainKey(key))
}

// holding returns the first gap that may hold a key.
func (g *gaps) holding(key []byte, version uint64) *gap {
	if g == nil {
		return nil
	}
	for i := range g.Gaps {
		if p := &g.Gaps[i]; p.mayHold(key, version) {
			return p
		}
	}
	return nil
}

// ranged are the gaps without filters.
func (g *gaps) ranged() *gaps {
	if g == nil {
		return nil
	}
	out := &gaps{Lost: g.Lost, Whole: g.Whole}
	for _, p := range g.Gaps {
		if p.Filter == nil {
			out.Gaps = append(out.Gaps, p)
		}
	}
	return out
}

func (g *gaps) all() []gap {
	if g == nil {
		return nil
	}
	return g.Gaps
}

// told are the names of one kind, streams or sessions, as the opening has told them apart.
type told struct {
	tag          byte
	whole, doubt []string
}

func (g *gaps) streams() told  { return told{tagCommit, g.Whole, g.Doubt} }
func (g *gaps) sessions() told { return told{tagCursor, g.WholeSessions, g.DoubtSessions} }

// suspect returns the gap with a filter over which a stream or a session is refused; nil: it is not.
func (g *gaps) suspect(t told, name string) *gap {
	if slices.Contains(t.whole, name) {
		return nil
	}
	doubt := slices.Contains(t.doubt, name)
	from, to := nameKey(nil, t.tag, name, 0), nameKey(nil, t.tag, name, ^uint64(0))
	for i := range g.Gaps {
		p := &g.Gaps[i]
		if p.Filter == nil || !p.overlaps(from, to) {
			continue
		}
		if doubt || p.mayHold(nameKey(nil, t.tag, name, 1), 0) {
			return p
		}
	}
	return nil
}

// refuseSession refuses a session whose cursors are lost, or may be; nil: it is not one.
func (g *gaps) refuseSession(session string) error {
	if g == nil {
		return nil
	}
	if p := g.suspect(g.sessions(), session); p != nil {
		return p.refusal("session " + session + " may have lost records")
	}
	return nil
}

// sort tells streams and sessions apart that were there when a block was left out: which are certain to be whole.
func (g *gaps) sort(ctx context.Context, txn *engine.Txn, lost map[string]*lostStream, m mended) error {
	g.Doubt, g.WholeSessions, g.DoubtSessions = nil, nil, nil
	for _, tag := range []byte{tagCommit, tagCursor} {
		names, err := g.touched(ctx, txn, tag, m)
		if err != nil {
			return err
		}
		for _, name := range names {
			switch {
			case tag == tagCursor && g.sparedSession(txn, name, m):
				g.WholeSessions = append(g.WholeSessions, name)
			case tag == tagCursor:
				g.DoubtSessions = append(g.DoubtSessions, name)
			case slices.Contains(g.Whole, name):
			case lost[name] == nil && g.spared(txn, name):
				g.Whole = append(g.Whole, name)
			default:
				g.Doubt = append(g.Doubt, name)
			}
		}
	}
	slices.Sort(g.Whole)
	return nil
}

// touched are the names of a kind that are there, or were, and that gaps with filters lie among.
func (g *gaps) touched(ctx context.Context, txn *engine.Txn, tag byte, m mended) ([]string, error) {
	seen := map[string]bool{}
	add := func(key []byte) {
		if name, _, ok := splitName(key); ok && key[0] == tag {
			seen[name] = true
		}
	}
	for key := range m {
		add([]byte(key))
	}
	for i := range g.Gaps {
		add(g.Gaps[i].From)
	}
	err := forward(txn, []byte{tag}, nil, func(item *engine.Item) error { add(item.Key()); return ctx.Err() })
	if err == nil {
		err = forward(txn, []byte{tagFirst, tag}, nil, func(item *engine.Item) error {
			seen[string(item.Key()[2:])] = true
			return ctx.Err()
		})
	}
	var names []string
	for name := range seen {
		from, to := nameKey(nil, tag, name, 0), nameKey(nil, tag, name, ^uint64(0))
		if slices.ContainsFunc(g.Gaps, func(p gap) bool { return p.Filter != nil && p.overlaps(from, to) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// ends says whether a name is certain to end before its n-th thing; version is that of the last that is there.
func (g *gaps) ends(tag byte, name string, n, version uint64) bool {
	ranged := g.ranged().touching(nameKey(nil, tag, name, n), nameKey(nil, tag, name, ^uint64(0)))
	return ranged == nil && g.next(nameKey(nil, tag, name, n), version) == nil
}

// next returns the first gap with a filter that may have held a key, when what comes before it has a version.
func (g *gaps) next(key []byte, version uint64) *gap {
	for i := range g.all() {
		if p := &g.Gaps[i]; p.Filter != nil && p.mayHold(key, version) {
			return p
		}
	}
	return nil
}

// mended are cursors that are written again, by their keys.
type mended map[string]mendedCursor

type mendedCursor struct {
	place
	version uint64 // of the commit that tells it
	entry   *engine.Entry
}

// mendable are the cursors that commits tell which are certain to be what was written last.
func (a *absent) mendable(g *gaps) mended {
	out := mended{}
	for key, c := range a.cursors {
		if g.certain(a.txn, c.place) {
			out[key] = c
		}
	}
	return out
}

func (m mended) entries(more []*engine.Entry) []*engine.Entry {
	for _, c := range m {
		more = append(more, c.entry)
	}
	return more
}

// sparedSession says whether a session's cursors are certain to be there, with those that are mended: one behind the other, each as what it leads to
// says, and no gap could hold the next one.
func (g *gaps) sparedSession(txn *engine.Txn, session string, m mended) bool {
	begins, err := first(txn, tagCursor, session)
	if err != nil || begins == deleted {
		return false
	}
	prefix := namePrefix(nil, tagCursor, session)
	start, err := floor(txn, prefix, begins)
	if err != nil {
		return false
	}
	var row []place
	version := uint64(0) // the highest
	err = forward(txn, prefix, start, func(item *engine.Item) error {
		at, err := decodeCursor(txn, item)
		if err != nil || g.holding(item.Key(), item.Version()) != nil && !g.certain(txn, at) {
			return errStop
		}
		version = max(version, item.Version())
		row = append(row, at)
		return nil
	})
	if err != nil {
		return false
	}
	for _, c := range m {
		if c.session == session {
			row, version = append(row, c.place), max(version, c.version)
		}
	}
	slices.SortFunc(row, func(a, b place) int { return cmp.Compare(a.cursor, b.cursor) })
	if len(row) == 0 || row[0].cursor > begins {
		return false
	}
	next := row[0].cursor
	for _, at := range row {
		if at.cursor != next {
			return false
		}
		next = at.cursor + at.n
	}
	return g.ends(tagCursor, session, next, version)
}

// certain says whether a cursor leads to a commit that says the same, and that nothing in a gap can have replaced.
func (g *gaps) certain(txn *engine.Txn, at place) bool {
	item, err := txn.Get(nameKey(nil, tagCommit, at.stream, at.first))
	if err != nil {
		return false
	}
	c, err := decodeCommit(txn, item)
	return err == nil && g.last(txn, c, item.Version()) && c.value.GetSession() == at.session && c.value.GetFirstCursor() == at.cursor && uint64(len(c.value.Records)) == at.n
}
