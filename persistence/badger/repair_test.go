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
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

func fixedNow() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// wouldLose asks what a repair would lose, and makes sure that asking changes nothing.
func wouldLose(t *testing.T, dir string) *Repaired {
	t.Helper()
	before, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Repair(context.Background(), Options{Dir: dir, Ballast: -1}, RepairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	delete(after.content, "db.lock")
	delete(before.content, "db.lock")
	if !maps.EqualFunc(before.content, after.content, bytes.Equal) {
		t.Errorf("asking changed the directory: %v before, %v after", slices.Sorted(maps.Keys(before.content)), slices.Sorted(maps.Keys(after.content)))
	}
	return r
}

// repaired repairs a store, checks that the report is what was announced, and opens it.
func repaired(t *testing.T, dir string) (*Store, *Repaired) {
	t.Helper()
	announced := wouldLose(t, dir)
	r, err := Repair(context.Background(), Options{Dir: dir, Ballast: -1}, RepairOptions{Accept: true, Now: fixedNow})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(r.Lost, r.Other, r.Damaged) != fmt.Sprint(announced.Lost, announced.Other, announced.Damaged) {
		t.Errorf("announced %+v, did %+v", announced, r)
	}
	s := openIn(t, dir)
	if f := findings(t, s); len(f) != 0 {
		t.Errorf("a repaired store has findings %+v", f)
	}
	return s, r
}

func wantLost(t *testing.T, r *Repaired, want ...string) {
	t.Helper()
	got := []string{}
	for _, l := range r.Lost {
		got = append(got, fmt.Sprintf("%s %d-%d", l.Stream, l.From, l.To))
	}
	if !slices.Equal(got, want) {
		t.Errorf("lost %q, want %q (%+v)", got, want, r)
	}
}

// wantPrefix checks that a stream holds its first n records.
func wantPrefix(t *testing.T, s *Store, stream string, n uint64) {
	t.Helper()
	var got uint64
	err := s.Read(context.Background(), stream, 1, func(e persistence.Entry) error {
		got++
		if string(e.Record.Body) != fmt.Sprintf("%s#%d", stream, got) {
			t.Errorf("%s seq %d holds %q", stream, got, e.Record.Body)
		}
		return nil
	})
	if err != nil || got != n {
		t.Errorf("%s holds %d records, %v, want %d", stream, got, err, n)
	}
}

func TestARepairOfADamagedLogLosesOnlyTheDamagedStreamsEnd(t *testing.T) {
	s := openIn(t, t.TempDir())
	for range 5 {
		appendTo(t, s, "wrk/a", "one", 4)
		appendTo(t, s, "wrk/b", "one", 4)
		appendTo(t, s, "wrk/c", "two", 4)
	}
	dir := image(t, s.opts.Dir)
	flip(t, glob(t, dir, "db/*.mem")[0], "wrk/a#10")
	if _, err := Open(context.Background(), Options{Dir: dir, Ballast: -1}); !errors.Is(err, persistence.ErrAckedDataMissing) {
		t.Fatalf("the damaged store: %v", err)
	}
	mem, err := os.ReadFile(glob(t, dir, "db/*.mem")[0])
	if err != nil {
		t.Fatal(err)
	}
	again, r := repaired(t, dir)
	wantLost(t, r, "wrk/a 10-20")
	wantPrefix(t, again, "wrk/a", 9)
	wantPrefix(t, again, "wrk/b", 20)
	wantPrefix(t, again, "wrk/c", 20)
	kept, err := os.ReadFile(glob(t, r.Kept, "db/*.mem")[0])
	if err != nil || !bytes.Equal(kept, mem) {
		t.Errorf("the damaged bytes are not kept: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "damaged-20260102T030405Z", "report.json")); err != nil {
		t.Error(err)
	}
	// The session's cursors go on behind what was lost, and what is left is read in order.
	cursor, err := again.Cursor(context.Background(), "one")
	if err != nil || cursor != 40 {
		t.Errorf("the session is at cursor %d, %v, want 40", cursor, err)
	}
	var last, count uint64
	err = again.ReadSession(context.Background(), "one", 0, func(e persistence.Entry) error {
		if e.Cursor <= last {
			t.Errorf("cursor %d after %d", e.Cursor, last)
		}
		last = e.Cursor
		count++
		return nil
	})
	if err != nil || count != 29 {
		t.Errorf("the session reads %d records, %v, want 29", count, err)
	}
	appendTo(t, again, "wrk/a", "one", 1)
	if e, err := again.Head(context.Background(), "wrk/a"); err != nil || e != 10 {
		t.Errorf("head %d, %v", e, err)
	}
}

func TestALogCutShortIsNamedByWhatTheWatermarkKnows(t *testing.T) {
	s := openIn(t, t.TempDir())
	appendTo(t, s, "wrk/a", "one", 5)
	appendTo(t, s, "wrk/b", "two", 7)
	dir := image(t, s.opts.Dir)
	path := glob(t, dir, "db/*.mem")[0]
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[bytes.Index(b, []byte("wrk/b#3")):])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	again, r := repaired(t, dir)
	wantLost(t, r, "wrk/b 3-7")
	if r.Acked <= r.Held {
		t.Errorf("%d acknowledged, %d held", r.Acked, r.Held)
	}
	wantPrefix(t, again, "wrk/a", 5)
	wantPrefix(t, again, "wrk/b", 2)
	if cursor, err := again.Cursor(context.Background(), "two"); err != nil || cursor != 7 {
		t.Errorf("session two is at cursor %d, %v, want 7: lost cursors are not given away again", cursor, err)
	}
}

// manyStreams fills tables with so much that streams have blocks of their own.
func manyStreams(t *testing.T) (dir string, streams int) {
	t.Helper()
	dir = t.TempDir()
	s := openIn(t, dir)
	streams = 40
	for i := range streams {
		stream := fmt.Sprintf("wrk/%02d", i)
		l, err := s.Claim(context.Background(), stream, "test")
		if err != nil {
			t.Fatal(err)
		}
		b := persistence.Batch{Lease: l, Expect: 1, Session: fmt.Sprint("s", i%3)}
		for seq := range uint64(10) {
			r := textRecord(stream, seq+1)
			r.TurnId = strings.Repeat(fmt.Sprintf("%x", sum(uint32(i), []byte{byte(seq)})), 60)
			b.Records = append(b.Records, r)
		}
		for range 3 { // three commits
			next := b
			if _, err := s.Append(context.Background(), next); err != nil {
				t.Fatal(err)
			}
			b.Expect += 10
			b.Records = slices.Clone(b.Records)
			for j := range b.Records {
				r := textRecord(stream, b.Expect+uint64(j))
				r.TurnId = b.Records[j].TurnId
				b.Records[j] = r
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, streams
}

func TestARepairOfADamagedTableLosesOnlyWhatItsBlockHeld(t *testing.T) {
	dir, streams := manyStreams(t)
	table := glob(t, dir, "db/*.sst")[0]
	b, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("wrk/20"))
	if at < 0 {
		t.Fatal("the table does not show the stream")
	}
	b[at+100] ^= 1
	if err := os.WriteFile(table, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if in, err := inspect(filepath.Join(dir, "db"), nil); err != nil || !errors.Is(in.err(), persistence.ErrCorrupt) || !strings.Contains(in.err().Error(), "wrk/") {
		t.Fatalf("the damaged store: %v", err)
	}
	s, r := repaired(t, dir)
	if len(r.Lost) == 0 || len(r.Lost) > 6 {
		t.Errorf("%d streams lost something: %+v", len(r.Lost), r.Lost)
	}
	for i := range streams {
		stream, want := fmt.Sprintf("wrk/%02d", i), uint64(30)
		for _, l := range r.Lost {
			if l.Stream == stream {
				want = l.From - 1
				if l.To != 30 || l.Session != fmt.Sprint("s", i%3) {
					t.Errorf("lost %+v, want up to 30", l)
				}
			}
		}
		wantPrefix(t, s, stream, want)
	}
}

func TestALostListOfTablesCostsNothing(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"removed": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 9) },
		"garbage": func(path string) error { return os.WriteFile(path, []byte("garbage and more"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, streams := manyStreams(t)
			if err := damage(filepath.Join(dir, "db", "MANIFEST")); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(context.Background(), Options{Dir: dir, Ballast: -1}); !refused(err) {
				t.Fatalf("a store without its list of tables: %v", err)
			}
			s, r := repaired(t, dir)
			wantLost(t, r)
			for i := range streams {
				wantPrefix(t, s, fmt.Sprintf("wrk/%02d", i), 30)
			}
		})
	}
}

func TestAStreamThatIsGoneTakesItsIndexEntriesAlong(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	appendTo(t, s, "wrk/a", "one", 2)
	l, err := s.Claim(ctx, "ses/x", "test")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Append(ctx, persistence.Batch{
		Lease: l, Expect: 1, Session: "x", Records: []*messages.Record{textRecord("ses/x", 1)},
		Index: []persistence.IndexOp{{Key: "list/x", Value: []byte("x")}, {Key: "list/a", Value: []byte("a")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := image(t, s.opts.Dir)
	flip(t, glob(t, dir, "db/*.mem")[0], "ses/x#1")
	needs := func(key string) string { return map[string]string{"list/x": "ses/x", "list/a": "wrk/a"}[key] }
	r, err := Repair(ctx, Options{Dir: dir, Ballast: -1}, RepairOptions{Accept: true, Now: fixedNow, Needs: needs})
	if err != nil {
		t.Fatal(err)
	}
	wantLost(t, r, "ses/x 1-1")
	if len(r.Other) != 1 || !strings.Contains(r.Other[0], "list/x") {
		t.Errorf("besides: %q", r.Other)
	}
	var left []string
	err = openIn(t, dir).Index(ctx, "", func(key string, _ []byte) error { left = append(left, key); return nil })
	if err != nil || !slices.Equal(left, []string{"list/a"}) {
		t.Errorf("left %q, %v", left, err)
	}
}

func TestThereIsNothingToRepairInASoundStore(t *testing.T) {
	s := openIn(t, t.TempDir())
	flipStore(t, s)
	killed := image(t, s.opts.Dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for what, dir := range map[string]string{"closed": s.opts.Dir, "killed": killed} {
		if r := wouldLose(t, dir); !r.Nothing() {
			t.Errorf("%s: %+v", what, r)
		}
		r, err := Repair(context.Background(), Options{Dir: dir, Ballast: -1}, RepairOptions{Accept: true})
		if err != nil || !r.Nothing() || r.Kept != "" {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	held := openIn(t, killed)
	if _, err := Repair(context.Background(), Options{Dir: killed, Ballast: -1}, RepairOptions{}); !errors.Is(err, persistence.ErrLocked) {
		t.Errorf("repair of a store in use: %v", err)
	}
	wantPrefix(t, held, "wrk/a", 6)
}

func TestWhatWasDeletedIsNotMissed(t *testing.T) {
	ctx := context.Background()
	for name, key := range map[string][]byte{"plain": nil, "encrypted": bytes.Repeat([]byte("k"), 32)} {
		t.Run(name, func(t *testing.T) {
			s := openIn(t, t.TempDir(), func(o *Options) { o.EncryptionKey = key })
			flipStore(t, s)
			if err := s.Delete(ctx, persistence.Deletion{Session: "one"}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := Repair(ctx, Options{Dir: s.opts.Dir, Ballast: -1, EncryptionKey: key}, RepairOptions{})
			if err != nil || !r.Nothing() {
				t.Errorf("a repair misses %+v, %v", r, err)
			}
		})
	}
}

// Whatever byte is flipped: a repair leaves a store that opens and verifies, and every stream in it is
// a beginning of what it was.
func TestAnyFlippedByteCanBeRepaired(t *testing.T) {
	s := openIn(t, t.TempDir())
	flipStore(t, s)
	killed := image(t, s.opts.Dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	count := 150
	if testing.Short() {
		count = 6
	}
	for _, dir := range []string{s.opts.Dir, killed} {
		base, err := readFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		want, err := expected(base)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range chooseFlips(t, base, count) {
			if problem := repairFlip(t.TempDir(), base, want, f); problem != "" {
				t.Errorf("flip %s: %s", f, problem)
			}
		}
	}
}

func repairFlip(dir string, base files, want map[string]string, f flipAt) string {
	if err := base.flipped(f).write(dir); err != nil {
		return err.Error()
	}
	o := Options{Dir: dir, Ballast: -1}
	r, err := Repair(context.Background(), o, RepairOptions{Accept: true, Now: fixedNow})
	if errors.Is(err, persistence.ErrKey) { // a store whose registry is damaged looks encrypted
		return ""
	}
	if err != nil {
		return err.Error()
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		return "open: " + err.Error()
	}
	defer s.Close()
	if _, err := s.checked(context.Background()); err != nil {
		return "verify: " + err.Error()
	}
	got, errs := dump(s)
	for what, text := range want {
		lost := len(r.Lost)+len(r.Other) > 0
		switch {
		case !strings.HasPrefix(what, "stream "):
		case errs[what] != nil:
			return fmt.Sprintf("%s: %v", what, errs[what])
		case !strings.HasPrefix(text, got[what]) || !lost && got[what] != text:
			return fmt.Sprintf("%s: %q of %q, lost %+v", what, got[what], text, r.Lost)
		}
	}
	return ""
}
