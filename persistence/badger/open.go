package badger

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// Open takes the directory, checks that the database holds every commit that was acknowledged,
// and counts the opening durably. Errors: ErrLocked with pid and folder of the holder,
// ErrAckedDataMissing, ErrCorrupt, ErrUnavailable. ctx bounds the wait for nothing but itself:
// it is looked at between the steps.
func Open(ctx context.Context, o Options) (*Store, error) {
	s, err := open(ctx, o.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, err)
	}
	return s, nil
}

func open(ctx context.Context, o Options) (_ *Store, err error) {
	if o.Dir == "" {
		return nil, fmt.Errorf("no directory given: %w", persistence.ErrUnavailable)
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := takeLock(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: o, log: o.Logger, lock: lock, guard: newGuard(o)}
	s.commit = (*engine.Txn).Commit
	s.appends.New = func() any { return &appendTask{} }
	if err := s.openFiles(ctx); err != nil {
		_ = lock.release() // the error in hand says more
		return nil, err
	}
	s.commits = newCommitter(s, s.mark.start)
	s.commits.start()
	s.mark.run(s.fail)
	return s, nil
}

// openFiles opens database and watermark and compares them. When it refuses, the database is as
// it was before.
func (s *Store) openFiles(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.releaseBallast(); err != nil {
		return err
	}
	if err := s.guard.refuseFlush(); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	logger := &engineLog{log: s.log, hold: s.guard.holdMerge}
	defer func() { //nolint:contextcheck // also when ctx has ended; it is bounded by itself
		if err != nil && s.missing != nil && !errors.Is(err, s.missing.err) {
			err = errors.Join(s.missing.err, err)
		}
		if err != nil {
			err = errors.Join(err, s.retreat())
		}
	}()
	opts := engineOptions(filepath.Join(s.opts.Dir, "db"), s.opts, logger)
	if s.opts.Brief && s.firstLevel < mergeFrom {
		opts = leave(opts)
	}
	if s.db, err = openEngine(opts, s.opts.Dir); err != nil {
		return err
	}
	if err := logger.listen(s.fail); err != nil {
		return fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
	}
	if err := s.checkMark(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := s.findGaps(ctx)
	if err != nil {
		return err
	}
	if s.boot, s.id, err = countBoot(s.db, s.floor, s.mark.start, entries); err != nil {
		return err
	}
	if err := finishDeletions(ctx, s.db, s.lost); err != nil {
		return err
	}
	if err := dropAside(s.opts.Dir); err != nil { // before the watermark knows of this opening
		return err
	}
	if s.lost != nil {
		s.relisted.Store(&s.lost.Relisted)
	}
	s.warn()
	s.mark.note(s.mark.start + 1)
	s.mark.start++
	if s.opts.Ballast > 0 {
		if err := makeBallast(s.ballast(), s.opts.Ballast); err != nil {
			s.log.Warn("no room for the ballast file", "path", s.ballast(), "err", err)
		}
	}
	return nil
}

// prepare looks at the database's files, refuses damaged ones, and sets them aside when opening
// may destroy something. Damaged blocks that held nothing but records are left out.
func (s *Store) prepare() error {
	if err := putBack(s.opts.Dir); err != nil {
		return err
	}
	in, err := inspect(filepath.Join(s.opts.Dir, "db"), s.opts.EncryptionKey)
	if err != nil {
		return err
	}
	for _, t := range in.tables {
		if t.Level == 0 {
			s.firstLevel++
		}
	}
	if err := in.err(); err != nil {
		if s.missing = in.without(); s.missing == nil || s.opts.AcceptLoss { // which writes before it is known what is lost
			return err
		}
	}
	if s.missing == nil && len(in.torn) == 0 {
		return nil
	}
	if len(in.torn) > 0 {
		s.log.Warn("the store was not closed in order", "path", s.opts.Dir, "message", strings.Join(in.torn, "; "))
	}
	if err := setAside(s.opts.Dir); err != nil {
		return err
	}
	if err := in.writeList(); err != nil {
		return err
	}
	if err := in.cutLogs(); err != nil || s.missing == nil {
		return err
	}
	return in.leaveOut()
}

// retreat gives the files back after a refusal.
func (s *Store) retreat() error {
	if s.db != nil {
		ctx, cancel := context.WithTimeout(context.Background(), failedTimeout)
		defer cancel()
		_ = s.closeEngine(ctx) // nothing was written that could be lost
	}
	if s.mark != nil {
		_ = s.mark.slots.close() // nothing was written to it
	}
	return putBack(s.opts.Dir)
}

// openEngine opens the database.
func openEngine(o engine.Options, dir string) (db *engine.DB, err error) {
	err = caught(func() (err error) { db, err = engine.Open(o); return err })
	switch {
	case err == nil:
		return db, nil
	case strings.Contains(err.Error(), "Cannot acquire directory lock"):
		return nil, locked(dir, readPid(filepath.Join(o.Dir, "LOCK")))
	case errors.Is(err, persistence.ErrCorrupt), strings.Contains(strings.ToLower(err.Error()), "checksum"):
		return nil, fmt.Errorf("open database: %w: %w", persistence.ErrCorrupt, err)
	}
	return nil, fmt.Errorf("open database: %w: %w", persistence.ErrUnavailable, err)
}

// checkMark refuses a database that knows of fewer commits than were acknowledged.
func (s *Store) checkMark() error {
	mark, acked, err := openWatermark(filepath.Join(s.opts.Dir, "db.watermark"), s.opts.AcceptLoss)
	if err != nil {
		return err
	}
	s.mark, mark.hashed = mark, s.opts.EncryptionKey != nil
	have, err := s.heldCommits(acked)
	if err != nil {
		return err
	}
	if have < acked {
		if !s.opts.AcceptLoss {
			return fmt.Errorf("%d commits were acknowledged, the database holds %d: %w", acked, have, persistence.ErrAckedDataMissing)
		}
		s.log.Warn("acknowledged commits are missing and the loss is accepted", "path", s.opts.Dir, "acknowledged", acked, "held", have)
		if err := mark.reset(have); err != nil {
			return err
		}
	}
	mark.start = have
	return nil
}

// countBoot makes the opening durable before anything is acknowledged under its number, with what is written about what is lost, and names a
// store that has no name yet. Before that the store says its format. floor is the least number of the opening.
func countBoot(db *engine.DB, floor, commits uint64, more []*engine.Entry) (boot uint64, id []byte, err error) {
	if boot, err = readCount(db, metaBoot); err != nil {
		return 0, nil, fmt.Errorf("read the boot counter: %w", err)
	}
	boot = max(boot+1, floor)
	if boot >= 1<<32 {
		return 0, nil, fmt.Errorf("boot counter is %d: %w", boot, persistence.ErrCorrupt)
	}
	if err := writeFormat(db.Opts().Dir); err != nil {
		return 0, nil, err
	}
	err = db.Update(func(txn *engine.Txn) error {
		number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
		if err := txn.SetEntry(sealed([]byte(metaCommits), number(commits+1))); err != nil {
			return err
		}
		if err := txn.SetEntry(sealed([]byte(metaBoot), number(boot))); err != nil {
			return err
		}
		for _, e := range more {
			if err := txn.SetEntry(e); err != nil {
				return err
			}
		}
		id, err = get(txn, []byte(metaStore))
		if errors.Is(err, persistence.ErrNotFound) {
			id = make([]byte, storeIDSize)
			_, _ = rand.Read(id) // crypto/rand ends the process rather than fail
			return txn.SetEntry(sealed([]byte(metaStore), id))
		}
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("count the opening: %w: %w", persistence.ErrUnavailable, err)
	}
	return boot, id, nil
}

// readCount reads a number the store keeps of itself, 0 when there is none.
func readCount(db *engine.DB, key string) (n uint64, err error) {
	err = db.View(func(txn *engine.Txn) error {
		n, err = countIn(txn, key)
		return err
	})
	return n, err
}

func countIn(txn *engine.Txn, key string) (uint64, error) {
	value, err := get(txn, []byte(key))
	if errors.Is(err, persistence.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%s has %d bytes: %w", key, len(value), persistence.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(value), nil
}
