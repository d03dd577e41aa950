package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	engine "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
)

// A salvage reads every entry of a database's files that still reads, without the database, and writes it
// with its version into a new one, which then finds by itself what is newest.

// salvage is one under way.
type salvage struct {
	in    *inspection
	keys  *keyring
	batch *engine.WriteBatch
	err   error // the first of writing

	holes []string // in logs, with whole entries behind them
}

// the database's marks on an entry, and the beginning of its own keys.
const (
	metaDelete = 1 << 0
	ownPrefix  = "!badger!"
)

// salvageInto copies what reads from the files of one database into another, which is open for versions of
// our choice. It returns what did not read in the middle of logs.
func salvageInto(db *engine.DB, in *inspection, keys *keyring) ([]string, error) {
	s := &salvage{in: in, keys: keys, batch: db.NewManagedWriteBatch()}
	defer s.batch.Cancel()
	names, err := os.ReadDir(in.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without a database there is nothing to salvage
		return nil, fmt.Errorf("list the database: %w", err)
	}
	for _, e := range names {
		switch ext := filepath.Ext(e.Name()); {
		case formatOf(e) > 0:
		case ext == tableSuffix:
			err = s.table(e.Name())
		case ext == logSuffix:
			err = s.log(e.Name())
		}
		if err = errors.Join(err, s.err); err != nil {
			return nil, fmt.Errorf("salvage %s: %w", e.Name(), err)
		}
	}
	if err := s.batch.Flush(); err != nil {
		return nil, fmt.Errorf("write what was salvaged: %w", err)
	}
	return s.holes, nil
}

// table reads what reads of a table: of one that the list does not name too, as the list may be damaged; what
// it holds is then as old as its versions say.
func (s *salvage) table(name string) error {
	var id uint64
	if _, err := fmt.Sscanf(name, "%d"+tableSuffix, &id); err != nil {
		return nil //nolint:nilerr // not a table: it was reported
	}
	m, listed := s.in.tables[id]
	if !listed && s.in.listed {
		return nil // the trace of a compaction that a crash cut
	}
	b, err := os.ReadFile(filepath.Join(s.in.dir, name))
	if err != nil {
		return err
	}
	kinds := []engine.TableManifest{m}
	if !listed { // what only the list knew
		kinds = s.in.guesses()
	}
	for _, m := range kinds {
		t, err := readTable(b, m, s.keys)
		if err != nil {
			continue
		}
		for i := range t.blocks {
			entries, err := t.block(i)
			if err != nil {
				continue
			}
			for _, e := range entries {
				s.put(e.key, e.value.Value, e.value.Meta, e.value.UserMeta)
			}
		}
	}
	return nil
}

// put writes an entry, whose key has its version behind it.
func (s *salvage) put(key, value []byte, meta, userMeta byte) {
	if s.err != nil || len(key) <= 8 {
		return
	}
	version, own := y.ParseTs(key), slices.Clone(y.ParseKey(key))
	if version == 0 || strings.HasPrefix(string(own), ownPrefix) || strings.IndexByte(tags, own[0]) < 0 {
		return
	}
	if meta&metaDelete != 0 {
		s.err = s.batch.DeleteAt(own, version)
		return
	}
	s.err = s.batch.SetEntryAt(engine.NewEntry(own, slices.Clone(value)).WithMeta(userMeta), version)
}

// pending is an entry of a transaction whose end was not met yet.
type pending struct {
	logEntry
	version uint64
}

// log reads what reads of a log, also behind damage. A transaction that no later one follows and whose end is not there
// was never made.
func (s *salvage) log(name string) error {
	b, err := os.ReadFile(filepath.Join(s.in.dir, name))
	if err != nil || len(b) < logHeader || !s.keys.header(b) {
		return err
	}
	var open []pending
	flush := func(before uint64) {
		open = slices.DeleteFunc(open, func(p pending) bool {
			if p.version < before {
				s.put(p.key, p.value, p.meta, p.userMeta)
			}
			return p.version < before
		})
	}
	limit := len(trimZeros(b))
	for at := logHeader; at < limit; {
		e, n := entryAt(b, at)
		if n == 0 {
			hole := at
			if at = nextEntry(b, at, limit); at < limit {
				s.holes = append(s.holes, fmt.Sprintf("%s does not read from byte %d to %d", name, hole, at))
			}
			continue
		}
		key, value, err := s.keys.decrypt(b, e, at)
		at += n
		if err != nil || len(key) <= 8 {
			continue
		}
		e.key, e.value = key, value
		version := y.ParseTs(key)
		flush(version)
		if e.meta&metaEndTxn != 0 {
			flush(version + 1)
			continue
		}
		open = append(open, pending{e, version})
	}
	return nil
}

func trimZeros(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// maxResync is the longest entry that is looked for behind damage: pieces are the largest.
const maxResync = pieceSize + 16<<10

// nextEntry finds the next whole entry behind a damaged one: where the damaged one's own lengths lead, or else the first
// that reads.
func nextEntry(b []byte, at, limit int) int {
	if n := entryLength(b[at:]); n > 0 && at+n < len(b) {
		if _, ok := entryAt(b, at+n); ok > 0 {
			return at + n
		}
	}
	for at++; at < limit; at++ {
		if n := entryLength(b[at:]); n == 0 || n > maxResync {
			continue
		}
		if _, ok := entryAt(b, at); ok > 0 {
			return at
		}
	}
	return limit
}

// entryLength is how long the entry at the beginning of b says that it is, 0 when it cannot be one.
func entryLength(b []byte) int {
	if len(b) < 5 {
		return 0
	}
	h := 2
	var sizes [2]uint64
	for i := range sizes {
		v, k := binary.Uvarint(b[h:])
		if k <= 0 || v > maxResync {
			return 0
		}
		sizes[i], h = v, h+k
	}
	_, k := binary.Uvarint(b[h:])
	if k <= 0 || sizes[0] <= 8 || sizes[0] > maxLogKey {
		return 0
	}
	return h + k + int(sizes[0]+sizes[1]) + 4
}
