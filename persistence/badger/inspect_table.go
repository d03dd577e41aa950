package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	engine "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/proto"
)

// A table of the database is blocks, an index of them, and at its end, each behind what it
// counts: the index's length, its checksum and that one's length. A block is entries, their offsets
// and number, and its checksum with its length; it is compressed, then encrypted.

// span is the keys from one on to before another; nil: to the end.
type span struct{ from, to []byte }

// streams are the streams whose records may stand in the spans, as far as the keys at their
// borders name them.
func (d damage) streams() []string {
	var names []string
	for _, s := range d.spans {
		for _, key := range [][]byte{s.from, s.to} {
			if len(key) == 0 || key[0] != tagCommit {
				continue
			}
			if name, _, ok := splitName(key); ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// bounds is what is known of a table without its blocks.
type bounds struct {
	first []byte // key, nil when its index does not read
	top   uint64 // the highest version in it
}

// checkTable reads every block of a table. No damage: all of them match their checksums.
func checkTable(path string, id uint64, m engine.TableManifest, keys *keyring) (bounds, *damage, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return bounds{}, nil, err
	}
	d := &damage{file: tableName(id), table: id}
	t, problem := readTable(b, m, keys)
	if problem != nil {
		d.what = problem.Error()
		return bounds{}, d, nil //nolint:nilerr // it is told as damage
	}
	at := bounds{top: t.top}
	if d.blocks = len(t.blocks); d.blocks > 0 {
		at.first = y.ParseKey(t.blocks[0].first)
	}
	for i := range t.blocks {
		if _, err := t.raw(i); err != nil {
			d.what = "a block does not match its checksum"
			d.spans = append(d.spans, t.span(i))
		}
	}
	if d.what != "" {
		d.entries, d.filter, d.top = t.missing(), t.filter, t.top
	}
	if d.what == "" {
		return at, nil, nil
	}
	return at, d, nil
}

// tableFile is a table with its index read.
type tableFile struct {
	b           []byte
	compression options.CompressionType
	key         []byte // nil: not encrypted
	blocks      []blockPlace
	top         uint64 // the highest version in it
	count       int    // of its entries
	filter      []byte // of its keys
}

type blockPlace struct {
	first    []byte // key of the first entry, with its version
	off, len uint64
}

func readTable(b []byte, m engine.TableManifest, keys *keyring) (*tableFile, error) {
	index, err := tableIndex(b)
	if err != nil {
		return nil, err
	}
	t := &tableFile{b: b, compression: m.Compression}
	if m.KeyID != 0 {
		if t.key, err = keys.data(m.KeyID); err != nil {
			return nil, err
		}
		if index, err = decryptTail(index, t.key); err != nil {
			return nil, err
		}
	}
	err = caught(func() error {
		ti := fb.GetRootAsTableIndex(index, 0)
		t.top, t.count = ti.MaxVersion(), int(ti.KeyCount())
		t.filter = slices.Clone(ti.BloomFilterBytes())
		for i := range ti.OffsetsLength() {
			var bo fb.BlockOffset
			if !ti.Offsets(&bo, i) {
				return fmt.Errorf("its index has no block %d", i)
			}
			t.blocks = append(t.blocks, blockPlace{first: slices.Clone(bo.KeyBytes()), off: uint64(bo.Offset()), len: uint64(bo.Len())})
		}
		return nil
	})
	return t, err
}

// tableIndex returns the index of a table. The database ends the process over one that does not
// lie where the end of the file says.
func tableIndex(b []byte) ([]byte, error) {
	rest, short := b, errors.New("its end leads out of the file")
	cut := func(n uint64) ([]byte, error) {
		if n > uint64(len(rest)) {
			return nil, short
		}
		at := uint64(len(rest)) - n
		out := rest[at:]
		rest = rest[:at]
		return out, nil
	}
	counted := func() ([]byte, error) {
		n, err := cut(4)
		if err != nil {
			return nil, err
		}
		return cut(uint64(binary.BigEndian.Uint32(n)))
	}
	want, err := counted()
	if err != nil {
		return nil, err
	}
	index, err := counted()
	if err != nil {
		return nil, err
	}
	if len(index) == 0 || !matches(index, want) {
		return nil, errors.New("its index does not match its checksum")
	}
	return index, nil
}

// matches holds bytes against a checksum as the database writes it.
func matches(b, sum []byte) bool {
	want := &pb.Checksum{}
	if err := proto.Unmarshal(sum, want); err != nil {
		return false
	}
	return caught(func() error { return y.VerifyChecksum(b, want) }) == nil
}

func (t *tableFile) span(i int) span {
	s := span{from: y.ParseKey(t.blocks[i].first)}
	if i+1 < len(t.blocks) {
		s.to = y.ParseKey(t.blocks[i+1].first)
	}
	return s
}

var errBlock = errors.New("block does not match its checksum")

// tableEntry is an entry of a block; the key has its version behind it.
type tableEntry struct {
	key   []byte
	value y.ValueStruct
}

// block reads and checks one block.
func (t *tableFile) block(i int) (entries []tableEntry, err error) {
	b, err := t.raw(i)
	if err == nil {
		err = caught(func() error { entries = blockEntries(b); return nil })
	}
	return entries, err
}

// missing is how many entries stood in the blocks that do not read.
func (t *tableFile) missing() int {
	n := t.count
	for i := range t.blocks {
		if b, err := t.raw(i); err == nil {
			n -= countEntries(b)
		}
	}
	return n
}

func countEntries(b []byte) int { return int(binary.BigEndian.Uint32(b[len(b)-4:])) }

// blockEntries takes a block apart, whose checksum matched. An entry's key is told by how much of the
// first one's it shares and the rest.
func blockEntries(b []byte) []tableEntry {
	n := countEntries(b)
	at := len(b) - 4 - 4*n
	// The database writes the offsets in the order of the machine.
	offset := func(i int) int { return int(binary.NativeEndian.Uint32(b[at+4*i:])) }
	var base []byte
	out := make([]tableEntry, n)
	for i := range n {
		end := at
		if i+1 < n {
			end = offset(i + 1)
		}
		e := b[offset(i):end]
		overlap, diff := int(binary.NativeEndian.Uint16(e)), int(binary.NativeEndian.Uint16(e[2:]))
		if i == 0 {
			base = e[4 : 4+diff]
		}
		out[i].key = slices.Concat(base[:overlap], e[4:4+diff])
		out[i].value.Decode(e[4+diff:])
	}
	return out
}

// raw is a block without its checksum, which matched.
func (t *tableFile) raw(i int) (b []byte, err error) {
	p := t.blocks[i]
	if p.off+p.len > uint64(len(t.b)) || p.off+p.len < p.off {
		return nil, errBlock
	}
	b = t.b[p.off : p.off+p.len]
	if t.key != nil {
		if b, err = decryptTail(b, t.key); err != nil {
			return nil, err
		}
	}
	switch t.compression {
	case options.None:
	case options.Snappy:
		if b, err = snappy.Decode(nil, b); err != nil {
			return nil, fmt.Errorf("%w: %w", errBlock, err)
		}
	default:
		return nil, fmt.Errorf("compression %d is not ours", t.compression)
	}
	if len(b) < 8 {
		return nil, errBlock
	}
	n := int(binary.BigEndian.Uint32(b[len(b)-4:]))
	end := len(b) - 4 - n
	if n > len(b) || end < 4 || !matches(b[:end], b[end:end+n]) {
		return nil, errBlock
	}
	return b[:end], nil
}

// decryptTail decrypts what ends in its initial vector, as tables' blocks and indexes do.
func decryptTail(b, key []byte) ([]byte, error) {
	at := len(b) - 16
	if at < 0 {
		return nil, errBlock
	}
	return y.XORBlockAllocate(b[:at], key, b[at:])
}
