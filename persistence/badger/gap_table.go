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
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/proto"
)

// damagedSuffix ends the name that a damaged table is kept under.
const damagedSuffix = ".damaged"

// gap is what lay in a span, if that can only be records, of names of the same kind: new ones, which come behind those that there are, must not
// fall into it.
func (s span) gap(file string) (gap, bool) {
	from, _, ok := splitName(s.from)
	to, _, okTo := splitName(s.to)
	if !ok || !okTo || s.from[0] != tagCommit || s.to[0] != tagCommit {
		return gap{}, false
	}
	kind, _, _ := strings.Cut(from, "/")
	other, _, _ := strings.Cut(to, "/")
	return gap{File: file, From: s.from, To: s.to}, kind == other
}

// missing is what a store is opened without.
type missing struct {
	holes   []hole
	entries int   // that they held together
	err     error // that refuses the store, unless it is certain what they held
	quiet   bool  // no log holds anything: the store was closed in order
}

// without is what the store may open without, as far as the files tell. nil when anything else is wrong with them.
func (in *inspection) without() *missing {
	if !in.listed {
		return nil
	}
	m := &missing{err: in.err(), quiet: in.quiet()}
	for _, d := range in.damaged {
		if len(d.spans) == 0 || len(d.spans) == d.blocks {
			return nil
		}
		m.entries += d.entries
		for _, s := range d.spans {
			if !isDoubtful(s.from) {
				return nil
			}
			m.holes = append(m.holes, hole{s, d.file, d.filter, d.top})
		}
	}
	return m
}

// quiet says whether no log holds anything, as when the store was closed in order.
func (in *inspection) quiet() bool {
	for _, name := range in.logNames() {
		if l, err := in.versionsOf(name); err != nil || l.to != 0 || in.logs[name].rest {
			return false
		}
	}
	return len(in.torn) == 0
}

// gaps are what lay in the holes, when that can only be records.
func (m *missing) gaps() (found []gap, ok bool) {
	for _, h := range m.holes {
		p, ok := h.gap(h.file)
		if !ok {
			return nil, false
		}
		found = append(found, p)
	}
	return found, true
}

// leaveOut makes the damaged tables name their damaged blocks no longer. Compactions would end at those in silence, and lose
// what lies behind. The table as it was is kept beside.
func (in *inspection) leaveOut() error {
	for _, d := range in.damaged {
		if err := in.leaveOutOf(d); err != nil {
			return fmt.Errorf("leave out the damaged blocks of %s: %w", d.file, err)
		}
	}
	return syncDir(in.dir)
}

func (in *inspection) leaveOutOf(d damage) error {
	path := filepath.Join(in.dir, d.file)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if b, err = withoutDamage(b, in.tables[d.table], in.keys); err != nil {
		return err
	}
	if err := keepTable(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// keepTable gives a table a second name, behind those of earlier damage.
func keepTable(path string) error {
	kept := path + damagedSuffix
	for n := 2; ; n++ {
		err := os.Link(path, kept)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			err = copySparse(path, kept) // where there are no links
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		kept = fmt.Sprintf("%s%s.%d", path, damagedSuffix, n)
	}
}

// withoutDamage is a table with an index of its good blocks. Everything else stays in its place, and the highest version
// and the filter of keys stand for what was lost, too.
func withoutDamage(b []byte, m engine.TableManifest, keys *keyring) ([]byte, error) {
	t, err := readTable(b, m, keys)
	if err != nil {
		return nil, err
	}
	old, err := tableIndex(b)
	if err != nil {
		return nil, err
	}
	begin := len(b) - len(old) - 4 - int(binary.BigEndian.Uint32(b[len(b)-4:])) - 4 // where the index begins
	index := slices.Clone(old)
	if t.key != nil {
		if index, err = decryptTail(old, t.key); err != nil {
			return nil, err
		}
	}
	var good []int
	entries := 0
	for i := range t.blocks {
		if b, err := t.raw(i); err == nil {
			good, entries = append(good, i), entries+countEntries(b)
		}
	}
	if len(good) == 0 {
		return nil, errors.New("no block reads")
	}
	if err := caught(func() error { keepBlocks(index, good, entries); return nil }); err != nil {
		return nil, err
	}
	if t.key != nil {
		if index, err = encryptTail(index, t.key); err != nil {
			return nil, err
		}
	}
	sum, err := proto.Marshal(&pb.Checksum{Algo: pb.Checksum_CRC32C, Sum: y.CalculateChecksum(index, pb.Checksum_CRC32C)})
	if err != nil {
		return nil, err
	}
	out := append(slices.Clone(b[:begin]), index...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(index)))
	out = append(out, sum...)
	return binary.BigEndian.AppendUint32(out, uint32(len(sum))), nil
}

// keepBlocks shortens an index's list of blocks: their number, and for each how far behind its own place in the list its
// description stands. The index counts the entries that are left.
func keepBlocks(index []byte, good []int, entries int) {
	const list = 4 // the field of the index that leads to the list
	root := fb.GetRootAsTableIndex(index, 0)
	root.MutateKeyCount(uint32(entries))
	table := root.Table()
	field := int(table.Pos) + int(table.Offset(list))
	at := field + int(binary.LittleEndian.Uint32(index[field:])) + 4
	for to, from := range good {
		from, to := at+4*from, at+4*to
		binary.LittleEndian.PutUint32(index[to:], binary.LittleEndian.Uint32(index[from:])+uint32(from-to))
	}
	binary.LittleEndian.PutUint32(index[at-4:], uint32(len(good)))
}

// encryptTail undoes decryptTail, with an initial vector of its own.
func encryptTail(b, key []byte) ([]byte, error) {
	iv, err := y.GenerateIV()
	if err != nil {
		return nil, err
	}
	out, err := y.XORBlockAllocate(b, key, iv)
	return append(out, iv...), err
}
