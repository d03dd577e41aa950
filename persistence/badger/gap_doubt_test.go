package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// blockOf is the block of a store's only table that holds both of two keys.
func blockOf(t *testing.T, dir string, key []byte, begins ...[]byte) (path string, table *tableFile, block int) {
	t.Helper()
	path, table = blocksOf(t, dir, key)
	for i := range table.blocks {
		entries, err := table.block(i)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(begins, func(begin []byte) bool {
			return !slices.ContainsFunc(entries, func(e tableEntry) bool { return bytes.HasPrefix(e.key, begin) })
		}) {
			return path, table, i
		}
	}
	t.Fatalf("no block holds %q", begins)
	return "", nil, 0
}

// smallSession is a session whose cursors stand last and whose records stand first, so that they share a block.
func smallSession(t *testing.T, s *Store) {
	t.Helper()
	appendTo(t, s, "cnv/zz", "zz", 3)
	if _, err := s.Append(context.Background(), persistence.Batch{
		Lease: mustClaim(t, s, "wrk/zz"), Expect: 1, Session: "zz", Records: []*messages.Record{textRecord("wrk/zz", 1)},
		Timers: []persistence.TimerOp{{ID: "t1", Due: fixedNow(), Value: []byte("wake up")}},
	}); err != nil {
		t.Fatal(err)
	}
}

func mustClaim(t *testing.T, s *Store, stream string) persistence.Lease {
	t.Helper()
	l, err := s.Claim(context.Background(), stream, "test")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestADamagedBlockOfASmallSessionRefusesThatSessionOnly has a block with the cursors of a session and the records that they lead to, of which
// nothing else tells.
func TestADamagedBlockOfASmallSessionRefusesThatSessionOnly(t *testing.T) {
	key := func(o *Options) { o.EncryptionKey = bytes.Repeat([]byte("k"), 32) }
	for name, change := range map[string][]func(*Options){"plain": nil, "encrypted": {key}} {
		t.Run(name, func(t *testing.T) { trySmallSession(t, change...) })
	}
}

func trySmallSession(t *testing.T, change ...func(*Options)) {
	t.Helper()
	ctx := context.Background()
	o := Options{Dir: t.TempDir(), Ballast: -1}
	for _, c := range change {
		c(&o)
	}
	s := openIn(t, o.Dir, change...)
	gapStore(t, s)
	smallSession(t, s)
	want, _ := gapDump(s)
	delete(want, "streams")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path, table, block := blockOf(t, o.Dir, o.EncryptionKey, nameKey(nil, tagCursor, "zz", 1), nameKey(nil, tagCommit, "cnv/zz", 1))
	spoil(t, path, table.blocks[block])
	s = openIn(t, o.Dir, change...)
	wantSmall(t, s, want)
	l, err := s.Claim(ctx, "wrk/new", "test")
	if err == nil {
		_, err = s.Append(ctx, persistence.Batch{Lease: l, Expect: 1, Session: "new", Records: []*messages.Record{textRecord("wrk/new", 1)}})
	}
	if err != nil {
		t.Errorf("a new session: %v", err)
	}
	if err := errors.Join(s.db.Flatten(1), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, o.Dir, change...)
	wantSmall(t, s, want)
	if n, err := s.Head(ctx, "wrk/new"); n != 1 || err != nil {
		t.Errorf("the new session's stream ends at %d, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Repair(ctx, o, RepairOptions{Accept: true, Now: fixedNow})
	if err != nil || !slices.ContainsFunc(r.Lost, func(l Loss) bool { return strings.HasSuffix(l.Stream, lostName(o)) && l.From == 1 }) {
		t.Fatalf("repair: %+v, %v", r, err)
	}
	s = openIn(t, o.Dir, change...)
	if f := findings(t, s); len(f) > 0 {
		t.Errorf("the repaired store has findings %+v", f)
	}
	unharmed(t, s, want)
	if _, err := s.Append(ctx, persistence.Batch{Lease: mustClaim(t, s, "cnv/zz"), Expect: 1, Session: "zz", Records: []*messages.Record{textRecord("cnv/zz", 1)}}); err != nil {
		t.Errorf("after the repair: %v", err)
	}
}

// lostName is how a repair names a stream of which nothing is left.
func lostName(o Options) string {
	w := &watermark{hashed: o.EncryptionKey != nil}
	return w.tabled("cnv/zz")
}

// wantSmall checks that the small session is refused by name, and that everybody else is served.
func wantSmall(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	ctx := context.Background()
	unharmed(t, s, want)
	for i := range gapSessions {
		if _, err := s.Append(ctx, persistence.Batch{Lease: mustClaim(t, s, gapStream(i)), Expect: 21, Session: fmt.Sprintf("s%02d", i)}); err != nil {
			t.Errorf("%s does not go on: %v", gapStream(i), err)
		}
	}
	none := func(persistence.Entry) error { return nil }
	_, head := s.Head(ctx, "cnv/zz")
	_, claim := s.Claim(ctx, "cnv/zz", "test")
	_, cursor := s.Cursor(ctx, "zz")
	for what, err := range map[string]error{
		"read cnv/zz": s.Read(ctx, "cnv/zz", 1, none), "head cnv/zz": head, "claim cnv/zz": claim, "session zz": s.ReadSession(ctx, "zz", 0, none), "cursor of zz": cursor,
	} {
		_, name, _ := strings.Cut(what, "zz")
		if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), "zz"+name) || !strings.Contains(err.Error(), "troupe repair") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if l, err := s.Claim(ctx, "wrk/zz", "test"); err == nil {
		if _, err := s.Append(ctx, persistence.Batch{Lease: l, Expect: 2, Session: "zz", Records: []*messages.Record{textRecord("wrk/zz", 2)}}); !errors.Is(err, persistence.ErrCorrupt) {
			t.Errorf("a record of the session is given a cursor: %v", err)
		}
	}
	if _, err := s.Backup(ctx, &bytes.Buffer{}, nil); !errors.Is(err, persistence.ErrCorrupt) {
		t.Errorf("backup: %v", err)
	}
	due := 0
	if err := s.Due(ctx, fixedNow(), func(persistence.Timer) error { due++; return nil }); err != nil || due != 1 {
		t.Errorf("%d timers, %v", due, err)
	}
}

// TestNoBlockOfASmallStoreIsPassedOver damages each block of a store with little in it, deletes and trims among it: what it answers is
// right, or refused.
func TestNoBlockOfASmallStoreIsPassedOver(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := openIn(t, dir)
	for _, session := range []string{"a", "b", "c"} {
		appendTo(t, s, "ses/"+session, session, 4)
		appendTo(t, s, "wrk/"+session, session, 20)
		appendTo(t, s, "ses/"+session, session, 1)
	}
	if err := s.Delete(ctx, persistence.Deletion{Session: "b"}); err != nil {
		t.Fatal(err)
	}
	l := mustClaim(t, s, "wrk/c")
	for _, seq := range []uint64{9, 10} {
		if err := s.PutSnapshot(ctx, l, &messages.Snapshot{Seq: seq, State: []byte("a fold")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Trim(ctx, l, 9); err != nil {
		t.Fatal(err)
	}
	want := smallDump(t, s, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path, table := blocksOf(t, dir, nil)
	opened := 0
	for i, p := range table.blocks {
		dir := image(t, dir)
		spoil(t, strings.Replace(path, filepath.Dir(filepath.Dir(path)), dir, 1), p)
		s, err := Open(ctx, Options{Dir: dir, Ballast: -1})
		if err != nil {
			if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(path)) {
				t.Errorf("block %d: %v", i, err)
			}
			continue
		}
		opened++
		got := smallDump(t, s, want)
		if fmt.Sprint(got) == fmt.Sprint(want) && (s.lost == nil || len(s.lost.Second) == 0) {
			t.Errorf("block %d: nothing is missing", i)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d blocks", opened, len(table.blocks))
	if opened == 0 {
		t.Error("it never opened")
	}
}

// smallDump is what a store answers; where want is given, each answer is that one or a refusal.
func smallDump(t *testing.T, s *Store, want map[string]string) map[string]string {
	t.Helper()
	ctx, got := context.Background(), map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		var text strings.Builder
		add := func(e persistence.Entry) error { fmt.Fprintln(&text, e.Cursor, e.Record); return nil }
		ask := func(what string, err error) {
			switch {
			case err == nil && want != nil && text.String() != want[what]:
				t.Errorf("%s: %q instead of %q", what, text.String(), want[what])
			case err != nil && (want == nil || !errors.Is(err, persistence.ErrCorrupt)):
				t.Errorf("%s: %v", what, err)
			case err != nil:
				text.WriteString(err.Error())
			}
			got[what] = text.String()
			text.Reset()
		}
		from := uint64(1)
		if name == "c" {
			from = 10
		}
		ask("ses/"+name, s.Read(ctx, "ses/"+name, 1, add))
		ask("wrk/"+name, s.Read(ctx, "wrk/"+name, from, add))
		err := s.ReadSession(ctx, name, 0, add)
		if trimmed := (*persistence.TrimmedError)(nil); errors.As(err, &trimmed) {
			fmt.Fprintln(&text, "from", trimmed.First)
			err = s.ReadSession(ctx, name, trimmed.First-1, add)
		}
		ask("session "+name, err)
		end, err := s.Cursor(ctx, name)
		fmt.Fprint(&text, end)
		ask("cursor of "+name, err)
	}
	return got
}
