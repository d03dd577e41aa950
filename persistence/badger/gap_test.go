package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/persistence"
)

// gapSessions is how many sessions gapStore fills, each with a stream of its own.
const gapSessions = 8

func gapStream(i int) string { return fmt.Sprintf("wrk/%02d", i) }

// gapStore fills a store with sessions that take some blocks each.
func gapStore(t testing.TB, s *Store) {
	t.Helper()
	for i := range gapSessions {
		l, err := s.Claim(context.Background(), gapStream(i), "test")
		if err != nil {
			t.Fatal(err)
		}
		b := persistence.Batch{Lease: l, Expect: 1, Session: fmt.Sprintf("s%02d", i)}
		for n := range 10 {
			b.Records = nil
			for k := range 2 {
				r := textRecord(gapStream(i), b.Expect+uint64(k))
				r.TurnId = noise(uint32(100*i+10*n+k), 600)
				b.Records = append(b.Records, r)
			}
			if _, err := s.Append(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			b.Expect += 2
		}
	}
}

// noise does not compress much.
func noise(seed uint32, size int) string {
	var b strings.Builder
	for n := byte(0); b.Len() < size; n++ {
		fmt.Fprintf(&b, "%08x", sum(seed, []byte{n}))
	}
	return b.String()
}

// gapDump asks a store for every stream and every session.
func gapDump(s *Store) (map[string]string, map[string]error) {
	ctx, got, errs := context.Background(), map[string]string{}, map[string]error{}
	for i := range gapSessions {
		stream, session := gapStream(i), fmt.Sprintf("s%02d", i)
		var b strings.Builder
		add := func(e persistence.Entry) error { fmt.Fprintf(&b, "%d %v\n", e.Cursor, e.Record); return nil }
		errs["stream "+stream] = s.Read(ctx, stream, 1, add)
		got["stream "+stream] = b.String()
		b.Reset()
		errs["session "+session] = s.ReadSession(ctx, session, 0, add)
		got["session "+session] = b.String()
		head, err := s.Head(ctx, stream)
		got["head "+stream], errs["head "+stream] = fmt.Sprint(head), err
		cursor, err := s.Cursor(ctx, session)
		got["cursor "+session], errs["cursor "+session] = fmt.Sprint(cursor), err
	}
	var names []string
	errs["streams"] = s.Streams(ctx, "", func(name string) error { names = append(names, name); return nil })
	got["streams"] = fmt.Sprint(names)
	maps.DeleteFunc(errs, func(_ string, err error) bool { return err == nil })
	return got, errs
}

// closedGapStore is the files of a closed store, and what it answers.
func closedGapStore(t testing.TB, change ...func(*Options)) (dir string, want map[string]string) {
	t.Helper()
	dir = t.TempDir()
	s := openIn(t, dir, change...)
	gapStore(t, s)
	want, errs := gapDump(s)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, want
}

// blocksOf are the blocks of the only table of a store.
func blocksOf(t testing.TB, dir string, key []byte) (string, *tableFile) {
	t.Helper()
	in, err := inspect(filepath.Join(dir, "db"), key)
	if err != nil || len(in.tables) != 1 {
		t.Fatalf("%d tables, %v", len(in.tables), err)
	}
	for id, m := range in.tables {
		path := filepath.Join(dir, "db", tableName(id))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		table, err := readTable(b, m, in.keys)
		if err != nil {
			t.Fatal(err)
		}
		return path, table
	}
	return "", nil
}

// spoil flips a bit in the middle of a block.
func spoil(t testing.TB, path string, p blockPlace) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[p.off+p.len/2] ^= 4
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// touched are the streams that a block held records of, and whether everything in it is told of elsewhere: a commit by its cursor, a cursor
// by its commit.
func touched(t testing.TB, table *tableFile, i int) (names []string, told bool) {
	t.Helper()
	entries, err := table.block(i)
	if err != nil {
		t.Fatal(err)
	}
	told = true
	leads := map[string]bool{} // where the cursors lead
	for _, e := range entries {
		key := e.key[:len(e.key)-8]
		name, n, _ := splitName(key)
		switch key[0] {
		case tagCursor:
			leads[fmt.Sprint(strings.Replace(name, "s", "wrk/", 1), n)] = true // seqs and cursors are the same here
		case tagCommit:
			told = told && !leads[fmt.Sprint(name, n)]
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		default:
			told = false
		}
	}
	return names, told
}

// wantGap checks that a store refuses some streams and their sessions on every path, and that all others are as they were.
func wantGap(t *testing.T, s *Store, want map[string]string, refused []string) {
	t.Helper()
	ctx := context.Background()
	got, errs := gapDump(s)
	for i := range gapSessions {
		stream, session := gapStream(i), fmt.Sprintf("s%02d", i)
		_, claimed := s.Claim(ctx, stream, "test")
		if !slices.Contains(refused, stream) {
			for _, what := range []string{"stream " + stream, "head " + stream, "session " + session, "cursor " + session} {
				if errs[what] != nil || got[what] != want[what] {
					t.Errorf("%s: %v, %d bytes of %d", what, errs[what], len(got[what]), len(want[what]))
				}
			}
			if claimed != nil {
				t.Errorf("claim of %s: %v", stream, claimed)
			}
			continue
		}
		for what, err := range map[string]error{
			"read": errs["stream "+stream], "head": errs["head "+stream], "claim": claimed, "read of the session": errs["session "+session],
		} {
			if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), stream) || !strings.Contains(err.Error(), ".sst") || !strings.Contains(err.Error(), "troupe repair") {
				t.Errorf("%s of %s: %v", what, stream, err)
			}
		}
		for _, what := range []string{"stream " + stream, "session " + session} {
			if !strings.HasPrefix(want[what], got[what]) {
				t.Errorf("%s gave out other data before the error", what)
			}
		}
	}
	if got["streams"] != want["streams"] {
		t.Errorf("streams %s, want %s", got["streams"], want["streams"])
	}
	if _, err := s.Backup(ctx, &bytes.Buffer{}, nil); len(refused) > 0 != errors.Is(err, persistence.ErrCorrupt) {
		t.Errorf("backup: %v", err)
	}
	named := map[string]bool{}
	for _, f := range findings(t, s) {
		if f.Stream != "" && !slices.Contains(refused, f.Stream) {
			t.Errorf("finding %+v", f)
		}
		named[f.Stream] = true
	}
	for _, stream := range refused {
		if !named[stream] {
			t.Errorf("verify says nothing of %s", stream)
		}
	}
}

// TestADamagedBlockOfRecordsRefusesItsStreamsOnly damages each block of a table in turn, and looks again after a second
// opening, after all tables were written anew, and after a repair.
func TestADamagedBlockOfRecordsRefusesItsStreamsOnly(t *testing.T) {
	key := func(o *Options) { o.EncryptionKey = bytes.Repeat([]byte("k"), 32) }
	for name, change := range map[string][]func(*Options){"plain": nil, "encrypted": {key}} {
		t.Run(name, func(t *testing.T) {
			dir, want := closedGapStore(t, change...)
			var o Options
			for _, c := range change {
				c(&o)
			}
			_, table := blocksOf(t, dir, o.EncryptionKey)
			for i := range table.blocks {
				if names, told := touched(t, table, i); told && (i < 3 || i > len(table.blocks)-5 || !testing.Short() && o.EncryptionKey == nil) {
					t.Run(fmt.Sprintf("block %d", i), func(t *testing.T) { tryGap(t, image(t, dir), i, want, names, change...) })
				}
			}
		})
	}
}

func tryGap(t *testing.T, dir string, block int, want map[string]string, names []string, change ...func(*Options)) {
	t.Helper()
	o := Options{Dir: dir, Ballast: -1}
	for _, c := range change {
		c(&o)
	}
	path, table := blocksOf(t, dir, o.EncryptionKey)
	spoil(t, path, table.blocks[block])
	damaged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := openIn(t, dir, change...)
	wantGap(t, s, want, names)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(path + damagedSuffix); err != nil || !bytes.Equal(kept, damaged) {
		t.Errorf("the damaged table is not kept: %v", err)
	}
	s = openIn(t, dir, change...)
	wantGap(t, s, want, names)
	if err := errors.Join(s.db.Flatten(1), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir, change...)
	wantGap(t, s, want, names)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Repair(context.Background(), o, RepairOptions{Accept: true, Now: fixedNow})
	if err != nil {
		t.Fatal(err)
	}
	var lost []string
	for _, l := range r.Lost {
		lost = append(lost, l.Stream)
	}
	if !slices.Equal(lost, names) || len(r.Damaged) != len(names) || len(names) > 0 && !strings.Contains(r.Damaged[0], filepath.Base(path)) {
		t.Errorf("lost %q of %q, damaged %q", lost, names, r.Damaged)
	}
	s = openIn(t, dir, change...)
	if f := findings(t, s); len(f) > 0 {
		t.Errorf("the repaired store has findings %+v", f)
	}
	got, errs := gapDump(s)
	for what, text := range want {
		stream := strings.TrimPrefix(what, "stream ")
		switch {
		case errs[what] != nil:
			t.Errorf("after the repair, %s: %v", what, errs[what])
		case what == "stream "+stream && !strings.HasPrefix(text, got[what]), what == "stream "+stream && !slices.Contains(names, stream) && text != got[what]:
			t.Errorf("after the repair, %s is another", what)
		}
	}
	for _, l := range r.Lost {
		if claimed, err := s.Claim(context.Background(), l.Stream, "test"); err != nil || claimed.Next != l.From {
			t.Errorf("%s goes on at %d, %v, want %d", l.Stream, claimed.Next, err, l.From)
		}
	}
	if _, err := s.Backup(context.Background(), &bytes.Buffer{}, nil); err != nil {
		t.Errorf("backup after the repair: %v", err)
	}
}

// lastBlock is the n of the last such block for recordBlock.
const lastBlock = -1

// recordBlock is the n-th block of a store's table that holds what is told of elsewhere, and whose records they are.
func recordBlock(t *testing.T, dir string, n int) (string, blockPlace, []string) {
	t.Helper()
	path, table := blocksOf(t, dir, nil)
	var places []blockPlace
	var whose [][]string
	for i := range table.blocks {
		if names, told := touched(t, table, i); told {
			places, whose = append(places, table.blocks[i]), append(whose, names)
		}
	}
	if len(places) <= n {
		t.Fatalf("%d such blocks", len(places))
	}
	if n == lastBlock {
		n = len(places) - 1
	}
	return path, places[n], whose[n]
}

// TestACrashWhileABlockIsLeftOutComesToTheSameEnd looks at what a kill leaves: before the database is opened, and after.
func TestACrashWhileABlockIsLeftOutComesToTheSameEnd(t *testing.T) {
	dir, want := closedGapStore(t)
	path, block, names := recordBlock(t, dir, 3)
	spoil(t, path, block)
	cut := &Store{opts: Options{Dir: dir}.withDefaults(), log: Options{}.withDefaults().Logger}
	if err := cut.prepare(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "db", filepath.Base(path)+damagedSuffix)); err != nil {
		t.Fatal(err)
	}
	s := openIn(t, image(t, dir))
	wantGap(t, s, want, names)
	killed := image(t, s.opts.Dir)
	if _, err := os.Stat(filepath.Join(killed, asideDir)); err == nil {
		t.Error("what was set aside stays")
	}
	wantGap(t, openIn(t, killed), want, names)
}

// TestARefusalBehindALeftOutBlockChangesNothing has acknowledged commits missing besides.
func TestARefusalBehindALeftOutBlockChangesNothing(t *testing.T) {
	dir, _ := closedGapStore(t)
	path, block, _ := recordBlock(t, dir, 3)
	spoil(t, path, block)
	mark, _, err := openWatermark(filepath.Join(dir, "db.watermark"), false)
	if err == nil {
		err = errors.Join(mark.write(1000), mark.slots.close())
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), Options{Dir: dir, Ballast: -1}); !errors.Is(err, persistence.ErrAckedDataMissing) {
		t.Fatalf("open: %v", err)
	}
	after, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	delete(before.content, "db.lock")
	delete(after.content, "db.lock")
	if !maps.EqualFunc(before.content, after.content, bytes.Equal) {
		t.Errorf("before %v, after %v", slices.Sorted(maps.Keys(before.content)), slices.Sorted(maps.Keys(after.content)))
	}
}
