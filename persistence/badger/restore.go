package badger

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// storeIDSize is the length of the random name of a store.
const storeIDSize = 16

// bootLeap is by how much the boot counter of a restored store goes up: the epochs and ids of the
// store that was backed up, which may still be in use, never come up again in it.
const bootLeap = 1 << 16

// Restored says what a restore made.
type Restored struct {
	Mark    *messages.BackupMark // up to where
	Entries uint64
	Summary persistence.Summary // of the check afterwards
}

// ReadBackup checks a backup file from its beginning to its end and returns its mark, for the next
// one. Errors are ErrBackup, saying where.
func ReadBackup(path string) (*messages.BackupMark, error) {
	t, err := readBackupFile(path, backupParts{
		header: func(*messages.BackupHeader) error { return nil },
		part:   func(*messages.BackupPart) error { return nil },
	})
	if err != nil {
		return nil, err
	}
	return t.GetMark(), nil
}

func readBackupFile(path string, do backupParts) (*messages.BackupTrailer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	t, err := readBackup(f, do)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read backup %s: %w", path, err)
	}
	return t, nil
}

// Restore makes a store in o.Dir, which must not exist or be empty, of a backup and those that go on from it, in
// order. Everything is built and checked beside the target, which appears whole or not at all.
// progress is told how many entries were written so far; nil: nobody. Errors: ErrBackup, ErrCorrupt, fs.ErrExist.
func Restore(ctx context.Context, o Options, paths []string, progress func(entries uint64)) (*Restored, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("restore nothing: %w", ErrBackup)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("restore to %s: %w", o.Dir, err)
	}
	if err := checkEmpty(dir); err != nil {
		return nil, fmt.Errorf("restore to %s: %w", dir, err)
	}
	if err := checkChain(paths); err != nil { // before anything is written
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("restore to %s: %w", dir, err)
	}
	beside, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".restore-")
	if err != nil {
		return nil, fmt.Errorf("restore to %s: %w", dir, err)
	}
	defer os.RemoveAll(beside) // gone already when all went well
	if progress == nil {
		progress = func(uint64) {}
	}
	o.Dir = beside
	r := &restoring{ctx: ctx, o: o.withDefaults(), progress: progress}
	out, err := r.run(paths) //nolint:contextcheck // Close bounds itself
	if err != nil {
		return nil, fmt.Errorf("restore to %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("restore to %s: %w", dir, err)
	}
	if err := os.Rename(beside, dir); err != nil {
		return nil, fmt.Errorf("restore to %s: %w", dir, err)
	}
	return out, syncDir(filepath.Dir(dir))
}

// checkEmpty refuses a target that holds anything.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("it is not empty: it holds %s: %w", entries[0].Name(), fs.ErrExist)
	}
	return nil
}

// checkChain reads all files and makes sure that each goes on from the one before.
func checkChain(paths []string) error {
	var before *messages.BackupMark
	for i, path := range paths {
		var since *messages.BackupMark
		t, err := readBackupFile(path, backupParts{
			header: func(h *messages.BackupHeader) error { since = h.GetSince(); return nil },
			part:   func(*messages.BackupPart) error { return nil },
		})
		if err != nil {
			return err
		}
		switch {
		case i == 0 && since != nil:
			return fmt.Errorf("backup %s goes on from one of %s, which must be named before it: %w", path, when(since), ErrBackup)
		case i > 0 && since == nil:
			return fmt.Errorf("backup %s holds everything: it is the first, or alone: %w", path, ErrBackup)
		case i > 0 && !bytes.Equal(since.GetSum(), before.GetSum()):
			return fmt.Errorf("backup %s goes on from one of %s, not from %s of %s: %w", path, when(since), paths[i-1], when(before), ErrBackup)
		}
		before = t.GetMark()
	}
	return nil
}

func when(m *messages.BackupMark) string {
	return time.UnixMilli(m.GetAtUnixMs()).UTC().Format(time.RFC3339) + fmt.Sprintf(" (%d commits)", m.GetCommits())
}

// restoring is a restore under way, in a folder of its own.
type restoring struct {
	ctx      context.Context
	o        Options
	progress func(uint64)
	db       *engine.DB
	entries  uint64
	mark     *messages.BackupMark
}

func (r *restoring) run(paths []string) (*Restored, error) {
	if err := r.build(paths); err != nil {
		return nil, err
	}
	s, err := open(r.ctx, r.o) // with a watermark of its own
	if err != nil {
		return nil, err
	}
	sum, err := s.checked(r.ctx)
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return &Restored{Mark: r.mark, Entries: r.entries, Summary: sum}, err
}

// checked verifies a store and returns its first findings as an error.
func (s *Store) checked(ctx context.Context) (persistence.Summary, error) {
	var errs []error
	sum, err := s.Verify(ctx, nil, func(f persistence.Finding) {
		if len(errs) < 10 {
			errs = append(errs, fmt.Errorf("stream %q seq %d: %s: %w", f.Stream, f.Seq, f.Problem, persistence.ErrCorrupt))
		}
	})
	return sum, errors.Join(append(errs, err)...)
}

// build writes the database. Nothing depends on its syncs before the end.
func (r *restoring) build(paths []string) (err error) {
	opts := engineOptions(filepath.Join(r.o.Dir, "db"), r.o, &engineLog{log: r.o.Logger}).WithSyncWrites(false)
	if r.db, err = engine.Open(opts); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	defer func() { err = errors.Join(err, r.db.Close()) }()
	for _, path := range paths {
		if err := r.add(path); err != nil {
			return err
		}
	}
	if err := renew(r.db, 0); err != nil {
		return err
	}
	return r.db.Sync()
}

// add writes the entries of one backup and removes what it no longer lists.
func (r *restoring) add(path string) error {
	batch := r.db.NewWriteBatch()
	defer batch.Cancel()
	lister := &keyLister{}
	incremental := false
	t, err := readBackupFile(path, backupParts{
		header: func(h *messages.BackupHeader) error { incremental = h.GetSince() != nil; return nil },
		part: func(p *messages.BackupPart) error {
			for _, e := range p.GetEntries() {
				if err := r.ctx.Err(); err != nil {
					return err
				}
				if len(e.GetKey()) == 0 || e.GetMeta() > 0xff {
					return fmt.Errorf("an entry has no key: %w", ErrBackup)
				}
				if err := batch.SetEntry(&engine.Entry{Key: e.GetKey(), Value: e.GetValue(), UserMeta: byte(e.GetMeta())}); err != nil {
					return fmt.Errorf("write entry: %w", err)
				}
				r.entries++
			}
			r.progress(r.entries)
			return lister.add(p.GetKeys())
		},
	})
	if err != nil {
		return err
	}
	if err := batch.Flush(); err != nil {
		return fmt.Errorf("write entries: %w", err)
	}
	r.mark = t.GetMark()
	if !incremental {
		return nil
	}
	return r.prune(path, lister.keys)
}

// keyLister unpacks the list of all keys.
type keyLister struct {
	keys [][]byte
}

func (l *keyLister) add(keys []*messages.BackupKey) error {
	for _, k := range keys {
		var last []byte
		if n := len(l.keys); n > 0 {
			last = l.keys[n-1]
		}
		if int(k.GetShared()) > len(last) {
			return fmt.Errorf("its list of keys does not hold together: %w", ErrBackup)
		}
		key := append(bytes.Clone(last[:k.GetShared()]), k.GetRest()...)
		if last != nil && bytes.Compare(last, key) >= 0 {
			return fmt.Errorf("its list of keys is not in order: %w", ErrBackup)
		}
		l.keys = append(l.keys, key)
	}
	return nil
}

// prune removes what the list does not name, and refuses a list that names what there is not.
func (r *restoring) prune(path string, keys [][]byte) error {
	batch := r.db.NewWriteBatch()
	defer batch.Cancel()
	at := 0
	err := r.db.View(func(txn *engine.Txn) error {
		return forward(txn, nil, nil, func(item *engine.Item) error {
			key := item.KeyCopy(nil)
			switch {
			case at < len(keys) && bytes.Equal(keys[at], key):
				at++
				return nil
			case at < len(keys) && bytes.Compare(keys[at], key) < 0:
				return errStop
			}
			return batch.Delete(key)
		})
	})
	if errors.Is(err, errStop) || err == nil && at < len(keys) {
		return fmt.Errorf("backup %s lists entry %q, which neither it nor one before it holds: %w", path, keys[at], ErrBackup)
	}
	if err != nil {
		return fmt.Errorf("remove what was removed: %w", err)
	}
	if err := batch.Flush(); err != nil {
		return fmt.Errorf("remove what was removed: %w", err)
	}
	return nil
}

// renew makes a database another store than the one that it is a copy of: with a name and boots of its own.
// The boot counter goes up by bootLeap, from at least floor.
func renew(db *engine.DB, floor uint64) error {
	boot, err := readCount(db, metaBoot)
	if err != nil {
		return fmt.Errorf("read the boot counter: %w", err)
	}
	boot = max(boot, floor)
	id := make([]byte, storeIDSize)
	_, _ = rand.Read(id) // crypto/rand ends the process rather than fail
	err = db.Update(func(txn *engine.Txn) error {
		if err := txn.SetEntry(sealed([]byte(metaStore), id)); err != nil {
			return err
		}
		return txn.SetEntry(sealed([]byte(metaBoot), binary.BigEndian.AppendUint64(nil, boot+bootLeap)))
	})
	if err != nil {
		return fmt.Errorf("name the store: %w", err)
	}
	return nil
}
