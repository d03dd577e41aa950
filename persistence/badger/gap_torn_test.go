package badger

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/persistence"
)

// tornGapStore is gapStore's files with a log beside its table, as a crash leaves them, and what the store answered. A few
// appends stand in the log alone.
func tornGapStore(t *testing.T) (dir, log string, want map[string]string) {
	t.Helper()
	closed, _ := closedGapStore(t)
	s := openIn(t, closed)
	appendTo(t, s, gapStream(gapSessions-1), "s07", 2)
	appendTo(t, s, "wrk/late", "late", 3)
	want, errs := gapDump(s)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	dir = image(t, closed)
	logs, err := filepath.Glob(filepath.Join(dir, "db", "*"+logSuffix))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%q, %v", logs, err)
	}
	return dir, logs[0], want
}

// change rewrites a file.
func change(t *testing.T, path string, do func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, do(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tear writes into a log what a write that a crash cut leaves behind its end.
func tear(b []byte) []byte {
	copy(b[scanLog(b).end:], "half of an entry")
	return b
}

// TestADamagedBlockBesideATornLogRefusesItsStreamsOnly has both come of the same crash.
func TestADamagedBlockBesideATornLogRefusesItsStreamsOnly(t *testing.T) {
	dir, log, want := tornGapStore(t)
	path, block, names := recordBlock(t, dir, 3)
	spoil(t, path, block)
	change(t, log, tear)
	s := openIn(t, dir)
	wantGap(t, s, want, names)
	if end, err := s.Head(context.Background(), "wrk/late"); err != nil || end != 3 {
		t.Errorf("what stood in the log ends at %d, %v", end, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantGap(t, openIn(t, dir), want, names)
}

// TestALogThatLostWhatWasAcknowledgedRefusesTheStoreBesideADamagedBlockToo says both, and changes nothing.
func TestALogThatLostWhatWasAcknowledgedRefusesTheStoreBesideADamagedBlockToo(t *testing.T) {
	dir, log, _ := tornGapStore(t)
	path, block, _ := recordBlock(t, dir, 3)
	spoil(t, path, block)
	change(t, log, func(b []byte) []byte { b[scanLog(b).end-6] ^= 4; return b })
	wantRefused(t, dir, persistence.ErrAckedDataMissing, filepath.Base(path))
}

// wantRefused opens a store in vain: with a reason, and without a trace.
func wantRefused(t *testing.T, dir string, kind error, names ...string) {
	t.Helper()
	before, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), Options{Dir: dir, Ballast: -1})
	if !errors.Is(err, kind) {
		t.Errorf("open: %v", err)
	}
	for _, name := range names {
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
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

// splitLog makes two logs of one: the second begins with the last transaction but some.
func splitLog(t *testing.T, log string, last int) (second string) {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var begins []int // of transactions
	whole := true
	for at, end := logHeader, scanLog(b).end; at < end; {
		e, n := entryAt(b, at)
		if whole {
			begins = append(begins, at)
		}
		whole = e.meta&metaInTxn == 0 || e.meta&metaEndTxn != 0
		at += n
	}
	cut := begins[len(begins)-last]
	rest := append(slices.Clone(b[:logHeader]), b[cut:]...)
	second = filepath.Join(filepath.Dir(log), "00099"+logSuffix)
	if err := os.WriteFile(second, append(rest, make([]byte, len(b)-len(rest))...), 0o600); err != nil {
		t.Fatal(err)
	}
	clear(b[cut:])
	if err := os.WriteFile(log, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return second
}

// TestALogThatOthersFollowIsNotTakenForTorn has the count of commits in the second log, which knows nothing of what the first lost.
func TestALogThatOthersFollowIsNotTakenForTorn(t *testing.T) {
	for name, do := range map[string]func([]byte) []byte{
		"last transaction":  func(b []byte) []byte { b[scanLog(b).end-6] ^= 4; return b },
		"first transaction": func(b []byte) []byte { b[logHeader+30] ^= 4; return b },
	} {
		t.Run(name, func(t *testing.T) {
			dir, log, _ := tornGapStore(t)
			splitLog(t, log, 2)
			change(t, log, do)
			wantRefused(t, dir, persistence.ErrCorrupt, filepath.Base(log))
			if r, err := Repair(context.Background(), Options{Dir: dir, Ballast: -1}, RepairOptions{Accept: true, Now: fixedNow}); err != nil || len(r.Damaged) == 0 {
				t.Errorf("repair: %+v, %v", r, err)
			}
			if f := findings(t, openIn(t, dir)); len(f) > 0 {
				t.Errorf("the repaired store has findings %+v", f)
			}
		})
	}
	t.Run("nothing is lost", func(t *testing.T) {
		dir, log, want := tornGapStore(t)
		splitLog(t, log, 2)
		change(t, log, tear)
		unharmed(t, openIn(t, dir), want)
	})
}
