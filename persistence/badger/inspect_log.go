package badger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// A log of the database begins with the number of the key that it is encrypted with and an
// initial vector. Each entry is: meta, user meta, and as varints the lengths of key and value and
// a time; then key and value, and a crc32c over all of that. A transaction is entries marked as its part and one that ends it.
const (
	logHeader  = 20
	metaInTxn  = 1 << 6
	metaEndTxn = 1 << 7
	maxLogKey  = 1 << 16
)

// scan is how far a log reads.
type scan struct {
	end  int  // behind the last whole transaction
	rest bool // something else than zeros follows
	size int  // of the file
}

// log reads a log of the database. A log ends in zeros; another end is what a crash leaves, or damage:
// only the watermark can tell.
func (in *inspection) log(name string, keys *keyring) error {
	b, err := os.ReadFile(filepath.Join(in.dir, name))
	if err != nil {
		return err
	}
	if len(b) == 0 { // the database does not open where there is one
		in.torn = append(in.torn, name+" is empty, as a log that was being made")
		in.logs[name] = scan{}
		return nil
	}
	if len(b) >= logHeader && !keys.header(b) {
		in.found(name, "its header names a key that there is not")
		return nil
	}
	s := scanLog(b)
	if s.end > logHeader && !keys.plausible(b) {
		in.found(name, "it does not decrypt")
		return nil
	}
	if s.rest {
		in.torn = append(in.torn, name+" holds what is no whole entry")
		in.logs[name] = s
	}
	return nil
}

func scanLog(b []byte) scan {
	s := scan{size: len(b)}
	if len(b) < logHeader {
		s.rest = !zeros(b)
		return s
	}
	s.end = logHeader
	for at := logHeader; ; {
		e, n := entryAt(b, at)
		if n == 0 {
			break
		}
		at += n
		if e.meta&metaInTxn == 0 {
			s.end = at
		}
	}
	s.rest = !zeros(b[s.end:])
	return s
}

// logEntry is one entry, with key and value as they stand in the file.
type logEntry struct {
	meta, userMeta byte
	key, value     []byte
	body           int // offset of the key
}

// entryAt reads the entry at an offset; n is its length, 0 when there is none that is whole.
func entryAt(b []byte, at int) (e logEntry, n int) {
	rest := b[at:]
	if len(rest) < 2 {
		return e, 0
	}
	e.meta, e.userMeta = rest[0], rest[1]
	h := 2
	var field [3]uint64
	for i := range field {
		v, k := binary.Uvarint(rest[h:])
		if k <= 0 {
			return e, 0
		}
		field[i], h = v, h+k
	}
	klen, vlen := field[0], field[1]
	if klen == 0 || klen > maxLogKey || vlen > uint64(len(rest)) || uint64(h)+klen+vlen+crc32.Size > uint64(len(rest)) {
		return e, 0
	}
	end := h + int(klen+vlen)
	if crc32.Checksum(rest[:end], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(rest[end:]) {
		return e, 0
	}
	e.key, e.value, e.body = rest[h:h+int(klen)], rest[h+int(klen):end], at+h
	return e, end + crc32.Size
}

// cutLogs ends the logs behind what reads, and removes those of which nothing does. The database would do so itself, after allocating what
// the damaged entry asks for.
func (in *inspection) cutLogs() error {
	for name, s := range in.logs {
		path := filepath.Join(in.dir, name)
		if s.end <= logHeader {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("remove %s: %w", name, err)
			}
			continue
		}
		if err := os.Truncate(path, int64(s.end)); err != nil {
			return fmt.Errorf("cut %s: %w", name, err)
		}
		if err := os.Truncate(path, int64(s.size)); err != nil { // what the database maps
			return fmt.Errorf("cut %s: %w", name, err)
		}
	}
	return nil
}
