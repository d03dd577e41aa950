package badger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// Verify reads every record of the streams (nil: of all) in one view of the database and reports
// what is wrong: checksums, gaps, epochs that go back, records that their session's cursors do
// not lead to, cursors with gaps or that lead elsewhere, entries of any other kind that do not read, and a database behind its
// watermark. A finding without a stream is about the store or about a session.
func (s *Store) Verify(ctx context.Context, names []string, report func(persistence.Finding)) (persistence.Summary, error) {
	v := &verifier{ctx: ctx, report: report, looked: &s.looked, lost: s.lost}
	// Read before the view is opened: commits go on, and the view must not be behind a count
	// that was right.
	acked, markErr := s.acknowledged()
	err := s.view(ctx, func(txn *engine.Txn) error {
		v.txn = txn
		if names != nil {
			return v.streams(names)
		}
		if err := v.watermark(acked, markErr); err != nil {
			return err
		}
		v.gaps()
		var all []string
		err := streams(ctx, txn, s.lost, "", func(name string) error { all = append(all, name); return nil })
		if err != nil {
			return err
		}
		if err := v.streams(all); err != nil {
			return err
		}
		if err := v.cursors(); err != nil {
			return err
		}
		return v.others()
	})
	return v.sum, trail(err, "verify store in %s", s.opts.Dir)
}

type verifier struct {
	ctx    context.Context
	txn    *engine.Txn
	report func(persistence.Finding)
	sum    persistence.Summary
	looked *atomic.Int64
	lost   *gaps

	session string // whose beginning was asked for last
	start   uint64
}

// begins is where a session begins.
func (v *verifier) begins(session string) (uint64, error) {
	if v.session == session {
		return v.start, nil
	}
	start, err := first(v.txn, tagCursor, session)
	if err == nil {
		v.session, v.start = session, start
	}
	return start, err
}

// Progress counts the records that Verify has looked at since the store was opened.
func (s *Store) Progress() int64 { return s.looked.Load() }

// gaps reports what the store was opened without.
func (v *verifier) gaps() {
	if v.lost == nil {
		return
	}
	for i := range v.lost.Gaps {
		v.report(persistence.Finding{Problem: v.lost.Gaps[i].String()})
	}
}

func (v *verifier) streams(names []string) error {
	for _, name := range names {
		if err := v.stream(name); err != nil {
			return err
		}
		v.sum.Streams++
	}
	return nil
}

func (v *verifier) stream(name string) error {
	begins, err := first(v.txn, tagCommit, name)
	if err != nil {
		v.report(persistence.Finding{Stream: name, Problem: err.Error()})
		return nil //nolint:nilerr // it was said
	}
	next, epoch := uint64(0), uint64(0) // the commit that holds the first record may begin before it
	found := func(seq uint64, format string, args ...any) {
		v.report(persistence.Finding{Stream: name, Seq: seq, Problem: fmt.Sprintf(format, args...)})
	}
	if err := v.lost.missing(v.txn, name); err != nil {
		found(v.lost.lostFrom(name), "%v", err)
	}
	return forward(v.txn, namePrefix(nil, tagCommit, name), nil, func(item *engine.Item) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		c, err := decodeCommit(v.txn, item)
		if next == 0 {
			next = min(c.first, begins)
		}
		if c.first > next {
			found(next, "records %d to %d are missing", next, c.first-1)
		}
		if err != nil {
			found(c.first, "%v", err)
			next = max(next, c.first+uint64(len(c.value.GetRecords())))
			return nil
		}
		next = c.end()
		for i, r := range c.value.Records {
			v.sum.Records++
			v.looked.Add(1)
			if r.Epoch < epoch {
				found(r.Seq, "epoch %d after %d", r.Epoch, epoch)
			}
			epoch = r.Epoch
			if _, err := c.entry(v.txn, i); err != nil {
				found(r.Seq, "%v", err)
			}
		}
		if c.value.Session == "" || next <= begins {
			return nil
		}
		if start, err := v.begins(c.value.Session); err != nil || c.cursor(len(c.value.Records)-1) < start {
			return nil //nolint:nilerr // its cursors were trimmed away, or are looked at later
		}
		item, err = v.txn.Get(nameKey(nil, tagCursor, c.value.Session, c.value.FirstCursor))
		if errors.Is(err, engine.ErrKeyNotFound) {
			found(c.first, "no entry for cursor %d of session %s", c.value.FirstCursor, c.value.Session)
			return nil
		}
		if err != nil {
			return err
		}
		at, err := decodeCursor(v.txn, item)
		switch {
		case err != nil:
			found(c.first, "%v", err)
		case at.stream != name || at.first != c.first || at.n != uint64(len(c.value.Records)):
			found(c.first, "cursor %d of session %s leads to stream %s seq %d", at.cursor, at.session, at.stream, at.first)
		}
		return nil
	})
}

// cursors checks that every session's cursors are dense and that each leads to its records.
func (v *verifier) cursors() error {
	var session string
	var next, start uint64
	found := func(problem string) { v.report(persistence.Finding{Problem: problem}) }
	return forward(v.txn, []byte{tagCursor}, nil, func(item *engine.Item) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		at, err := decodeCursor(v.txn, item)
		if err != nil {
			found(err.Error())
			if at.session == session {
				next = 0 // unknown until the next entry
			}
			return nil
		}
		if at.session != session {
			if start, err = v.begins(at.session); err != nil {
				found(err.Error())
				start = at.cursor
			}
			session, next = at.session, min(start, at.cursor) // what lies before it may not be removed yet
		}
		if next != 0 && at.cursor != next {
			found(fmt.Sprintf("session %s: cursor %d where %d was expected", session, at.cursor, next))
		}
		next = at.cursor + at.n
		if at.lost() || next <= start {
			return nil
		}
		if _, err := at.follow(v.txn, v.lost); err != nil {
			found(err.Error())
		}
		return nil
	})
}

// others reads what is neither a record nor a cursor.
func (v *verifier) others() error {
	return forward(v.txn, nil, nil, func(item *engine.Item) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		key := item.KeyCopy(nil)
		if err := v.other(item, key); err != nil {
			v.report(persistence.Finding{Problem: fmt.Sprintf("entry %q: %v", key, err)})
		}
		return nil
	})
}

// other says what is wrong with one entry.
func (v *verifier) other(item *engine.Item, key []byte) error {
	switch key[0] {
	case tagCommit, tagCursor, tagPiece: // pieces are read with what they are of
		return nil
	case tagBlob:
		if len(key) != 33 {
			return errors.New("no blob has this key")
		}
		_, err := readBlob(v.txn, [32]byte(key[1:]))
		return err
	case tagTimer:
		value, err := content(v.txn, item)
		if err != nil {
			return err
		}
		if len(value) < dueSize {
			return errors.New("it has no due time")
		}
		_, err = v.txn.Get(dueKey(value[:dueSize], string(key[1:])))
		if errors.Is(err, engine.ErrKeyNotFound) {
			return errors.New("it would never come due")
		}
		return err
	case tagIndex, tagOnce, tagDue, tagSnapshot, tagMeta, tagFirst, tagPlan:
		_, err := content(v.txn, item)
		return err
	}
	return errors.New("it is of no kind that this store has")
}

// acknowledged reads the count of acknowledged commits.
func (s *Store) acknowledged() (uint64, error) {
	f, err := os.Open(filepath.Join(s.opts.Dir, "db.watermark"))
	if err != nil {
		return 0, fmt.Errorf("open watermark: %w", err)
	}
	count, err := readWatermark(f)
	return count, errors.Join(err, f.Close())
}

// watermark compares the view with the count of acknowledged commits.
func (v *verifier) watermark(acked uint64, err error) error {
	if err != nil && !errors.Is(err, persistence.ErrCorrupt) {
		return err
	}
	have, countErr := countIn(v.txn, metaCommits)
	if err = errors.Join(err, countErr); err != nil {
		v.report(persistence.Finding{Problem: err.Error()})
		have = acked // what cannot be compared was reported
	}
	if have < acked {
		v.report(persistence.Finding{Problem: fmt.Sprintf("%d commits were acknowledged, the database holds %d", acked, have)})
	}
	return nil
}
