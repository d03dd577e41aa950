package persistencetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

func duplicateKey(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	a, b := write(t, s, "wrk/a", "s1"), write(t, s, "wrk/b", "s1")
	first := a.batch(1)
	first.Keys = []persistence.Key{{Name: "in/1", Value: []byte("answer")}, {Name: "in/empty"}}
	_, err := s.Append(ctx, first)
	must(t, err)
	for _, name := range []string{"in/1", "in/empty"} {
		again := b.batch(1)
		b.next--
		again.Keys = []persistence.Key{{Name: "in/fresh"}, {Name: name}}
		again.Index = []persistence.IndexOp{{Key: "i"}}
		_, err = s.Append(ctx, again)
		wantErr(t, "append with key "+name+" again", err, persistence.ErrDuplicate)
	}
	twice := b.batch(1)
	b.next--
	twice.Keys = []persistence.Key{{Name: "x"}, {Name: "x"}}
	_, err = s.Append(ctx, twice)
	wantErr(t, "append with one key twice", err, persistence.ErrDuplicate)
	_, err = s.Lookup(ctx, "in/fresh")
	wantErr(t, "look up a key of a refused append", err, persistence.ErrNotFound)
	value, err := s.Lookup(ctx, "in/1")
	must(t, err)
	if string(value) != "answer" {
		t.Fatalf("key holds %q", value)
	}
	wantStream(t, s, "wrk/b", 0)
	wantCursors(t, s, "s1", 0, 1)

	// Of two in the queue at once exactly the first wins.
	answers := make(chan error, 2)
	for _, w := range []*writer{a, b} {
		race := w.batch(1)
		race.Keys = []persistence.Key{{Name: "in/race"}}
		s.Enqueue(func(_ persistence.Receipt, err error) { answers <- err }, race)
	}
	must(t, <-answers)
	wantErr(t, "second append of a key", <-answers, persistence.ErrDuplicate)
	wantStream(t, s, "wrk/a", 2)
	wantStream(t, s, "wrk/b", 0)
}

func index(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	w := write(t, s, "ses/a", "s1")
	put := func(ops ...persistence.IndexOp) {
		t.Helper()
		b := w.batch(0) // an append may change nothing but the index
		b.Index = ops
		_, err := s.Append(ctx, b)
		must(t, err)
	}
	list := func(prefix string) (out []string) {
		t.Helper()
		must(t, s.Index(ctx, prefix, func(k string, v []byte) error { out = append(out, k+"="+string(v)); return nil }))
		return out
	}
	op := func(k, v string) persistence.IndexOp { return persistence.IndexOp{Key: k, Value: []byte(v)} }
	put(op("ses/b", "1"), op("ses/a", "2"), op("apr/x", "3"), op("ses/a\x00z", "4"), op("ses", "5"))
	wantList(t, "sessions", list("ses/"), []string{"ses/a=2", "ses/a\x00z=4", "ses/b=1"})
	wantList(t, "all", list(""), []string{"apr/x=3", "ses=5", "ses/a=2", "ses/a\x00z=4", "ses/b=1"})
	put(op("ses/a", "new"), persistence.IndexOp{Key: "ses/b", Delete: true}, persistence.IndexOp{Key: "none", Delete: true})
	put(op("apr/x", "gone"), persistence.IndexOp{Key: "apr/x", Delete: true})
	wantList(t, "after a change", list(""), []string{"ses=5", "ses/a=new", "ses/a\x00z=4"})
	wantStream(t, s, "ses/a", 0)
	if su.reopen != nil {
		s = su.reopen(t, s)
		wantList(t, "after reopening", list(""), []string{"ses=5", "ses/a=new", "ses/a\x00z=4"})
	}
}

func timers(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	w := write(t, s, "wrk/a", "s1")
	base := time.Unix(1_700_000_000, 123_456_789)
	set := func(ops ...persistence.TimerOp) {
		t.Helper()
		b := w.batch(1)
		b.Timers = ops
		_, err := s.Append(ctx, b)
		must(t, err)
	}
	due := func(at time.Time) (out []string) {
		t.Helper()
		must(t, s.Due(ctx, at, func(tm persistence.Timer) error {
			out = append(out, fmt.Sprintf("%s@%d=%s", tm.ID, tm.Due.Sub(base), tm.Value))
			return nil
		}))
		return out
	}
	at := func(id string, after time.Duration, value string) persistence.TimerOp {
		return persistence.TimerOp{ID: id, Due: base.Add(after), Value: []byte(value)}
	}
	set(at("c", 30, "3"), at("a", 20, "1"), at("b", 20, "2"), at("past", -time.Hour, ""))
	wantList(t, "just before", due(base.Add(19)), []string{fmt.Sprintf("past@%d=", -time.Hour)})
	wantList(t, "at the time", due(base.Add(20)), []string{fmt.Sprintf("past@%d=", -time.Hour), "a@20=1", "b@20=2"})
	set(at("a", 40, "later"), persistence.TimerOp{ID: "past", Delete: true}, persistence.TimerOp{ID: "none", Delete: true})
	set(at("b", 10, "sooner"))
	wantList(t, "moved", due(base.Add(time.Hour)), []string{"b@10=sooner", "c@30=3", "a@40=later"})
	wantList(t, "before all", due(time.Unix(0, 0)), nil)
	set(at("ancient", -1<<62, "x"), at("far", 1<<62, "y"))
	wantList(t, "extremes", due(base), []string{fmt.Sprintf("ancient@%d=x", -1<<62)})
}

func largeBodies(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	w := write(t, s, "wrk/a", "s1")
	sizes := []int{0, 1, persistence.BlobThreshold, persistence.BlobThreshold + 1, 700 << 10, 3 << 20, 1}
	b := w.batch(len(sizes))
	for i, n := range sizes {
		b.Records[i].Body = pattern(n, byte(i))
	}
	_, err := s.Append(ctx, b)
	must(t, err)
	for i, n := range sizes {
		if len(b.Records[i].Body) != n || len(b.Records[i].BodyBlob) != 0 {
			t.Fatalf("the writer's record %d was changed: body of %d bytes, blob %x", i, len(b.Records[i].Body), b.Records[i].BodyBlob)
		}
	}
	if su.reopen != nil {
		s = su.reopen(t, s)
	}
	for i, e := range read(t, s, "wrk/a", 1) {
		if !bytes.Equal(e.Record.Body, pattern(sizes[i], byte(i))) {
			t.Fatalf("body %d of %d bytes came back with %d", i, sizes[i], len(e.Record.Body))
		}
		if moved := len(e.Record.BodyBlob) != 0; moved != (sizes[i] > persistence.BlobThreshold) {
			t.Fatalf("body of %d bytes: kept as a blob is %v", sizes[i], moved)
		}
	}
	if n := len(readSession(t, s, "s1", 0)); n != len(sizes) {
		t.Fatalf("session gives %d records, want %d", n, len(sizes))
	}
}

// pattern is content of n bytes that a compressor cannot make small.
func pattern(n int, seed byte) []byte {
	out := make([]byte, 0, n+sha256.Size)
	sum := sha256.Sum256([]byte{seed})
	for len(out) < n {
		out = append(out, sum[:]...)
		sum = sha256.Sum256(sum[:])
	}
	return out[:n]
}

func largeAppend(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	a, b := write(t, s, "wrk/a", "s1"), write(t, s, "wrk/b", "s1")
	const n, size = 60, 60 << 10
	for range 2 {
		ba, bb := a.batch(n), b.batch(n)
		for i := range n {
			ba.Records[i].Body, bb.Records[i].Body = pattern(size, byte(i)), pattern(size, byte(i+n))
		}
		_, err := s.Append(ctx, ba, bb)
		must(t, err)
	}
	if su.reopen != nil {
		s = su.reopen(t, s)
	}
	for stream, seed := range map[string]int{"wrk/a": 0, "wrk/b": n} {
		entries := read(t, s, stream, n+1)
		if len(entries) != n {
			t.Fatalf("%s: %d records from %d on, want %d", stream, len(entries), n+1, n)
		}
		for i, e := range entries {
			if e.Record.Seq != uint64(n+1+i) || !bytes.Equal(e.Record.Body, pattern(size, byte(seed+i))) {
				t.Fatalf("%s seq %d came back wrong", stream, e.Record.Seq)
			}
		}
	}
	wantVerified(t, s)
}

func blobs(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	data := pattern(1<<20+7, 1)
	blob := persistence.Blob{Hash: sha256.Sum256(data), Data: data}
	_, err := s.Blob(ctx, blob.Hash)
	wantErr(t, "read a blob that was not put", err, persistence.ErrNotFound)
	w := write(t, s, "wrk/a", "")
	refer := w.batch(1)
	w.next--
	refer.Records[0].Body, refer.Records[0].BodyBlob = nil, blob.Hash[:]
	_, err = s.Append(ctx, refer)
	wantErr(t, "append that refers to a blob that is not there", err, persistence.ErrNotFound)

	for range 2 {
		must(t, s.PutBlob(ctx, blob))
	}
	with := pattern(100, 2)
	refer.Records = append(refer.Records, &messages.Record{})
	hash := sha256.Sum256(with)
	refer.Records[1].BodyBlob = hash[:]
	refer.Blobs = []persistence.Blob{{Hash: hash, Data: with}}
	_, err = s.Append(ctx, refer)
	must(t, err)
	got, err := s.Blob(ctx, blob.Hash)
	must(t, err)
	entries := read(t, s, "wrk/a", 1)
	if !bytes.Equal(got, data) || !bytes.Equal(entries[0].Record.Body, data) || !bytes.Equal(entries[1].Record.Body, with) {
		t.Fatal("content came back changed")
	}
	// A record as it was read can be appended again, as a fork does.
	w.next = 3
	copied := w.batch(2)
	copied.Records = []*messages.Record{entries[0].Record, entries[1].Record}
	_, err = s.Append(ctx, copied)
	must(t, err)
	if e := read(t, s, "wrk/a", 3); !bytes.Equal(e[0].Record.Body, data) || !bytes.Equal(e[1].Record.Body, with) {
		t.Fatal("copied records came back changed")
	}
}

func tooLarge(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	w := write(t, s, "wrk/a", "s1")
	refuse := func(what string, change func(*persistence.Batch)) {
		t.Helper()
		b := w.batch(1)
		w.next--
		change(&b)
		_, err := s.Append(ctx, b)
		wantErr(t, what, err, persistence.ErrTooLarge)
	}
	part := pattern(64<<10, 1)
	refuse("records over the limit", func(b *persistence.Batch) {
		b.Records = records("wrk/a", 1, persistence.MaxAppend/len(part)+1)
		for _, r := range b.Records {
			r.Body = part
		}
	})
	refuse("index over the limit", func(b *persistence.Batch) {
		b.Index = []persistence.IndexOp{{Key: "i", Value: make([]byte, persistence.MaxSecondary)}}
	})
	refuse("body over a blob's limit", func(b *persistence.Batch) {
		b.Records[0].Body = make([]byte, persistence.MaxBlob+1)
	})
	refuse("too many records", func(b *persistence.Batch) {
		b.Records = records("wrk/a", 1, persistence.MaxOps+1)
	})
	err := s.PutBlob(ctx, persistence.Blob{Data: make([]byte, persistence.MaxBlob+1)})
	wantErr(t, "blob over the limit", err, persistence.ErrTooLarge)
	wantStream(t, s, "wrk/a", 0)
	w.append(t, 1)
	wantStream(t, s, "wrk/a", 1)
}

func nonsense(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	w := write(t, s, "wrk/a", "s1")
	long := string(bytes.Repeat([]byte("x"), persistence.MaxKey+1))
	for what, change := range map[string]func(*persistence.Batch){
		"stream with a NUL":  func(b *persistence.Batch) { b.Lease.Stream = "a\x00b" },
		"stream without":     func(b *persistence.Batch) { b.Lease.Stream = "" },
		"session not UTF-8":  func(b *persistence.Batch) { b.Session = "a\xff" },
		"turn not UTF-8":     func(b *persistence.Batch) { b.Records[0].TurnId = "a\xff" },
		"endless session":    func(b *persistence.Batch) { b.Session = long },
		"seq 0":              func(b *persistence.Batch) { b.Expect = 0 },
		"nil record":         func(b *persistence.Batch) { b.Records[0] = nil },
		"short hash":         func(b *persistence.Batch) { b.Records[0].Body, b.Records[0].BodyBlob = nil, []byte("x") },
		"blob of other hash": func(b *persistence.Batch) { b.Blobs = []persistence.Blob{{Data: []byte("x")}} },
		"empty index key":    func(b *persistence.Batch) { b.Index = []persistence.IndexOp{{}} },
		"endless key":        func(b *persistence.Batch) { b.Keys = []persistence.Key{{Name: long}} },
		"empty timer id":     func(b *persistence.Batch) { b.Timers = []persistence.TimerOp{{}} },
	} {
		b := w.batch(1)
		w.next--
		change(&b)
		_, err := s.Append(ctx, b)
		wantErr(t, what, err, persistence.ErrInvalid)
	}
	_, err := s.Append(ctx)
	wantErr(t, "append of nothing", err, persistence.ErrInvalid)
	_, err = s.Append(ctx, w.batch(1), w.batch(1))
	wantErr(t, "append to one stream twice", err, persistence.ErrInvalid)
	_, err = s.Claim(ctx, "a\x00b", "test")
	wantErr(t, "claim of a stream with a NUL", err, persistence.ErrInvalid)
	wantErr(t, "blob of another hash", s.PutBlob(ctx, persistence.Blob{Data: []byte("x")}), persistence.ErrInvalid)
	wantStream(t, s, "wrk/a", 0)
}

func snapshots(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	w := write(t, s, "wrk/a", "s1")
	_, err := s.Snapshot(ctx, "wrk/a", 0)
	wantErr(t, "snapshot before any", err, persistence.ErrNotFound)
	w.append(t, 9)
	state := func(seq uint64) []byte { return pattern(int(seq)*200<<10, byte(seq)) }
	put := func(seq uint64) {
		t.Helper()
		must(t, s.PutSnapshot(ctx, w.lease, &messages.Snapshot{Stream: "wrk/a", Seq: seq, Schema: 2, State: state(seq)}))
	}
	want := func(seq uint64) {
		t.Helper()
		snap, err := s.Snapshot(ctx, "wrk/a", 0)
		must(t, err)
		if snap.Seq != seq || snap.Schema != 2 || snap.Stream != "wrk/a" || !bytes.Equal(snap.State, state(seq)) {
			t.Fatalf("snapshot at %d of %d bytes, want seq %d", snap.Seq, len(snap.State), seq)
		}
	}
	for _, seq := range []uint64{1, 2, 5, 9} {
		put(seq)
		want(seq)
	}
	put(3) // late, and older than what is there
	want(9)
	put(9)
	want(9)
	for below, seq := range map[uint64]uint64{10: 9, 9: 5, 6: 5} {
		snap, err := s.Snapshot(ctx, "wrk/a", below)
		must(t, err)
		if snap.Seq != seq || !bytes.Equal(snap.State, state(seq)) {
			t.Fatalf("snapshot below %d is at %d, want seq %d", below, snap.Seq, seq)
		}
	}
	_, err = s.Snapshot(ctx, "wrk/a", 5)
	wantErr(t, "snapshot below both that are kept", err, persistence.ErrNotFound)
	_, err = s.Snapshot(ctx, "wrk/", 0)
	wantErr(t, "snapshot of another stream", err, persistence.ErrNotFound)
	if su.reopen != nil {
		s = su.reopen(t, s)
		want(9)
	}
}

func snapshotGuards(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	old := write(t, s, "wrk/a", "s1")
	old.append(t, 2)
	w := write(t, s, "wrk/a", "s1")
	snap := &messages.Snapshot{Seq: 2}
	wantErr(t, "snapshot with an older lease", s.PutSnapshot(ctx, old.lease, snap), persistence.ErrFenced)
	wantErr(t, "snapshot of what is not there yet", s.PutSnapshot(ctx, w.lease, &messages.Snapshot{Seq: 3}), persistence.ErrConflict)
	wantErr(t, "snapshot of another stream", s.PutSnapshot(ctx, w.lease, &messages.Snapshot{Stream: "wrk/b", Seq: 1}), persistence.ErrInvalid)
	wantErr(t, "no snapshot", s.PutSnapshot(ctx, w.lease, nil), persistence.ErrInvalid)
	_, err := s.Snapshot(ctx, "wrk/a", 0)
	wantErr(t, "snapshot after refusals", err, persistence.ErrNotFound)
	must(t, s.PutSnapshot(ctx, w.lease, snap))
}

func wantVerified(t *testing.T, s persistence.Store) persistence.Summary {
	t.Helper()
	sum, err := s.Verify(context.Background(), nil, func(f persistence.Finding) { t.Errorf("found %+v", f) })
	must(t, err)
	return sum
}

func verify(t *testing.T, su suite) {
	s := su.open(t)
	a, b := write(t, s, "wrk/a", "s1"), write(t, s, "ses/b", "s1")
	a.append(t, 3)
	b.append(t, 2)
	write(t, s, "wrk/a", "s1").append(t, 1)
	if sum := wantVerified(t, s); sum.Streams != 2 || sum.Records != 6 {
		t.Fatalf("verified %+v, want 2 streams with 6 records", sum)
	}
	sum, err := s.Verify(context.Background(), []string{"wrk/a"}, func(f persistence.Finding) { t.Errorf("found %+v", f) })
	must(t, err)
	if sum.Streams != 1 || sum.Records != 4 {
		t.Fatalf("verified %+v, want 1 stream with 4 records", sum)
	}
}

func closed(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	if s.Health() != nil || s.Durability() == "" || s.Boot() == 0 {
		t.Fatalf("open store: health %v, durability %q, boot %d", s.Health(), s.Durability(), s.Boot())
	}
	w := write(t, s, "wrk/a", "s1")
	const queued = 50
	answers := make(chan error, queued)
	for range queued {
		s.Enqueue(func(_ persistence.Receipt, err error) { answers <- err }, w.batch(1))
	}
	must(t, s.Close())
	must(t, s.Close())
	for range queued {
		must(t, <-answers) // what was taken before is made
	}
	_, claimErr := s.Claim(ctx, "wrk/b", "test")
	_, appendErr := s.Append(ctx, w.batch(1))
	_, headErr := s.Head(ctx, "wrk/a")
	_, cursorErr := s.Cursor(ctx, "s1")
	_, lookupErr := s.Lookup(ctx, "k")
	_, blobErr := s.Blob(ctx, [32]byte{})
	_, snapErr := s.Snapshot(ctx, "wrk/a", 0)
	_, verifyErr := s.Verify(ctx, nil, func(persistence.Finding) {})
	for doing, err := range map[string]error{
		"claim": claimErr, "append": appendErr, "head": headErr, "cursor": cursorErr, "lookup": lookupErr, "blob": blobErr,
		"snapshot": snapErr, "verify": verifyErr, "health": s.Health(),
		"read":         s.Read(ctx, "wrk/a", 1, func(persistence.Entry) error { return nil }),
		"read session": s.ReadSession(ctx, "s1", 0, func(persistence.Entry) error { return nil }),
		"streams":      s.Streams(ctx, "", func(string) error { return nil }),
		"index":        s.Index(ctx, "", func(string, []byte) error { return nil }),
		"due":          s.Due(ctx, time.Now(), func(persistence.Timer) error { return nil }),
		"put blob":     s.PutBlob(ctx, persistence.Blob{Hash: sha256.Sum256(nil)}),
		"put snapshot": s.PutSnapshot(ctx, w.lease, &messages.Snapshot{}),
	} {
		wantErr(t, doing, err, persistence.ErrClosed)
	}
	s.Enqueue(func(_ persistence.Receipt, err error) { answers <- err }, w.batch(1))
	wantErr(t, "enqueue", <-answers, persistence.ErrClosed)
	if su.reopen != nil {
		wantStream(t, su.reopen(t, s), "wrk/a", queued)
	}
}
