package persistencetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

func readBack(t *testing.T, su suite) {
	s := su.open(t)
	w := write(t, s, "wrk/a", "s1")
	w.append(t, 1)
	w.append(t, 3)
	w.append(t, 2)
	wantStream(t, s, "wrk/a", 6)
	wantStream(t, s, "wrk/none", 0)
	e := read(t, s, "wrk/a", 4)[0]
	r := e.Record
	if r.Type != 7 || r.Schema != 1 || r.AtUnixMs != 1_700_000_000_000 || r.TurnId != "turn" || r.Epoch != w.lease.Epoch || len(r.RecordId) != 16 {
		t.Fatalf("record came back as %v", r)
	}
}

func readFrom(t *testing.T, su suite) {
	s := su.open(t)
	w := write(t, s, "wrk/a", "s1")
	for range 4 {
		w.append(t, 3)
	}
	for from := uint64(0); from <= 13; from++ {
		entries := read(t, s, "wrk/a", from)
		first := max(from, 1)
		if want := int(12 - (first - 1)); len(entries) != max(want, 0) {
			t.Fatalf("read from %d gives %d records, want %d", from, len(entries), want)
		}
		if len(entries) > 0 && entries[0].Record.Seq != first {
			t.Fatalf("read from %d begins at %d", from, entries[0].Record.Seq)
		}
		wantCursors(t, s, "s1", min(from, 12), 12)
	}
}

func fencing(t *testing.T, su suite) {
	s := su.open(t)
	old := write(t, s, "wrk/a", "s1")
	old.append(t, 1)
	newer := write(t, s, "wrk/a", "s1")
	if newer.lease.Epoch <= old.lease.Epoch || newer.lease.Next != 2 {
		t.Fatalf("second claim got epoch %d and next %d after epoch %d", newer.lease.Epoch, newer.lease.Next, old.lease.Epoch)
	}
	_, err := s.Append(context.Background(), old.batch(1))
	wantErr(t, "append with the older lease", err, persistence.ErrFenced)
	forged := newer.batch(1)
	newer.next--
	forged.Lease.Epoch++
	_, err = s.Append(context.Background(), forged)
	wantErr(t, "append with an epoch that nobody was given", err, persistence.ErrFenced)
	newer.append(t, 1)
	wantStream(t, s, "wrk/a", 2)
}

func unclaimed(t *testing.T, su suite) {
	s := su.open(t)
	_, err := s.Append(context.Background(), persistence.Batch{
		Lease: persistence.Lease{Stream: "wrk/a", Epoch: 1 << 40, Next: 1}, Expect: 1, Records: records("wrk/a", 1, 1),
	})
	wantErr(t, "append without a claim", err, persistence.ErrFenced)
	wantStream(t, s, "wrk/a", 0)
}

func conflict(t *testing.T, su suite) {
	s := su.open(t)
	w := write(t, s, "wrk/a", "s1")
	w.append(t, 2)
	for _, expect := range []uint64{1, 2, 4, 1 << 60} {
		b := persistence.Batch{
			Lease: w.lease, Expect: expect, Session: "s1", Records: records("wrk/a", expect, 1),
			Keys: []persistence.Key{{Name: "k"}}, Index: []persistence.IndexOp{{Key: "i", Value: []byte("x")}},
		}
		_, err := s.Append(context.Background(), b)
		wantErr(t, fmt.Sprintf("append at %d", expect), err, persistence.ErrConflict)
	}
	_, err := s.Lookup(context.Background(), "k")
	wantErr(t, "look up the key of a refused append", err, persistence.ErrNotFound)
	wantStream(t, s, "wrk/a", 2)
	wantCursors(t, s, "s1", 0, 2)
	w.append(t, 1)
	wantStream(t, s, "wrk/a", 3)
}

func cursors(t *testing.T, su suite) {
	s := su.open(t)
	a, b, other := write(t, s, "wrk/a", "s1"), write(t, s, "ses/b", "s1"), write(t, s, "wrk/c", "s2")
	for i, step := range []struct {
		w           *writer
		n           int
		first, last uint64
	}{{a, 2, 1, 2}, {b, 1, 3, 3}, {other, 3, 1, 3}, {a, 1, 4, 4}, {b, 4, 5, 8}, {other, 1, 4, 4}} {
		r := step.w.append(t, step.n)
		if r.First != step.first || r.Last != step.last {
			t.Fatalf("step %d: receipt %+v, want %d to %d", i, r, step.first, step.last)
		}
	}
	wantCursors(t, s, "s1", 0, 8)
	wantCursors(t, s, "s1", 5, 8)
	wantCursors(t, s, "s2", 0, 4)
	wantCursors(t, s, "none", 0, 0)
}

func cursorsReopened(t *testing.T, su suite) {
	s := su.open(t)
	write(t, s, "wrk/a", "s1").append(t, 3)
	write(t, s, "ses/b", "s1").append(t, 2)
	s = su.again(t, s)
	wantCursors(t, s, "s1", 0, 5)
	w := write(t, s, "wrk/a", "s1")
	if r := w.append(t, 1); r.First != 6 || w.next != 5 {
		t.Fatalf("after reopening an append got cursor %d and seq %d, want 6 and 4", r.First, w.next-1)
	}
	wantStream(t, s, "wrk/a", 4)
	wantCursors(t, s, "s1", 2, 6)
}

func epochsReopened(t *testing.T, su suite) {
	s := su.open(t)
	old := write(t, s, "wrk/a", "")
	old.append(t, 1)
	boot := s.Boot()
	s = su.again(t, s)
	if s.Boot() <= boot {
		t.Fatalf("boot %d after boot %d", s.Boot(), boot)
	}
	_, err := s.Append(context.Background(), old.batch(1))
	wantErr(t, "append with a lease of the opening before", err, persistence.ErrFenced)
	w := write(t, s, "wrk/a", "")
	if w.lease.Epoch <= old.lease.Epoch {
		t.Fatalf("epoch %d after reopening, %d before", w.lease.Epoch, old.lease.Epoch)
	}
	w.append(t, 1)
	wantStream(t, s, "wrk/a", 2)
}

func together(t *testing.T, su suite) {
	s := su.open(t)
	ses, wrk := write(t, s, "ses/1", "s1"), write(t, s, "wrk/1", "s1")
	r, err := s.Append(context.Background(), ses.batch(2), wrk.batch(3))
	must(t, err)
	if r.First != 1 || r.Last != 5 {
		t.Fatalf("receipt %+v, want 1 to 5", r)
	}
	wantStream(t, s, "ses/1", 2)
	wantStream(t, s, "wrk/1", 3)
	wantCursors(t, s, "s1", 0, 5)

	good, bad := ses.batch(1), wrk.batch(1)
	bad.Expect++
	_, err = s.Append(context.Background(), good, bad)
	wantErr(t, "append of a good and a bad batch", err, persistence.ErrConflict)
	wantStream(t, s, "ses/1", 2)
	wantStream(t, s, "wrk/1", 3)
	wantCursors(t, s, "s1", 0, 5)
	ses.next, wrk.next = 3, 4
	_, err = s.Append(context.Background(), wrk.batch(1), ses.batch(1))
	must(t, err)
	wantCursors(t, s, "s1", 0, 7)
}

func noSession(t *testing.T, su suite) {
	s := su.open(t)
	w := write(t, s, "sys", "")
	if r := w.append(t, 2); r != (persistence.Receipt{}) {
		t.Fatalf("receipt %+v without a session", r)
	}
	if e := read(t, s, "sys", 1)[0]; e.Cursor != 0 || e.Session != "" {
		t.Fatalf("entry has cursor %d of session %q", e.Cursor, e.Session)
	}
}

func enqueueOrder(t *testing.T, su suite) {
	s := su.open(t)
	const streams, each = 4, 60
	type answer struct{ stream, n int }
	answers := make(chan answer, 2*streams*each)
	var wg sync.WaitGroup
	for i := range streams {
		w := write(t, s, fmt.Sprintf("wrk/%d", i), "s")
		wg.Go(func() {
			for n := range each {
				s.Enqueue(func(_ persistence.Receipt, err error) {
					if err != nil {
						t.Errorf("append %d to %d: %v", n, i, err)
					}
					answers <- answer{i, n}
				}, w.batch(1+n%3))
			}
		})
	}
	wg.Wait()
	var next [streams]int
	for range streams * each {
		a := <-answers
		if a.n != next[a.stream] {
			t.Fatalf("stream %d: append %d was answered when %d was next", a.stream, a.n, next[a.stream])
		}
		next[a.stream]++
	}
	must(t, s.Close())
	if len(answers) != 0 {
		t.Fatalf("%d appends were answered twice", len(answers))
	}
}

func concurrent(t *testing.T, su suite) {
	s := su.open(t)
	const writers, each, sessions = 16, 25, 3
	var wg sync.WaitGroup
	for i := range writers {
		w := write(t, s, fmt.Sprintf("wrk/%02d", i), fmt.Sprintf("s%d", i%sessions))
		wg.Go(func() {
			var last uint64
			for n := range each {
				r, err := s.Append(context.Background(), w.batch(1+n%2))
				if err != nil || r.First <= last || r.Last < r.First {
					t.Errorf("writer %d append %d: %+v after %d, %v", i, n, r, last, err)
					return
				}
				last = r.Last
				head, err := s.Head(context.Background(), w.lease.Stream)
				if err != nil || head != w.next-1 {
					t.Errorf("writer %d sees head %d after %d was acknowledged, %v", i, head, w.next-1, err)
				}
			}
		})
	}
	wg.Wait()
	total := make([]uint64, sessions)
	for i := range writers {
		n := uint64(each + each/2)
		wantStream(t, s, fmt.Sprintf("wrk/%02d", i), n)
		total[i%sessions] += n
	}
	for i, n := range total {
		wantCursors(t, s, fmt.Sprintf("s%d", i), 0, n)
	}
}

func streams(t *testing.T, su suite) {
	s := su.open(t)
	for _, name := range []string{"wrk/b", "ses/a", "wrk/a", "sys", "wrk/ab"} {
		write(t, s, name, "").append(t, 2)
	}
	claim(t, s, "wrk/empty")
	wantList(t, "all streams", listStreams(t, s, ""), []string{"ses/a", "sys", "wrk/a", "wrk/ab", "wrk/b"})
	wantList(t, "workers", listStreams(t, s, "wrk/"), []string{"wrk/a", "wrk/ab", "wrk/b"})
	wantList(t, "none", listStreams(t, s, "run/"), nil)
}

func prefixes(t *testing.T, su suite) {
	s := su.open(t)
	// Names around the separators that a store may use, each in the other's neighbourhood.
	names := []string{"a", "a\x01", "a/", "a/b", "a\x7f", "aa", "é"}
	for i, name := range names {
		w := write(t, s, name, "ses"+name)
		for range i + 1 {
			w.append(t, 1)
		}
	}
	for i, name := range names {
		wantStream(t, s, name, uint64(i+1))
		wantCursors(t, s, "ses"+name, 0, uint64(i+1))
	}
}

func callerError(t *testing.T, su suite) {
	s := su.open(t)
	w := write(t, s, "wrk/a", "s1")
	b := w.batch(3)
	b.Index = []persistence.IndexOp{{Key: "i"}}
	_, err := s.Append(context.Background(), b)
	must(t, err)
	own, calls := errors.New("own"), 0
	stop := func(persistence.Entry) error { calls++; return own }
	for doing, err := range map[string]error{
		"read":         s.Read(context.Background(), "wrk/a", 1, stop),
		"read session": s.ReadSession(context.Background(), "s1", 0, stop),
		"streams":      s.Streams(context.Background(), "", func(string) error { calls++; return own }),
		"index":        s.Index(context.Background(), "", func(string, []byte) error { calls++; return own }),
	} {
		if err != own { //nolint:errorlint // the very same error must come back
			t.Errorf("%s returned %v", doing, err)
		}
	}
	if calls != 4 {
		t.Errorf("%d calls, want one for each walk", calls)
	}
}

func contexts(t *testing.T, su suite) {
	s := su.open(t)
	w := write(t, s, "wrk/a", "s1")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.Append(ended, w.batch(1))
	wantErr(t, "append", err, context.Canceled)
	w.next--
	wantErr(t, "read", s.Read(ended, "wrk/a", 1, func(persistence.Entry) error { return nil }), context.Canceled)
	_, err = s.Claim(ended, "wrk/a", "test")
	wantErr(t, "claim", err, context.Canceled)
	_, err = s.Head(ended, "wrk/a")
	wantErr(t, "head", err, context.Canceled)
	w.append(t, 1)
	wantStream(t, s, "wrk/a", 1)
}

func release(t *testing.T, su suite) {
	s := su.open(t)
	r, ok := s.(persistence.Releaser)
	if !ok {
		t.Skip("this store keeps no leases to release")
	}
	old := write(t, s, "wrk/a", "")
	old.append(t, 1)
	w := write(t, s, "wrk/a", "")
	r.Release(old.lease) // not the newest: changes nothing
	w.append(t, 1)
	r.Release(w.lease)
	_, err := s.Append(context.Background(), w.batch(1))
	wantErr(t, "append after the release", err, persistence.ErrFenced)
	_, err = s.Append(context.Background(), persistence.Batch{Lease: old.lease, Expect: 3, Records: []*messages.Record{{}}})
	wantErr(t, "append with the lease before", err, persistence.ErrFenced)
	w = write(t, s, "wrk/a", "")
	w.append(t, 1)
	wantStream(t, s, "wrk/a", 3)
}
