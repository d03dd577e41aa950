package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// manyTables is the image of a store that was opened and closed in order several times, and killed with a log
// behind its tables.
func manyTables(t *testing.T, rounds int, change ...func(*Options)) string {
	t.Helper()
	dir := t.TempDir()
	for n := range rounds {
		s := openIn(t, dir, change...)
		appendTo(t, s, fmt.Sprintf("wrk/%d", n), "one", 5)
		appendTo(t, s, "wrk/a", "two", 5)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := openIn(t, dir, change...)
	appendTo(t, s, "wrk/a", "two", 5)
	if err := s.db.Flatten(1); err != nil { // an image of a moment at which tables are compacted is none
		t.Fatal(err)
	}
	return image(t, dir)
}

// answers are what a store says of what manyTables put in.
func answers(t *testing.T, s *Store, rounds int) string {
	t.Helper()
	var b strings.Builder
	for _, stream := range append([]string{"wrk/a"}, names(rounds)...) {
		err := s.Read(context.Background(), stream, 1, func(e persistence.Entry) error {
			fmt.Fprintf(&b, "%s %d %v\n", e.Session, e.Cursor, e.Record)
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", stream, err)
		}
	}
	return b.String()
}

func names(rounds int) (out []string) {
	for n := range rounds {
		out = append(out, fmt.Sprintf("wrk/%d", n))
	}
	return out
}

// TestAListOfTablesThatIsCutIsRefusedOrHarmless cuts the list at every length: what is lost of it names tables
// that the database would remove. A bit is flipped at each place too. TROUPE_TEST_FLIPS=all leaves out none of them.
func TestAListOfTablesThatIsCutIsRefusedOrHarmless(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"plain":     func(*Options) {},
		"encrypted": func(o *Options) { o.EncryptionKey = bytes.Repeat([]byte("k"), 32) },
	} {
		t.Run(name, func(t *testing.T) {
			const rounds = 7 // more than a level holds: some of the tables are compacted
			dir := manyTables(t, rounds, change)
			base, err := readFiles(dir)
			if err != nil {
				t.Fatal(err)
			}
			want := answers(t, openIn(t, dir, change), rounds)
			file := filepath.Join("db", manifestFile)
			list := base.content[file]
			step := 7 // a damaged list costs a quarter of a second: its log is 64 MiB long
			switch {
			case os.Getenv(flipsAll) != "":
				step = 1
			case testing.Short():
				step = 23
			}
			cut, opened := 0, 0
			for n := 0; n < len(list); n += step {
				flip := bytes.Clone(list)
				flip[n] ^= 1 << (n % 8)
				for what, damaged := range map[string][]byte{"cut": list[:n], "flipped": flip} {
					dir, f := t.TempDir(), files{maps.Clone(base.content), maps.Clone(base.size)}
					f.content[file], f.size[file] = damaged, int64(len(damaged))
					if err := f.write(dir); err != nil {
						t.Fatal(err)
					}
					o := Options{Dir: dir, Ballast: -1}
					change(&o)
					s, err := Open(context.Background(), o)
					cut++
					if err != nil {
						if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), manifestFile) && !strings.Contains(err.Error(), tableSuffix) {
							t.Errorf("%s at %d: it does not say what is wrong: %v", what, n, err)
						}
						if problem := afterRefusal(dir, f, err); problem != "" {
							t.Errorf("%s at %d: %s", what, n, problem)
						}
						_ = os.RemoveAll(dir)
						continue
					}
					opened++
					if got := answers(t, s, rounds); got != want {
						t.Errorf("%s at %d: it opens and says\n%s", what, n, got)
					}
					_ = s.Close()
					_ = os.RemoveAll(dir)
				}
			}
			t.Logf("%d damaged lists of %d bytes, %d opened whole", cut, len(list), opened)
		})
	}
}

func TestACutListOfTablesIsRepairedWithoutLoss(t *testing.T) {
	const rounds = 2
	dir := manyTables(t, rounds)
	want := answers(t, openIn(t, image(t, dir)), rounds)
	file := filepath.Join(dir, "db", manifestFile)
	list, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, int64(len(list)-1)); err != nil {
		t.Fatal(err)
	}
	s, r := repaired(t, dir)
	wantLost(t, r)
	if got := answers(t, s, rounds); got != want {
		t.Errorf("it says\n%s", got)
	}
}

// TestWhatACrashLeavesOfTablesIsNoDamage opens what is on the disk at each moment of a flush and of a compaction:
// tables that are not listed yet, and tables that are not listed any more.
func TestWhatACrashLeavesOfTablesIsNoDamage(t *testing.T) {
	const rounds = 3
	killed := manyTables(t, rounds)
	flushing := openIn(t, image(t, killed))
	for list := readList(t, killed); bytes.Equal(readList(t, flushing.opts.Dir), list); {
		<-time.After(time.Millisecond)
	}
	flushed := image(t, flushing.opts.Dir)
	removed := image(t, flushed)
	s := openIn(t, removed)
	err := s.db.Update(func(txn *engine.Txn) error { return txn.Delete([]byte("the newest of all is a removal")) })
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	compacting := openIn(t, image(t, removed))
	if err := compacting.db.Flatten(1); err != nil {
		t.Fatal(err)
	}
	compacted := image(t, compacting.opts.Dir)
	want := answers(t, compacting, rounds)
	for name, from := range map[string][2]string{
		"written from a log, not listed yet":        {killed, flushed},
		"made by a compaction, not listed yet":      {removed, compacted},
		"replaced by a compaction, not removed yet": {compacted, removed},
	} {
		t.Run(name, func(t *testing.T) {
			dir := image(t, from[0])
			added := 0
			for _, path := range glob(t, from[1], "db/*.sst") {
				to := filepath.Join(dir, "db", filepath.Base(path))
				if _, err := os.Stat(to); err == nil {
					continue
				}
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(to, b, 0o600); err != nil {
					t.Fatal(err)
				}
				added++
			}
			if added == 0 {
				t.Fatal("there is no such table")
			}
			if got := answers(t, openIn(t, dir), rounds); got != want {
				t.Errorf("it says\n%s", got)
			}
		})
	}
}

func readList(t *testing.T, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "db", manifestFile))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
