package badger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

func textRecord(stream string, seq uint64) *messages.Record {
	return &messages.Record{RecordId: make([]byte, 16), Type: 1, Body: fmt.Appendf(nil, "%s#%d", stream, seq)}
}

func wantLocked(t *testing.T, err error, dir string, pid int) {
	t.Helper()
	if !errors.Is(err, persistence.ErrLocked) {
		t.Fatalf("opening a held directory: %v", err)
	}
	for _, part := range []string{dir, fmt.Sprintf("process %d", pid)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// fill appends n records one by one.
func appendTo(t testing.TB, s persistence.Store, stream, session string, n int) {
	t.Helper()
	l, err := s.Claim(context.Background(), stream, "test")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		_, err := s.Append(context.Background(), persistence.Batch{
			Lease: l, Expect: l.Next, Session: session, Records: []*messages.Record{textRecord(stream, l.Next)},
		})
		if err != nil {
			t.Fatal(err)
		}
		l.Next++
	}
}

// image copies a store that is open, as a crash at this moment would leave it: the log is a
// shared mapping, whose content a read sees.
func image(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// flip changes one bit in the last place where a file holds a text.
func flip(t *testing.T, path, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndex(string(b), text)
	if at < 0 {
		t.Fatalf("%s does not hold %q", path, text)
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	found = slices.DeleteFunc(found, saysFormat)
	if err != nil || len(found) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	return found
}

func TestImageOfARunningStoreOpensWhole(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	for n := range 5 {
		appendTo(t, s, "wrk/a", "s", 7)
		crashed := openIn(t, image(t, dir))
		head, err := crashed.Head(context.Background(), "wrk/a")
		if err != nil || head != uint64(7*(n+1)) {
			t.Fatalf("crash after %d records leaves %d, %v", 7*(n+1), head, err)
		}
		if _, err := crashed.Verify(context.Background(), nil, func(f persistence.Finding) { t.Errorf("%+v", f) }); err != nil {
			t.Fatal(err)
		}
		if err := crashed.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedLogThatDropsAcknowledgedCommitsDoesNotOpen(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	appendTo(t, s, "wrk/a", "s", 20)
	damaged := image(t, dir)
	flip(t, glob(t, damaged, "db/*.mem")[0], "wrk/a#10")
	for range 2 { // and not at the second attempt either
		_, err := Open(context.Background(), Options{Dir: damaged, Ballast: -1})
		if !errors.Is(err, persistence.ErrAckedDataMissing) {
			t.Fatalf("opening a damaged store: %v", err)
		}
	}
	repaired := openIn(t, damaged, func(o *Options) { o.AcceptLoss = true })
	head, err := repaired.Head(context.Background(), "wrk/a")
	if err != nil || head != 9 {
		t.Errorf("after the repair the stream ends at %d, %v, want 9", head, err)
	}
	appendTo(t, repaired, "wrk/a", "s", 1)
	if err := repaired.Close(); err != nil {
		t.Fatal(err)
	}
	openIn(t, damaged)
}

func TestWatermarkNeverLeadsAndNeverGoesBack(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		s := openIn(t, dir)
		appendTo(t, s, "wrk/a", "s", 3)
		acked, err := s.acknowledged()
		if err != nil {
			t.Fatal(err)
		}
		have, err := readCount(s.db, metaCommits)
		if err != nil || acked > have || acked+1 < have {
			t.Errorf("watermark %d, database %d, %v", acked, have, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "db.watermark")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	torn := append([]byte{}, good...)
	torn[0] ^= 1
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openIn(t, dir).Close(); err != nil { // the other slot reads
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", len(good))), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), Options{Dir: dir, Ballast: -1}); !errors.Is(err, persistence.ErrCorrupt) {
		t.Errorf("opening with an unreadable watermark: %v", err)
	}
}

// A crash while the database makes its log leaves an empty file, and so may one while it opens after that.
func TestEmptyLogsOfCrashesAreTakenAway(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	appendTo(t, s, "wrk/a", "s", 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	logs := []string{filepath.Join(dir, "db", "00042.mem"), filepath.Join(dir, "db", "00043.mem"), filepath.Join(dir, "db", "00044.mem")}
	leave := func() {
		for _, name := range logs {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave()
	o := engineOptions(filepath.Join(dir, "db"), Options{}.withDefaults(), &engineLog{log: Options{}.withDefaults().Logger})
	if db, err := engine.Open(o); err == nil || !strings.Contains(err.Error(), "Create a new file") {
		if err == nil {
			_ = db.Close()
		}
		t.Fatalf("the database opens a directory with empty logs: %v; what takes them away can go", err)
	}
	leave()
	s = openIn(t, dir)
	if head, err := s.Head(context.Background(), "wrk/a"); err != nil || head != 3 {
		t.Errorf("head is %d, %v", head, err)
	}
}

// TestALogOfAnEarlierReleaseIsOpened, whose tables in memory were larger: what does not fit ends the process.
func TestALogOfAnEarlierReleaseIsOpened(t *testing.T) {
	o := Options{}.withDefaults()
	from, dir := filepath.Join(t.TempDir(), "db"), filepath.Join(t.TempDir(), "db")
	db, err := engine.Open(engineOptions(from, o, &engineLog{log: o.Logger}).WithMemTableSize(memTableBefore).WithSyncWrites(false))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w := db.NewWriteBatch()
	const entries = 640_000 // more than a table of today holds, and less than one of before
	for n := range entries {
		if err := w.Set(fmt.Appendf(nil, "key %08d", n), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if logs := glob(t, from, "*.mem"); len(logs) != 1 {
		t.Fatalf("there are %d logs, and one was to be nearly full", len(logs))
	}
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil { // of a process that is killed here
		t.Fatal(err)
	}
	again, err := engine.Open(engineOptions(dir, o, &engineLog{log: o.Logger}))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, n := range []int{0, entries / 2, entries - 1} {
		if err := again.View(func(tx *engine.Txn) error { _, err := tx.Get(fmt.Appendf(nil, "key %08d", n)); return err }); err != nil {
			t.Errorf("entry %d: %v", n, err)
		}
	}
}

func TestLogsSayHowLargeTheTableIs(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "00001.mem")
	if got := memTableOf(dir); got != memTable {
		t.Errorf("without logs it is %d", got)
	}
	for size, want := range map[int64]int64{0: memTable, 2 * memTable: memTable, 2 * memTableBefore: memTableBefore, 20 << 20: memTableBefore} {
		f, err := os.Create(log)
		if err == nil {
			err = errors.Join(f.Truncate(size), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := memTableOf(dir); got != want {
			t.Errorf("with a log of %d bytes it is %d", size, got)
		}
	}
}

// An empty log is what a crash leaves, or all that is left of one that held something: the watermark tells.
func TestALogThatLostEverythingIsMissed(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	s := openIn(t, from)
	appendTo(t, s, "wrk/a", "s", 3)
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil { // of a process that is killed here
		t.Fatal(err)
	}
	log := glob(t, dir, "db/*.mem")[0]
	if err := os.Truncate(log, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Dir: dir, Ballast: -1}); !errors.Is(err, persistence.ErrAckedDataMissing) {
		t.Errorf("opened: %v", err)
	}
	if info, err := os.Stat(log); err != nil || info.Size() != 0 {
		t.Errorf("the refusal left %v, %v", info, err)
	}
}

func TestDamagedTableDoesNotOpen(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	appendTo(t, s, "wrk/a", "s", 50)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	table := glob(t, dir, "db/*.sst")[0]
	b, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-40] ^= 4 // its index
	if err := os.WriteFile(table, b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), Options{Dir: dir, Ballast: -1})
	if !errors.Is(err, persistence.ErrCorrupt) && !errors.Is(err, persistence.ErrUnavailable) {
		t.Fatalf("opening a store with a damaged table: %v", err)
	}
}

func TestBallastIsThereWhileTheStoreIsOpen(t *testing.T) {
	dir := t.TempDir()
	const size = 1 << 20
	for range 2 {
		s := openIn(t, dir, func(o *Options) { o.Ballast = size })
		info, err := os.Stat(filepath.Join(dir, "db.ballast"))
		if err != nil || info.Size() != size {
			t.Fatalf("ballast: %v, %v", info, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
