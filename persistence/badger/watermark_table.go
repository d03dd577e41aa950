package badger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/messages"
)

// Behind its count the watermark keeps a table of who was written to last: for a stream its last
// acknowledged seq, for a session its last cursor. When commits are lost it says whose; it decides nothing. A
// newer writer takes the place of an older one that has the same place, so it knows the last few hundred.

const (
	tableAt     = 4096
	tablePlaces = 512
	tableWidth  = 128
	maxTabled   = tableWidth - 2 - 16 - sumSize // longest name that is kept
)

// The kinds of names.
const (
	tabledStream  = 's'
	tabledSession = 'c'
	hashedName    = '#' // begins a name that stands for its hash: that of an encrypted store
)

// last is what the table knows of one name.
type last struct {
	kind   byte
	name   string
	n      uint64 // seq or cursor
	commit uint64 // that acknowledged it
}

// tabled is a name as the table keeps it.
func (w *watermark) tabled(name string) string {
	if w.hashed {
		h := sha256.Sum256([]byte(name))
		return string(hashedName) + hex.EncodeToString(h[:16])
	}
	return name
}

// noteLast writes down the end of a stream or a session. Only the syncer calls it.
func (w *watermark) noteLast(kind byte, name string, n, commit uint64) error {
	name = w.tabled(name)
	if len(name) > maxTabled {
		return nil
	}
	b := &w.entry
	*b = [tableWidth]byte{}
	b[0], b[1] = kind, byte(len(name))
	binary.BigEndian.PutUint64(b[2:], n)
	binary.BigEndian.PutUint64(b[10:], commit)
	end := 18 + copy(b[18:], name)
	binary.BigEndian.PutUint32(b[end:], sum(0, b[:end]))
	return w.slots.put(tableAt+tableWidth*tablePlace(kind, name), b[:])
}

// forget clears the place of a stream or a session that was deleted, if it is still its own: a repair would miss it. Only the syncer
// calls it.
func (w *watermark) forget(kind byte, name string) error {
	name = w.tabled(name)
	if len(name) > maxTabled {
		return nil
	}
	at := tableAt + tableWidth*tablePlace(kind, name)
	var b [tableWidth]byte
	if _, err := w.slots.file.ReadAt(b[:], int64(at)); err != nil {
		return fmt.Errorf("read watermark: %w", err)
	}
	if b[0] != kind || int(b[1]) != len(name) || string(b[18:18+len(name)]) != name {
		return nil
	}
	return w.slots.put(at, make([]byte, tableWidth))
}

// forgetAll clears the places of all that a deletion took.
func (w *watermark) forgetAll(plan *messages.DeletionPlan) error {
	for _, stream := range plan.GetStreams() {
		if err := w.forget(tabledStream, stream); err != nil {
			return err
		}
	}
	for _, session := range plan.GetSessions() {
		if err := w.forget(tabledSession, session); err != nil {
			return err
		}
	}
	return nil
}

func tablePlace(kind byte, name string) int {
	const offset, prime = 2166136261, 16777619 // FNV-1a, as hash/fnv has it, without its interface
	h := (uint32(offset) ^ uint32(kind)) * prime
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * prime
	}
	return int(h % tablePlaces)
}

// readLast reads what the table of a watermark file holds.
func readLast(path string) ([]last, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []last
	for at := tableAt; at+tableWidth <= len(b); at += tableWidth {
		e := b[at : at+tableWidth]
		end := 18 + int(e[1])
		if end+sumSize > tableWidth || e[0] == 0 || sum(0, e[:end]) != binary.BigEndian.Uint32(e[end:]) {
			continue
		}
		out = append(out, last{kind: e[0], name: string(e[18:end]), n: binary.BigEndian.Uint64(e[2:]), commit: binary.BigEndian.Uint64(e[10:])})
	}
	return out, nil
}

// noteTasks writes down where the appends of a group have led.
func (w *watermark) noteTasks(tasks []staged, commit uint64) {
	for _, s := range tasks {
		if d, ok := s.task.(*deletedTask); ok && s.err == nil {
			if err := w.forgetAll(d.plan); err != nil {
				w.fail(err)
				return
			}
		}
		t, ok := s.task.(*appendTask)
		if !ok || s.err != nil {
			continue
		}
		for i := range t.batches {
			b := &t.batches[i]
			n := uint64(len(b.Records))
			if n == 0 {
				continue
			}
			err := w.noteLast(tabledStream, b.Lease.Stream, b.Expect+n-1, commit)
			if err == nil && b.Session != "" {
				err = w.noteLast(tabledSession, b.Session, t.parts[i].last, commit)
			}
			if err != nil {
				w.fail(err)
				return
			}
		}
	}
}
