package badger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4/pb"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/persistence"
)

// noteIn adds changes to the list of tables, as the database does before it syncs the list.
func noteIn(t *testing.T, dir string, changes ...*pb.ManifestChange) {
	t.Helper()
	body, err := proto.Marshal(&pb.ManifestChangeSet{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	f, err := os.OpenFile(filepath.Join(dir, "db", manifestFile), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.Write(append(head, body...))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func created(id uint64, level uint32) *pb.ManifestChange {
	return &pb.ManifestChange{Id: id, Op: pb.ManifestChange_CREATE, Level: level, Compression: 1}
}

func removed(id uint64) *pb.ManifestChange {
	return &pb.ManifestChange{Id: id, Op: pb.ManifestChange_DELETE}
}

// tablesOf are the tables in a database's directory.
func tablesOf(t *testing.T, dir string) []string {
	t.Helper()
	return glob(t, dir, "db/*"+tableSuffix)
}

// listedIn are the tables that the list of a store names.
func listedIn(t *testing.T, dir string) []uint64 {
	t.Helper()
	in, err := inspect(filepath.Join(dir, "db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for id := range in.tables {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// removedAll takes every table of a store from the list.
func removedAll(t *testing.T, dir string) (changes []*pb.ManifestChange) {
	t.Helper()
	for _, id := range listedIn(t, dir) {
		changes = append(changes, removed(id))
	}
	return changes
}

// TestNotesOfTablesThatWereNeverFinishedAreTakenBack opens what is on the disk after the sync of a note failed and
// the database took back what the note was about.
func TestNotesOfTablesThatWereNeverFinishedAreTakenBack(t *testing.T) {
	const rounds = 3
	killed := manyTables(t, rounds)
	want := answers(t, openIn(t, image(t, killed)), rounds)
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"of a log": func(t *testing.T, dir string) { noteIn(t, dir, created(900, 0)) },
		"of a log, tried again": func(t *testing.T, dir string) {
			noteIn(t, dir, created(900, 0))
			noteIn(t, dir, created(901, 0))
		},
		"of a compaction": func(t *testing.T, dir string) {
			noteIn(t, dir, append([]*pb.ManifestChange{created(900, 1), created(901, 1)}, removedAll(t, dir)...)...)
		},
		"of a log, and of a compaction": func(t *testing.T, dir string) {
			noteIn(t, dir, created(900, 0))
			noteIn(t, dir, append([]*pb.ManifestChange{created(901, 1)}, removedAll(t, image(t, killed))...)...)
		},
		"of a compaction and of a log": func(t *testing.T, dir string) {
			noteIn(t, dir, append([]*pb.ManifestChange{created(900, 1)}, removedAll(t, dir)...)...)
			noteIn(t, dir, created(901, 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := image(t, killed)
			before := listedIn(t, dir)
			spoil(t, dir)
			s := openIn(t, dir)
			if got := answers(t, s, rounds); got != want {
				t.Errorf("it says\n%s", got)
			}
			appendTo(t, s, "wrk/new", "one", 1) // and it goes on
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			after := listedIn(t, dir)
			if slices.Contains(after, 900) || slices.Contains(after, 901) || len(before) == 0 {
				t.Errorf("before %v, after %v are listed", before, after)
			}
			if got := answers(t, openIn(t, dir), rounds); got != want {
				t.Errorf("the second time it says\n%s", got)
			}
		})
	}
}

// TestTablesThatAreLostAreNotTakenForUnfinished removes tables that were part of the database: with a log behind
// them that does not hold what they held, without one, and after a compaction.
func TestTablesThatAreLostAreNotTakenForUnfinished(t *testing.T) {
	const rounds = 3
	killed := manyTables(t, rounds)
	closed := image(t, killed)
	if err := openIn(t, closed).Close(); err != nil {
		t.Fatal(err)
	}
	compacted := image(t, closed)
	s := openIn(t, compacted)
	if err := errors.Join(s.db.Flatten(1), s.Close()); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"with a log": killed, "without a log": closed, "after a compaction": compacted} {
		t.Run(name, func(t *testing.T) {
			all := tablesOf(t, from)
			if len(all) == 0 {
				t.Fatal("there is no table")
			}
			for _, lost := range all {
				dir := image(t, from)
				if err := os.Remove(filepath.Join(dir, "db", filepath.Base(lost))); err != nil {
					t.Fatal(err)
				}
				list := readList(t, dir)
				s, err := Open(context.Background(), Options{Dir: dir, Ballast: -1})
				if err == nil {
					_ = s.Close()
				}
				if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(lost)) {
					t.Errorf("%s: %v", filepath.Base(lost), err)
				}
				if !bytes.Equal(readList(t, dir), list) {
					t.Errorf("%s: the refusal has changed the list", filepath.Base(lost))
				}
			}
		})
	}
}

// TestLogsThatDoNotGoOnProveNothing looks at the versions alone.
func TestLogsThatDoNotGoOnProveNothing(t *testing.T) {
	none := versions{from: ^uint64(0)}
	for name, c := range map[string]struct {
		logs []versions
		want bool
	}{
		"no log":                     {nil, false},
		"an empty log":               {[]versions{none}, false},
		"from the next on":           {[]versions{{11, 20}}, true},
		"from before":                {[]versions{{5, 20}}, true},
		"only before":                {[]versions{{5, 10}}, false},
		"with a hole at its start":   {[]versions{{12, 20}}, false},
		"two in a row, in any order": {[]versions{{16, 20}, {11, 15}}, true},
		"two with a hole":            {[]versions{{11, 15}, {17, 20}}, false},
		"and an empty one":           {[]versions{none, {11, 15}}, true},
	} {
		if got := goOn(c.logs, 10); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
