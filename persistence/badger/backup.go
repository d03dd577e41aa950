package badger

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	engine "github.com/dgraph-io/badger/v4"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// partSize is about how much one part of a backup holds.
const partSize = 1 << 20

var _ persistence.Backuper = (*Store)(nil)

// Backup writes one view of the database to w: everything, or what is newer than the mark and the
// list of all keys, by which a restore knows what was removed since. Appends go on meanwhile. Nothing in it is encrypted.
func (s *Store) Backup(ctx context.Context, w io.Writer, since *messages.BackupMark) (mark *messages.BackupMark, err error) {
	err = s.view(ctx, func(txn *engine.Txn) error {
		b := &backup{ctx: ctx, txn: txn, out: newFrameWriter(w)}
		mark, err = b.write(s, since)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("back up the store in %s: %w", s.opts.Dir, err)
	}
	return mark, nil
}

// backup is one that is being written.
type backup struct {
	ctx  context.Context
	txn  *engine.Txn
	out  *frameWriter
	part messages.BackupPart
	size int
	last []byte // key before

	entries, keys uint64
}

func (b *backup) write(s *Store, since *messages.BackupMark) (*messages.BackupMark, error) {
	if err := s.lost.err(); err != nil {
		return nil, fmt.Errorf("%w (see troupe repair)", err)
	}
	commits, err := countIn(b.txn, metaCommits)
	if err != nil {
		return nil, fmt.Errorf("read the count of commits: %w", err)
	}
	mark := &messages.BackupMark{Store: s.id, Version: b.txn.ReadTs(), Commits: commits, Boot: s.boot, AtUnixMs: time.Now().UnixMilli()}
	if since != nil {
		switch {
		case !bytes.Equal(since.GetStore(), s.id):
			return nil, fmt.Errorf("the earlier backup is of store %s, this one is %s: %w", hexID(since.GetStore()), hexID(s.id), persistence.ErrInvalid)
		case since.GetVersion() > mark.Version || len(since.GetSum()) == 0:
			return nil, fmt.Errorf("the earlier backup reaches version %d, the store %d: %w", since.GetVersion(), mark.Version, persistence.ErrInvalid)
		}
	}
	if err := b.out.begin(&messages.BackupHeader{Format: backupFormat, Mark: mark, Since: since}); err != nil {
		return nil, err
	}
	if err := b.walk(since); err != nil {
		return nil, err
	}
	mark = proto.CloneOf(mark)
	return mark, b.out.end(&messages.BackupTrailer{Mark: mark, Entries: b.entries, Keys: b.keys})
}

func hexID(id []byte) string { return hex.EncodeToString(id[:min(4, len(id))]) }

// walk writes the entries, in order of their keys.
func (b *backup) walk(since *messages.BackupMark) error {
	it := b.txn.NewIterator(engine.IteratorOptions{PrefetchValues: false})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		item := it.Item()
		key := item.KeyCopy(nil)
		if since != nil {
			b.listKey(key)
		}
		if item.Version() > since.GetVersion() {
			if err := b.entry(item, key); err != nil {
				return err
			}
		}
		if b.size >= partSize {
			if err := b.flush(); err != nil {
				return err
			}
		}
	}
	return b.flush()
}

// entry adds one entry, checked: a backup of damaged data would be worth less than none.
func (b *backup) entry(item *engine.Item, key []byte) error {
	value, err := item.ValueCopy(nil)
	if err != nil {
		return fmt.Errorf("read %q: %w: %w", key, err, persistence.ErrCorrupt)
	}
	if key[0] != tagPiece { // a piece is checked with the value that it is of
		if _, err := unseal(key, value); err != nil {
			return fmt.Errorf("entry %q: %w", key, err)
		}
		if item.UserMeta()&userPieces != 0 {
			if _, err := whole(b.txn, key, value, item.UserMeta()); err != nil {
				return fmt.Errorf("entry %q: %w", key, err)
			}
		}
	}
	b.part.Entries = append(b.part.Entries, &messages.BackupEntry{Key: key, Value: value, Meta: uint32(item.UserMeta())})
	b.size += len(key) + len(value) + 8
	b.entries++
	return nil
}

func (b *backup) listKey(key []byte) {
	n := 0
	for n < len(key) && n < len(b.last) && key[n] == b.last[n] {
		n++
	}
	b.part.Keys = append(b.part.Keys, &messages.BackupKey{Shared: uint32(n), Rest: key[n:]})
	b.last = key
	b.size += len(key) - n + 6
	b.keys++
}

func (b *backup) flush() error {
	if b.size == 0 {
		return nil
	}
	err := b.out.frame(framePart, &b.part)
	b.part.Reset()
	b.size = 0
	return err
}

// ErrBackup says that a file is no backup, or not a whole one, or does not follow the one before.
var ErrBackup = errors.New("not a usable backup")
