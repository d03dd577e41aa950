package badger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// A damaged block takes along what lay between two keys. Where only records of streams can lie there, the store opens
// without it (gap_table.go), and the gap is written down in the database in the transaction that counts the opening. What is found in a gap
// is not believed, as what was lost may be its removal or what replaced it. So the streams that a gap touches are refused, until a
// repair, but for those that are certain to be whole (gap_assess.go). Nothing is appended to them, so the gap
// stays as it is, wherever the database moves the rest.

// gap is the keys that a damaged block may have held.
type gap struct {
	File string `json:"file"` // the table
	From []byte `json:"from"` // the first of them
	To   []byte `json:"to"`   // the first behind the block; a newer version of it may have been in there
	// Filter knows the keys of the table, and some more; Top is the highest version in there. For blocks that may have held more than records.
	Filter []byte `json:"filter,omitempty"`
	Top    uint64 `json:"top,omitempty"`
}

// gaps are all of a store, in order. nil: there are none.
type gaps struct {
	Gaps  []gap        `json:"gaps"`
	Lost  []lostStream `json:"lost,omitempty"`  // in order of their names
	Whole []string     `json:"whole,omitempty"` // streams that a gap touches and that lost nothing
	Doubt []string     `json:"doubt,omitempty"` // streams that a gap with a filter touches, and that may have lost something
	// The same of sessions.
	WholeSessions []string `json:"whole_sessions,omitempty"`
	DoubtSessions []string `json:"doubt_sessions,omitempty"`
	// Second are the gaps that may have held secondary entries, and Relisted the parts of the index that were made again since.
	Second   []gap    `json:"second,omitempty"`
	Relisted []string `json:"relisted,omitempty"`
	// Accepted says that a repair has dropped what was not certain of them: nothing is refused for them any more.
	Accepted bool `json:"accepted,omitempty"`
}

// lostStream is a stream that lost records, as its session's cursors tell.
type lostStream struct {
	Stream string `json:"stream"`
	First  uint64 `json:"first"`  // seq of the first record that is lost
	Last   uint64 `json:"last"`   // and of the last
	Cursor []byte `json:"cursor"` // key of an entry that leads there: without it the session was deleted
}

// touching returns the first gap that may hold a key between two, both included; nil: none does.
func (g *gaps) touching(from, to []byte) *gap {
	if g == nil {
		return nil
	}
	for i := range g.Gaps {
		if p := &g.Gaps[i]; p.overlaps(from, to) {
			return p
		}
	}
	return nil
}

func (p *gap) overlaps(from, to []byte) bool {
	return bytes.Compare(p.From, to) <= 0 && bytes.Compare(from, p.To) <= 0
}

// behind returns the first gap that may hold a stream's commits from a key on; nil: none does.
func (g *gaps) behind(stream string, key []byte) *gap {
	if g == nil || slices.Contains(g.Whole, stream) {
		return nil
	}
	to := nameKey(nil, tagCommit, stream, ^uint64(0))
	for i := range g.Gaps {
		if p := &g.Gaps[i]; p.Filter == nil && p.overlaps(key, to) {
			return p
		}
	}
	if p := g.suspect(g.streams(), stream); p != nil && p.overlaps(key, to) {
		return p
	}
	return nil
}

// missing refuses a stream that lost records, or may have. It is for those who need its end.
func (g *gaps) missing(txn *engine.Txn, stream string) error {
	prefix := namePrefix(nil, tagCommit, stream)
	if g.behind(stream, prefix) == nil {
		return nil
	}
	begins, err := first(txn, tagCommit, stream)
	if err != nil || begins == deleted {
		return err
	}
	start, err := floor(txn, prefix, begins)
	if err != nil {
		return err
	}
	if p := g.behind(stream, slices.MaxFunc([][]byte{start, prefix}, bytes.Compare)); p != nil {
		return p.refuse(stream)
	}
	return nil
}

// at refuses a commit that stands in a gap, or stood there.
func (g *gaps) at(stream string, key []byte) error {
	if g == nil || slices.Contains(g.Whole, stream) {
		return nil
	}
	for i := range g.Gaps {
		if p := &g.Gaps[i]; p.Filter == nil && p.covers(key) {
			return p.refuse(stream)
		}
	}
	if p := g.suspect(g.streams(), stream); p != nil && p.covers(key) {
		return p.refuse(stream)
	}
	return nil
}

// refuse says what was found wrong with a stream.
func (p *gap) refuse(stream string) error {
	what := "may have lost records"
	if name, seq, ok := splitName(p.From); ok && p.From[0] == tagCommit && name == stream {
		what = fmt.Sprintf("lost records from seq %d on", seq)
	}
	return p.refusal("stream " + stream + " " + what)
}

func (p *gap) refusal(what string) error {
	return fmt.Errorf("%s, with a damaged block of %s (troupe repair says what is lost, and mends it): %w", what, p.File, persistence.ErrCorrupt)
}

func (p *gap) String() string {
	if p.Filter != nil {
		return fmt.Sprintf("%s: a block was damaged and is left out; it held entries between %s and %s", p.File, named(p.From), named(p.To))
	}
	if p.From[0] != tagCommit {
		kind := map[byte]string{tagBlob: "body", tagPiece: "a part of the long value"}[p.From[0]]
		return fmt.Sprintf("%s: a block was damaged and is left out; it held %s %x", p.File, kind, p.From[1:])
	}
	from, seq, _ := splitName(p.From)
	to, end, _ := splitName(p.To)
	if from == to {
		return fmt.Sprintf("%s: a block was damaged and is left out; it held records of stream %s, from seq %d on", p.File, from, seq)
	}
	return fmt.Sprintf("%s: a block was damaged and is left out; it held records between stream %s seq %d and stream %s seq %d", p.File, from, seq, to, end)
}

// named is a key for people.
func named(key []byte) string {
	name, n, ok := splitName(key)
	switch {
	case ok && key[0] == tagCursor:
		return fmt.Sprintf("session %s cursor %d", name, n)
	case ok && key[0] == tagCommit:
		return fmt.Sprintf("stream %s seq %d", name, n)
	case ok && key[0] == tagSnapshot:
		return fmt.Sprintf("the snapshot of stream %s at seq %d", name, n)
	case key[0] == tagIndex:
		return fmt.Sprintf("index entry %q", key[1:])
	case key[0] == tagOnce:
		return fmt.Sprintf("idempotency key %q", key[1:])
	case key[0] == tagTimer:
		return fmt.Sprintf("timer %q", key[1:])
	case key[0] == behindAll:
		return "the end of all"
	}
	return fmt.Sprintf("%q", key)
}

// err refuses what is about all streams; nil: there is no gap.
func (g *gaps) err() error {
	if g == nil {
		return nil
	}
	errs := make([]error, len(g.Gaps))
	for i := range g.Gaps {
		errs[i] = fmt.Errorf("%s: %w", &g.Gaps[i], persistence.ErrCorrupt)
	}
	return errors.Join(errs...)
}

// names are the streams that lost records and have a prefix, in order, without those whose sessions were deleted since.
func (g *gaps) names(txn *engine.Txn, prefix string) (names []string, err error) {
	if g == nil {
		return nil, nil
	}
	for _, l := range g.Lost {
		if !strings.HasPrefix(l.Stream, prefix) {
			continue
		}
		switch _, err := txn.Get(l.Cursor); {
		case err == nil:
			names = append(names, l.Stream)
		case !errors.Is(err, engine.ErrKeyNotFound):
			return nil, fmt.Errorf("look for the cursor of %s: %w", l.Stream, err)
		}
	}
	return names, nil
}

// lostFrom is the seq of the first record that a stream is known to have lost, 0 when none is.
func (g *gaps) lostFrom(stream string) uint64 {
	for _, l := range g.Lost {
		if l.Stream == stream {
			return l.First
		}
	}
	return 0
}

// readGaps reads what was written down; nil when there are none.
func readGaps(txn *engine.Txn) (*gaps, error) {
	value, err := get(txn, []byte(metaGaps))
	if errors.Is(err, persistence.ErrNotFound) {
		return nil, nil //nolint:nilnil // no gaps are no error
	}
	g := &gaps{}
	if err == nil {
		if err = json.Unmarshal(value, g); err != nil {
			err = fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read which blocks are left out: %w", err)
	}
	return g, nil
}

// findGaps reads the gaps that are written down, and adds what the opening has found missing. It returns what is to be written
// about it.
func (s *Store) findGaps(ctx context.Context) (write []*engine.Entry, err error) {
	err = s.db.View(func(txn *engine.Txn) error {
		if s.lost, err = readGaps(txn); err != nil || s.missing == nil {
			return err
		}
		a, err := absentIn(ctx, txn, s.missing.holes, s.lost)
		if err != nil {
			return err
		}
		var found []gap
		var m mended
		if len(a.keys) == s.missing.entries {
			write, found = a.entries(), a.gaps()
		} else if found, _ = s.missing.gaps(); found == nil {
			if found, _ = s.missing.doubts(); found == nil {
				return s.missing.err
			}
			m = a.mendable(&gaps{Gaps: slices.Concat(s.lost.all(), found)})
			write = m.entries(a.due)
		}
		s.log.Error("the store is opened without its damaged blocks", "path", s.opts.Dir, "err", s.missing.err, "count", len(write))
		if len(found) == 0 {
			return nil
		}
		if err := s.checkMeta(txn, a.boot); err != nil {
			return err
		}
		if s.lost == nil {
			s.lost = &gaps{}
		}
		s.lost.add(found)
		if err := s.lost.assess(ctx, txn, m); err != nil {
			return err
		}
		e, err := s.lost.entry()
		write = append(write, e)
		return err
	})
	return write, err
}

// add puts new gaps in their places.
func (g *gaps) add(found []gap) {
	for _, p := range found {
		same := func(q gap) bool { return bytes.Equal(p.From, q.From) && bytes.Equal(p.To, q.To) }
		some, only := p.secondary()
		// A block of another table with the same keys is other damage: what was made again since the first may be lost again.
		twin := func(q gap) bool { return same(q) && p.File == q.File }
		if some && p.Filter != nil && !slices.ContainsFunc(g.Second, twin) {
			g.Second, g.Relisted, g.Accepted = append(g.Second, p), nil, false
		}
		if !(only && p.Filter != nil) && !slices.ContainsFunc(g.Gaps, same) {
			g.Gaps = append(g.Gaps, p)
		}
	}
	slices.SortFunc(g.Gaps, func(a, b gap) int { return cmp.Or(bytes.Compare(a.From, b.From), bytes.Compare(a.To, b.To)) })
}

// entry is the gaps as the database keeps them.
func (g *gaps) entry() (*engine.Entry, error) {
	value, err := json.Marshal(g)
	if err == nil && len(value) > pieceSize {
		err = fmt.Errorf("%d bytes", len(value))
	}
	if err != nil {
		return nil, fmt.Errorf("write down which blocks are left out: %w: %w", persistence.ErrCorrupt, err)
	}
	return sealed([]byte(metaGaps), value), nil
}

// warn says which streams are refused.
func (s *Store) warn() {
	if s.lost == nil {
		return
	}
	for i := range s.lost.Gaps {
		s.log.Warn("records are lost, and their streams are refused until a repair", "path", s.opts.Dir, "message", s.lost.Gaps[i].String())
	}
	for i := range s.lost.Second {
		p := &s.lost.Second[i]
		s.log.Warn("listings, timers, snapshots or idempotency keys are lost", "path", s.opts.Dir, "message", p.String())
	}
	for _, l := range s.lost.Lost {
		s.log.Warn("a stream is refused until a repair", "stream", l.Stream, "seq", l.First, "upto", l.Last)
	}
}
