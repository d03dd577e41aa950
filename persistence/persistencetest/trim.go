package persistencetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

func snapshotAt(t testing.TB, s persistence.Store, w *writer, seq uint64) {
	t.Helper()
	must(t, s.PutSnapshot(context.Background(), w.lease, &messages.Snapshot{Seq: seq, State: fmt.Append(nil, seq)}))
}

// wantTrimmed checks that a stream begins at a seq and ends at another, and its session at a cursor.
func wantTrimmed(t testing.TB, s persistence.Store, stream string, first, last uint64) {
	t.Helper()
	for from := range first {
		var trimmed *persistence.TrimmedError
		err := s.Read(context.Background(), stream, from, func(persistence.Entry) error { t.Error("trimmed records are read"); return nil })
		if !errors.Is(err, persistence.ErrTrimmed) || !errors.As(err, &trimmed) || trimmed.First != first {
			t.Fatalf("read %s from %d: %v, want that it begins at %d", stream, from, err, first)
		}
	}
	next := first
	for _, e := range read(t, s, stream, first) {
		if e.Record.Seq != next || string(e.Record.Body) != string(body(stream, next)) {
			t.Fatalf("%s at %d: seq %d with body %q", stream, next, e.Record.Seq, e.Record.Body)
		}
		next++
	}
	head, err := s.Head(context.Background(), stream)
	must(t, err)
	if next != last+1 || head != last {
		t.Fatalf("%s ends at %d when read and at %d when asked, want %d", stream, next-1, head, last)
	}
}

func trim(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	w, other := write(t, s, "wrk/a", "s1"), write(t, s, "wrk/b", "s1")
	w.append(t, 3)     // cursors 1 to 3
	other.append(t, 2) // 4 and 5
	w.append(t, 4)     // 6 to 9
	w.append(t, 1)     // 10
	snapshotAt(t, s, w, 5)
	for _, upto := range []uint64{0, 2, 5, 1} { // the last goes back: nothing comes back
		must(t, s.Trim(ctx, w.lease, upto))
	}
	check := func(s persistence.Store, last, cursor uint64) {
		t.Helper()
		wantTrimmed(t, s, "wrk/a", 6, last)
		wantStream(t, s, "wrk/b", 2)
		var trimmed *persistence.TrimmedError
		err := s.ReadSession(context.Background(), "s1", 6, func(persistence.Entry) error { return nil })
		if !errors.As(err, &trimmed) || trimmed.First != 8 {
			t.Fatalf("the session from a cursor that was trimmed: %v, want that it begins at 8", err)
		}
		wantCursors(t, s, "s1", 7, cursor)
		if names := listStreams(t, s, ""); len(names) != 2 {
			t.Fatalf("streams %q", names)
		}
		wantVerified(t, s)
	}
	check(s, 8, 10)
	w.append(t, 2)
	check(s, 10, 12)
	snap, err := s.Snapshot(ctx, "wrk/a", 0)
	must(t, err)
	if snap.GetSeq() != 5 {
		t.Fatalf("the snapshot is at %d", snap.GetSeq())
	}
	if su.reopen != nil {
		s = su.reopen(t, s)
		check(s, 10, 12)
		w = write(t, s, "wrk/a", "s1")
		if w.next != 11 {
			t.Fatalf("after reopening %d is next", w.next)
		}
		w.append(t, 1)
		check(s, 11, 13)
	}
}

func trimAll(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	w := write(t, s, "wrk/a", "s1")
	w.append(t, 3)
	w.append(t, 3)
	snapshotAt(t, s, w, 6)
	must(t, s.Trim(ctx, w.lease, 6))
	wantTrimmed(t, s, "wrk/a", 7, 6)
	wantCursors(t, s, "s1", 6, 6)
	w = write(t, s, "wrk/a", "s1")
	if r := w.append(t, 2); r.First != 7 || w.next != 9 {
		t.Fatalf("after the trim an append got cursor %d and seq %d", r.First, w.next-2)
	}
	wantTrimmed(t, s, "wrk/a", 7, 8)
	wantVerified(t, s)
}

func trimGuards(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	old := write(t, s, "wrk/a", "s1")
	old.append(t, 9)
	wantErr(t, "trim without a snapshot", s.Trim(ctx, old.lease, 1), persistence.ErrConflict)
	snapshotAt(t, s, old, 4)
	snapshotAt(t, s, old, 8)
	wantErr(t, "trim beyond the older snapshot", s.Trim(ctx, old.lease, 5), persistence.ErrConflict)
	w := write(t, s, "wrk/a", "s1")
	wantErr(t, "trim with an older lease", s.Trim(ctx, old.lease, 2), persistence.ErrFenced)
	wantStream(t, s, "wrk/a", 9)
	wantErr(t, "trim of no name", s.Trim(ctx, persistence.Lease{}, 1), persistence.ErrInvalid)
	must(t, s.Trim(ctx, w.lease, 4))
	wantTrimmed(t, s, "wrk/a", 5, 9)
	must(t, s.Close())
	wantErr(t, "trim of a closed store", s.Trim(ctx, w.lease, 4), persistence.ErrClosed)
	wantErr(t, "delete in a closed store", s.Delete(ctx, persistence.Deletion{Session: "s1"}), persistence.ErrClosed)
}

// deletable fills a store with a session that has some of everything, and one that shares a blob with it.
func deletable(t *testing.T, s persistence.Store) (shared, own [32]byte) {
	t.Helper()
	both, mine := pattern(100<<10, 1), pattern(900<<10, 2)
	ses, wrk := write(t, s, "ses/1", "s1"), write(t, s, "wrk/1", "s1")
	ses.append(t, 2)
	b := wrk.batch(2)
	b.Records[0].Body, b.Records[1].Body = both, mine
	b.Index = []persistence.IndexOp{{Key: "ses/s1", Value: []byte("x")}, {Key: "ses/s10", Value: []byte("y")}}
	b.Keys = []persistence.Key{{Name: "k1"}, {Name: "k2"}}
	b.Timers = []persistence.TimerOp{{ID: "t1", Due: time.Unix(1, 0)}, {ID: "t2", Due: time.Unix(1, 0)}}
	_, err := s.Append(context.Background(), b)
	must(t, err)
	snapshotAt(t, s, wrk, 1)
	other := write(t, s, "wrk/2", "s2")
	b = other.batch(2)
	b.Records[0].Body = both
	_, err = s.Append(context.Background(), b)
	must(t, err)
	return sha256.Sum256(both), sha256.Sum256(mine)
}

func remove(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	shared, own := deletable(t, s)
	lease := write(t, s, "wrk/1", "s1")
	must(t, s.Delete(ctx, persistence.Deletion{
		Session: "s1", Streams: []string{"wrk/none"}, Index: []string{"ses/s1"}, Keys: []string{"k1"}, Timers: []string{"t1"},
	}))
	_, err := s.Append(ctx, lease.batch(1))
	wantErr(t, "append to a stream that was deleted", err, persistence.ErrFenced)
	check := func(s persistence.Store) {
		t.Helper()
		wantList(t, "streams", listStreams(t, s, ""), []string{"wrk/2"})
		for _, stream := range []string{"ses/1", "wrk/1"} {
			wantStream(t, s, stream, 0)
		}
		wantCursors(t, s, "s1", 0, 0)
		_, err := s.Snapshot(context.Background(), "wrk/1", 0)
		wantErr(t, "snapshot of a deleted stream", err, persistence.ErrNotFound)
		var keys []string
		must(t, s.Index(context.Background(), "", func(key string, _ []byte) error { keys = append(keys, key); return nil }))
		wantList(t, "index", keys, []string{"ses/s10"})
		_, err = s.Lookup(context.Background(), "k1")
		wantErr(t, "key of a deleted session", err, persistence.ErrNotFound)
		_, err = s.Lookup(context.Background(), "k2")
		must(t, err)
		wantList(t, "timers", dueAfter(t, s, time.Unix(1, 0)), []string{"t2=@0"})
		_, err = s.Blob(context.Background(), own)
		wantErr(t, "blob that nobody refers to", err, persistence.ErrNotFound)
		_, err = s.Blob(context.Background(), shared)
		must(t, err)
		if e := read(t, s, "wrk/2", 1); len(e) != 2 || sha256.Sum256(e[0].Record.Body) != shared {
			t.Fatal("another session's records are not whole")
		}
		wantVerified(t, s)
	}
	check(s)
	must(t, s.Delete(ctx, persistence.Deletion{Session: "s1"})) // again: there is nothing
	if su.reopen != nil {
		s = su.reopen(t, s)
		check(s)
	}
	w := write(t, s, "wrk/1", "s1")
	if w.next != 1 {
		t.Fatalf("a deleted stream begins anew at %d", w.next)
	}
	w.append(t, 3)
	wantStream(t, s, "wrk/1", 3)
	wantCursors(t, s, "s1", 0, 3)
	wantVerified(t, s)
}

// A stream that two sessions have counted leaves a hole in the one that stays.
func removeShared(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	a, b := write(t, s, "wrk/a", "s1"), write(t, s, "wrk/b", "s2")
	a.append(t, 2)
	a.session = "s2"
	b.append(t, 1) // cursor 1 of s2
	a.append(t, 2) // 2 and 3
	b.append(t, 1) // 4
	must(t, s.Delete(ctx, persistence.Deletion{Session: "s1"}))
	wantStream(t, s, "wrk/a", 0)
	var got []uint64
	for _, e := range readSession(t, s, "s2", 0) {
		got = append(got, e.Cursor)
	}
	if fmt.Sprint(got) != "[1 4]" {
		t.Fatalf("the other session has cursors %v", got)
	}
	wantVerified(t, s)
	if r := b.append(t, 1); r.First != 5 {
		t.Fatalf("the other session goes on at %d", r.First)
	}
}

func removeMeanwhile(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	const sessions = 8
	for i := range sessions {
		write(t, s, fmt.Sprint("wrk/", i), fmt.Sprint("s", i)).append(t, 5)
	}
	begun, stop, stopped := make(chan struct{}), make(chan struct{}), make(chan int)
	w := write(t, s, "wrk/x", "sx")
	go func() {
		n := 0
		defer func() { stopped <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			b := w.batch(1)
			b.Records[0].Body = pattern(70<<10, byte(n%3))
			if _, err := s.Append(ctx, b); err != nil {
				t.Errorf("append beside deletions: %v", err)
				return
			}
			if n++; n == 1 {
				close(begun)
			}
		}
	}()
	<-begun
	for i := range sessions {
		must(t, s.Delete(ctx, persistence.Deletion{Session: fmt.Sprint("s", i)}))
	}
	close(stop)
	n := <-stopped
	wantList(t, "streams", listStreams(t, s, ""), []string{"wrk/x"})
	if got := len(read(t, s, "wrk/x", 1)); got != n {
		t.Fatalf("%d records of %d", got, n)
	}
	wantVerified(t, s)
}
