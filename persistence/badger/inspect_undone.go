package badger

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	engine "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"google.golang.org/protobuf/proto"
)

// When the sync of the list of tables fails, the database takes back what it was about to do: it removes
// the tables that it made, and keeps those that they were made of, or the log. The note stays in
// the list, though, and names tables that there are not. Such notes are told from the loss of tables:
//
//   - A note of a compaction that did not happen: without it the list names only tables that there are.
//   - A note of a log's table, which is the last of all: the log is still there, and goes on where the tables end.
//
// Everything else is a loss.

// note is one entry of the list of tables: changes that became true together.
type note struct {
	raw     []byte
	changes []*pb.ManifestChange
}

const listHeader, noteHeader = 8, 8

// readNotes takes a list apart that was read before.
func readNotes(list []byte) ([]note, error) {
	var notes []note
	for at := listHeader; at+noteHeader <= len(list); {
		end := at + noteHeader + int(binary.BigEndian.Uint32(list[at:]))
		if end > len(list) || end < at {
			break
		}
		var set pb.ManifestChangeSet
		if err := proto.Unmarshal(list[at+noteHeader:end], &set); err != nil {
			return nil, fmt.Errorf("read the list of tables: %w", err)
		}
		notes = append(notes, note{raw: list[at:end], changes: set.GetChanges()})
		at = end
	}
	return notes, nil
}

// fromLog says whether a note is about a table that was made of a log.
func (n note) fromLog() bool {
	return !slices.ContainsFunc(n.changes, func(c *pb.ManifestChange) bool { return c.GetOp() == pb.ManifestChange_DELETE })
}

// apply makes the changes of a note.
func (n note) apply(tables map[uint64]engine.TableManifest) {
	for _, c := range n.changes {
		switch c.GetOp() {
		case pb.ManifestChange_DELETE:
			delete(tables, c.GetId())
		case pb.ManifestChange_CREATE:
			tables[c.GetId()] = engine.TableManifest{
				Level: uint8(c.GetLevel()), KeyID: c.GetKeyId(), Compression: options.CompressionType(c.GetCompression()),
			}
		}
	}
}

// creates says whether a table came with a note.
func (n note) creates(id uint64) bool {
	return slices.ContainsFunc(n.changes, func(c *pb.ManifestChange) bool {
		return c.GetOp() == pb.ManifestChange_CREATE && c.GetId() == id
	})
}

// undone looks whether the tables that are missing were never part of the database, and if so takes them
// from the list.
func (in *inspection) undone(onDisk map[uint64]bool) error {
	missing := in.missing(onDisk)
	if len(missing) == 0 {
		return nil
	}
	list, err := os.ReadFile(filepath.Join(in.dir, manifestFile))
	if err != nil {
		return err
	}
	notes, err := readNotes(list)
	if err != nil {
		return err
	}
	kept, fromLog, tables := bytes.Clone(list[:listHeader]), false, map[uint64]engine.TableManifest{}
	for _, n := range notes {
		if slices.ContainsFunc(missing, n.creates) {
			fromLog = fromLog || n.fromLog()
			continue
		}
		if fromLog {
			return nil // the table is not the newest: where the others end says nothing about it
		}
		kept = append(kept, n.raw...)
		n.apply(tables)
	}
	for id := range tables {
		if !onDisk[id] {
			return nil // it was lost
		}
	}
	if fromLog {
		top, err := in.top(tables)
		if err != nil {
			return err
		}
		logs, err := in.logVersions()
		if err != nil || !goOn(logs, top) {
			return err
		}
	}
	in.tables, in.list = tables, kept
	in.torn = append(in.torn, fmt.Sprintf("%s notes tables that were never finished: %v", manifestFile, missing))
	return nil
}

// missing are the tables that are listed and not there.
func (in *inspection) missing(onDisk map[uint64]bool) []uint64 {
	var ids []uint64
	for id := range in.tables {
		if !onDisk[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// writeList replaces the list by what undone left of it.
func (in *inspection) writeList() error {
	if in.list == nil {
		return nil
	}
	path := filepath.Join(in.dir, manifestFile)
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write the list of tables: %w", err)
	}
	_, err = f.Write(in.list)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the list of tables: %w", err)
	}
	return syncDir(in.dir)
}

// top is the highest version in tables. One that does not read has none: that is told elsewhere.
func (in *inspection) top(tables map[uint64]engine.TableManifest) (top uint64, err error) {
	for id, m := range tables {
		b, err := os.ReadFile(filepath.Join(in.dir, tableName(id)))
		if err != nil {
			return 0, err
		}
		if t, err := readTable(b, m, in.keys); err == nil {
			top = max(top, t.top)
		}
	}
	return top, nil
}

// goOn says whether logs hold what comes after a version, without a hole. Every transaction has the
// version after the one before it.
func goOn(logs []versions, after uint64) bool {
	slices.SortFunc(logs, func(a, b versions) int { return cmp.Compare(a.from, b.from) })
	end := after
	for _, l := range logs {
		switch {
		case l.to <= end: // an empty log, too
		case l.from > end+1:
			return false
		default:
			end = l.to
		}
	}
	return end > after
}
