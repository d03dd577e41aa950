package badger

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// mender makes the entries of a database hold together, after some were lost.
type mender struct {
	ctx   context.Context
	db    *engine.DB
	needs func(string) string
	out   *Repaired

	known    map[string]uint64 // of a stream: its highest seq that anybody knows of
	cursors  map[string]uint64 // of a session: its highest cursor that anybody knows of
	sessions map[string]string // of a stream
	hashed   []last            // of the watermark, names yet unknown
	gone     map[string]bool   // streams that nothing is left of
	kept     map[string]bool   // and those of which there is
	places   map[string][]place
	starts   map[string]uint64 // of sessions that were trimmed
	boot     uint64            // the highest that wrote a record
	lost     *gaps
	doubts   *gaps    // with those that may have held more than records
	drop     [][]byte // keys to remove
	put      []*engine.Entry
}

// recall reads what the watermark knows.
func (m *mender) recall(path string, hashed bool) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open watermark: %w", err)
	}
	m.out.Acked, err = readWatermark(f)
	if errors.Is(err, persistence.ErrCorrupt) {
		m.out.Damaged = append(m.out.Damaged, "db.watermark is damaged: how much was acknowledged is not known")
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	lasts, err := readLast(path)
	if err != nil {
		return fmt.Errorf("read watermark: %w", err)
	}
	for _, l := range lasts {
		switch {
		case hashed:
			m.hashed = append(m.hashed, l)
		case l.kind == tabledStream:
			m.known[l.name] = l.n
		case l.kind == tabledSession:
			m.cursors[l.name] = l.n
		}
	}
	return nil
}

// run looks at everything, then changes what must be.
func (m *mender) run() error {
	m.gone, m.kept, m.places, m.starts = map[string]bool{}, map[string]bool{}, map[string][]place{}, map[string]uint64{}
	for _, step := range []func(*engine.Txn) error{m.secondary, m.readCursors, m.streams, m.rebuildCursors, m.references} {
		if err := m.db.View(step); err != nil {
			return err
		}
	}
	slices.SortFunc(m.out.Lost, func(a, b Loss) int { return cmp.Compare(a.Stream, b.Stream) })
	batch := m.db.NewWriteBatch()
	defer batch.Cancel()
	m.drop = append(m.drop, []byte(metaGaps))                                       // what was lost is dealt with
	if m.doubts != nil && len(m.doubts.Second) > 0 && len(m.doubts.Relisted) == 0 { // but for what is to be made again
		e, err := (&gaps{Second: m.doubts.Second, Accepted: true}).entry()
		if err != nil {
			return err
		}
		m.put = append(m.put, e)
	}
	for _, key := range m.drop {
		if err := batch.Delete(key); err != nil {
			return err
		}
	}
	for _, e := range m.put {
		if err := batch.SetEntry(e); err != nil {
			return err
		}
	}
	return batch.Flush()
}

func (m *mender) other(format string, args ...any) {
	m.out.Other = append(m.out.Other, fmt.Sprintf(format, args...))
}

// secondary drops entries of their own that do not read: nothing else tells what they held.
func (m *mender) secondary(txn *engine.Txn) error {
	names := map[byte]string{tagIndex: "index entry", tagOnce: "idempotency key", tagTimer: "timer", tagSnapshot: "snapshot", tagBlob: "blob", tagFirst: "mark"}
	for _, tag := range []byte{tagIndex, tagOnce, tagTimer, tagSnapshot, tagBlob, tagFirst} {
		err := forward(txn, []byte{tag}, nil, func(item *engine.Item) error {
			key := item.KeyCopy(nil)
			value, err := content(txn, item)
			if err == nil && tag == tagBlob && len(key) == 33 {
				_, err = readBlob(txn, [32]byte(key[1:]))
			}
			if p := m.doubts.unsure(key, item.Version()); err == nil && p != nil && (tag == tagIndex || tag == tagOnce || tag == tagSnapshot) {
				m.drop = append(m.drop, key)
				m.other("%s: the damaged block of %s may have held what replaced it", named(key), p.File)
				return nil
			}
			if err != nil {
				m.drop = append(m.drop, key)
				switch tag {
				case tagBlob:
					m.other("%s %x", names[tag], key[1:])
				default:
					m.other("%s %q", names[tag], key[1:])
				}
				return nil
			}
			if tag == tagFirst && len(value) == 8 && key[1] == tagCursor {
				m.starts[string(key[2:])] = binary.BigEndian.Uint64(value)
			}
			if tag == tagTimer && len(value) >= dueSize { // its place in the order may be the one that is lost
				m.put = append(m.put, sealed(dueKey(value[:dueSize], string(key[1:])), nil))
			}
			return m.ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	for _, key := range []string{metaBoot, metaCommits, metaStore} {
		if _, err := get(txn, []byte(key)); err != nil && !errors.Is(err, persistence.ErrNotFound) {
			m.drop = append(m.drop, []byte(key))
			m.other("count %q", key)
		}
	}
	return nil
}

// readCursors learns from the sessions' cursors which records there were.
func (m *mender) readCursors(txn *engine.Txn) error {
	return forward(txn, []byte{tagCursor}, nil, func(item *engine.Item) error {
		at, err := decodeCursor(txn, item)
		if err != nil { // rebuilt from the records
			m.drop = append(m.drop, item.KeyCopy(nil))
			m.out.Mended = append(m.out.Mended, fmt.Sprintf("cursor %d of session %s", at.cursor, at.session))
			m.cursors[at.session] = max(m.cursors[at.session], at.cursor)
			return nil //nolint:nilerr // it was said
		}
		m.cursors[at.session] = max(m.cursors[at.session], at.cursor+at.n-1)
		m.places[at.session] = append(m.places[at.session], at)
		if at.stream != "" {
			m.known[at.stream] = max(m.known[at.stream], at.first+at.n-1)
			m.sessions[at.stream] = at.session
		}
		return m.ctx.Err()
	})
}

// streams cuts every stream behind its last good record.
func (m *mender) streams(txn *engine.Txn) error {
	var names []string
	err := streams(m.ctx, txn, nil, "", func(name string) error { names = append(names, name); return nil })
	if err != nil {
		return err
	}
	m.name(names)
	for name := range m.known {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if err := m.stream(txn, name); err != nil {
			return err
		}
	}
	return nil
}

// name finds whose hashes the watermark holds.
func (m *mender) name(streams []string) {
	if len(m.hashed) == 0 {
		return
	}
	w := &watermark{hashed: true}
	byHash := map[string]string{}
	for name := range m.cursors {
		byHash[string(tabledSession)+w.tabled(name)] = name
	}
	for _, name := range streams {
		byHash[string(tabledStream)+w.tabled(name)] = name
	}
	for _, l := range m.hashed {
		name, ok := byHash[string(l.kind)+l.name]
		switch {
		case l.kind == tabledSession && ok:
			m.cursors[name] = max(m.cursors[name], l.n)
		case l.kind == tabledStream && ok:
			m.known[name] = max(m.known[name], l.n)
		case l.kind == tabledStream:
			m.known["(unknown) "+l.name] = l.n
		}
	}
}

// stream finds where one stops to hold together. What follows is dropped, and said.
func (m *mender) stream(txn *engine.Txn, name string) error {
	next, epoch, version, why := uint64(0), uint64(0), uint64(0), ""
	top := m.known[name]
	err := forward(txn, namePrefix(nil, tagCommit, name), nil, func(item *engine.Item) error {
		c, err := decodeCommit(txn, item)
		top = max(top, c.first+uint64(max(1, len(c.value.GetRecords())))-1)
		if err == nil && c.value.Session != "" {
			m.sessions[name] = c.value.Session
			m.cursors[c.value.Session] = max(m.cursors[c.value.Session], c.cursor(len(c.value.Records)-1))
		}
		if next == 0 {
			if next, err = m.begins(txn, name, c.first, err); err != nil && c.value == nil {
				return err
			}
		}
		switch {
		case why != "":
		case err != nil:
			why = fmt.Sprintf("seq %d: %v", c.first, unwrapped(err))
		case c.first != next:
			why = fmt.Sprintf("seq %d is missing", next)
		default:
			why = m.sound(txn, c, &epoch)
		}
		if p := m.lost.touching(item.Key(), item.Key()); p != nil && why == "" && c.value.GetSession() != "" && !c.current(txn, item.Version()) {
			why = fmt.Sprintf("seq %d: what it held last was in the damaged block of %s", c.first, p.File)
		}
		if why != "" {
			m.drop = append(m.drop, item.KeyCopy(nil))
			return nil
		}
		next, version, m.kept[name] = c.end(), max(version, item.Version()), true
		m.out.Records += int64(len(c.value.Records))
		return m.ctx.Err()
	})
	if err != nil {
		return err
	}
	if next = max(next, 1); m.kept[name] {
		m.out.Streams++
	} else {
		m.gone[name] = true
	}
	behind, top := m.behind(name, next, version, top)
	if top >= next {
		switch {
		case why != "":
		case behind != nil:
			why = "it stood in the damaged block of " + behind.File
		default:
			why = "acknowledged, and not there"
		}
		m.out.Lost = append(m.out.Lost, Loss{Stream: name, Session: m.sessions[name], From: next, To: top, Why: why})
	}
	return nil
}

// behind returns the gap that may have held what followed a stream's last commit, which has a version, and the highest seq that is then known.
func (m *mender) behind(name string, next, version, top uint64) (*gap, uint64) {
	if p := m.lost.touching(nameKey(nil, tagCommit, name, next), nameKey(nil, tagCommit, name, ^uint64(0))); p != nil {
		if first, seq, ok := splitName(p.From); ok && first == name && (m.kept[name] || top > 0) {
			top = max(top, seq) // there was one
		}
		return p, top
	}
	p := m.doubts.next(nameKey(nil, tagCommit, name, next), version)
	if p != nil && m.kept[name] {
		top = max(top, next) // there was one, or the filter is wrong
	}
	return p, top
}

// begins is the seq that a stream's first commit should have, given the one that it has: another than 1 when it was
// trimmed. A mark that is lost is made anew where a snapshot holds what is before.
func (m *mender) begins(txn *engine.Txn, name string, at uint64, damaged error) (uint64, error) {
	if begins, err := first(txn, tagCommit, name); err == nil && (begins > 1 || at == 1) {
		return min(begins, at), damaged
	}
	held := uint64(0)
	if err := backward(txn, namePrefix(nil, tagSnapshot, name), func(item *engine.Item) error {
		_, snapErr := content(txn, item)
		if _, seq, ok := splitName(item.Key()); ok && snapErr == nil {
			held = max(held, seq)
		}
		return nil
	}); err != nil {
		return 1, err
	}
	if held+1 < at {
		return 1, damaged
	}
	key := markKey(tagCommit, name)
	m.drop = slices.DeleteFunc(m.drop, func(k []byte) bool { return string(k) == string(key) })
	m.put = append(m.put, sealed(key, binary.BigEndian.AppendUint64(nil, at)))
	m.out.Mended = append(m.out.Mended, fmt.Sprintf("the beginning of stream %s, at %d", name, at))
	return at, damaged
}

// sound says what is wrong with a commit that decodes, "" when nothing is.
func (m *mender) sound(txn *engine.Txn, c commitItem, epoch *uint64) string {
	for i, r := range c.value.Records {
		if r.Epoch < *epoch {
			return fmt.Sprintf("seq %d: epoch %d after %d", r.Seq, r.Epoch, *epoch)
		}
		*epoch = r.Epoch
		m.boot = max(m.boot, r.Epoch>>32)
		if _, err := c.entry(txn, i); err != nil {
			return fmt.Sprintf("seq %d: %v", r.Seq, unwrapped(err))
		}
	}
	return ""
}

// unwrapped is the last thing that an error says: the rest repeats where it was.
func unwrapped(err error) error {
	if errors.Is(err, errSum) {
		return errSum
	}
	return err
}

// rebuildCursors makes every session's cursors lead to its records again, in one row: what
// is lost leaves a place that says so, so that nobody is given its cursors anew.
func (m *mender) rebuildCursors(txn *engine.Txn) error {
	dropped := map[string]bool{}
	for _, key := range m.drop {
		dropped[string(key)] = true
	}
	rows := map[string][]place{}
	err := forward(txn, []byte{tagCommit}, nil, func(item *engine.Item) error {
		if dropped[string(item.Key())] {
			return nil
		}
		c, err := decodeCommit(txn, item)
		if err != nil || c.value.Session == "" {
			return err
		}
		rows[c.value.Session] = append(rows[c.value.Session], place{
			session: c.value.Session, cursor: c.value.FirstCursor, first: c.first, n: uint64(len(c.value.Records)), stream: c.stream,
		})
		return m.ctx.Err()
	})
	if err != nil {
		return err
	}
	for session, top := range m.cursors {
		m.row(session, rows[session], top)
	}
	return nil
}

// row compares a session's cursors as they should be with those that there are.
func (m *mender) row(session string, row []place, top uint64) {
	slices.SortFunc(row, func(a, b place) int { return cmp.Compare(a.cursor, b.cursor) })
	want, next := []place{}, m.starts[session]
	if next == 0 {
		next = 1
	}
	row = slices.DeleteFunc(row, func(p place) bool { return p.cursor+p.n <= next && p.cursor+p.n <= top })
	if len(row) > 0 {
		next = min(next, row[0].cursor)
	}
	gap := func(to uint64) {
		if to > next {
			want = append(want, place{session: session, cursor: next, n: to - next})
		}
	}
	for _, p := range row {
		gap(p.cursor)
		want = append(want, p)
		next = p.cursor + p.n
	}
	gap(top + 1)
	for _, p := range m.places[session] {
		if !slices.Contains(want, p) {
			m.drop = append(m.drop, nameKey(nil, tagCursor, session, p.cursor))
		}
	}
	for _, p := range want {
		if !slices.Contains(m.places[session], p) {
			key := nameKey(nil, tagCursor, session, p.cursor)
			m.put = append(m.put, sealed(key, p.value()))
			m.drop = slices.DeleteFunc(m.drop, func(k []byte) bool { return string(k) == string(key) })
		}
	}
}

// value is a place as its entry holds it.
func (p place) value() []byte {
	b := binary.AppendUvarint(nil, p.first)
	b = binary.AppendUvarint(b, p.n)
	return append(b, p.stream...)
}

// references drops what leads to streams that are gone, and snapshots of what is lost.
func (m *mender) references(txn *engine.Txn) error {
	ends := map[string]uint64{}
	for _, l := range m.out.Lost {
		ends[l.Stream] = l.From
	}
	err := forward(txn, []byte{tagSnapshot}, nil, func(item *engine.Item) error {
		stream, seq, ok := splitName(item.Key())
		if from, lost := ends[stream]; ok && lost && seq >= from {
			m.drop = append(m.drop, item.KeyCopy(nil))
		}
		return nil
	})
	if err != nil || m.needs == nil {
		return err
	}
	return forward(txn, []byte{tagIndex}, nil, func(item *engine.Item) error {
		key := string(item.Key()[1:])
		stream := m.needs(key)
		if stream == "" {
			return nil
		}
		known, err := begun(txn, m.doubts, tagCommit, stream)
		if err != nil || known && !m.gone[stream] {
			return err
		}
		m.drop = append(m.drop, item.KeyCopy(nil))
		m.other("index entry %q, whose stream is gone", key)
		return nil
	})
}
