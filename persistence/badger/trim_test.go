package badger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// trimmedStore has a stream that begins at 6 and one beside it.
func trimmedStore(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	appendTo(t, s, "wrk/a", "one", 10)
	appendTo(t, s, "wrk/b", "one", 3)
	l, err := s.Claim(ctx, "wrk/a", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutSnapshot(ctx, l, &messages.Snapshot{Seq: 5, State: []byte("a fold")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Trim(ctx, l, 5); err != nil {
		t.Fatal(err)
	}
}

func wantBegins(t *testing.T, s *Store, stream string, begins, last uint64) {
	t.Helper()
	var trimmed *persistence.TrimmedError
	if err := s.Read(context.Background(), stream, 1, func(persistence.Entry) error { return nil }); !errors.As(err, &trimmed) || trimmed.First != begins {
		t.Errorf("read %s from its beginning: %v", stream, err)
	}
	seq := begins
	err := s.Read(context.Background(), stream, begins, func(e persistence.Entry) error {
		if e.Record.Seq != seq {
			t.Errorf("%s: seq %d, want %d", stream, e.Record.Seq, seq)
		}
		seq++
		return nil
	})
	if err != nil || seq != last+1 {
		t.Errorf("%s reads up to %d, %v, want %d", stream, seq-1, err, last)
	}
}

// count is how many entries of a kind the database holds for a name.
func count(t *testing.T, s *Store, prefix []byte) (n int) {
	t.Helper()
	err := s.view(context.Background(), func(txn *engine.Txn) error {
		return forward(txn, prefix, nil, func(*engine.Item) error { n++; return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestATrimGivesTheRoomBack(t *testing.T) {
	s := openIn(t, t.TempDir())
	trimmedStore(t, s)
	wantBegins(t, s, "wrk/a", 6, 10)
	if n := count(t, s, namePrefix(nil, tagCommit, "wrk/a")); n != 5 {
		t.Errorf("%d commits are left of 5", n)
	}
	if n := count(t, s, namePrefix(nil, tagCursor, "one")); n != 8 {
		t.Errorf("%d cursors are left of 8", n)
	}
}

// A crash behind the mark leaves what was to go: it is not seen, and goes with the next trim.
func TestATrimThatACrashCutIsMade(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	appendTo(t, s, "wrk/a", "one", 10)
	l, err := s.Claim(ctx, "wrk/a", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutSnapshot(ctx, l, &messages.Snapshot{Seq: 7, State: []byte("a fold")}); err != nil {
		t.Fatal(err)
	}
	task := &trimTask{waiting: waiting{make(chan error, 1)}, lease: l, first: 6, session: "one", cursor: 6}
	if err := s.wait(ctx, task, task.answers); err != nil {
		t.Fatal(err)
	}
	again := openIn(t, image(t, s.opts.Dir))
	wantBegins(t, again, "wrk/a", 6, 10)
	if f := findings(t, again); len(f) != 0 {
		t.Errorf("found %+v", f)
	}
	if l, err = again.Claim(ctx, "wrk/a", "test"); err != nil {
		t.Fatal(err)
	}
	if err := again.Trim(ctx, l, 6); err != nil {
		t.Fatal(err)
	}
	if n := count(t, again, namePrefix(nil, tagCommit, "wrk/a")); n != 4 {
		t.Errorf("%d commits are left of 4", n)
	}
}

func TestADeletionThatACrashCutIsFinishedAtTheNextOpening(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	flipStore(t, s)
	plan := &messages.DeletionPlan{}
	d := persistence.Deletion{Session: "one", Index: []string{"ses/one"}}
	if err := s.view(ctx, func(txn *engine.Txn) error { return planDeletion(txn, d, plan) }); err != nil {
		t.Fatal(err)
	}
	value := mustMarshal(t, plan)
	task := &deleteTask{waiting: waiting{make(chan error, 1)}, all: []persistence.Deletion{d}, plan: plan, value: value}
	if err := s.wait(ctx, task, task.answers); err != nil {
		t.Fatal(err)
	}
	wantPrefix(t, s, "wrk/a", 0) // from here on it is gone for everybody
	if _, err := s.Claim(ctx, "wrk/a", "test"); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("claim of a stream that is being deleted: %v", err)
	}
	if f := findings(t, s); len(f) != 0 {
		t.Errorf("found in the middle of a deletion: %+v", f)
	}
	again := openIn(t, image(t, s.opts.Dir))
	for _, prefix := range []string{"ewrk/a\x00", "eses/one\x00", "cone\x00", "x", "f"} {
		if n := count(t, again, []byte(prefix)); n != 0 {
			t.Errorf("%d entries with %q are left", n, prefix)
		}
	}
	wantPrefix(t, again, "wrk/b", 6)
	if f := findings(t, again); len(f) != 0 {
		t.Errorf("found %+v", f)
	}
	appendTo(t, again, "wrk/a", "one", 2)
	wantPrefix(t, again, "wrk/a", 2)
}

// The blobs of a deleted session go also when a crash came behind its records, of which nothing tells any more what they
// referred to; those of others stay.
func TestBlobsThatADeletionLeftAreSweptAtTheNextOpening(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	own, both := bytes.Repeat([]byte("mine"), 300<<10), bytes.Repeat([]byte("both"), persistence.BlobThreshold)
	for stream, bodies := range map[string][][]byte{"wrk/a": {own, both}, "wrk/b": {both}} {
		l, err := s.Claim(ctx, stream, "test")
		if err != nil {
			t.Fatal(err)
		}
		b := persistence.Batch{Lease: l, Expect: l.Next, Session: stream[4:]}
		for _, body := range bodies {
			b.Records = append(b.Records, &messages.Record{Body: body})
		}
		if _, err := s.Append(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	plan := &messages.DeletionPlan{Sessions: []string{"a"}, Streams: []string{"wrk/a"}}
	task := &deleteTask{waiting: waiting{make(chan error, 1)}, plan: plan, value: mustMarshal(t, plan)}
	if err := s.wait(ctx, task, task.answers); err != nil {
		t.Fatal(err)
	}
	if err := s.purge(ctx, func(p *purger) error { return p.planned(plan, map[[32]byte]bool{}) }); err != nil {
		t.Fatal(err)
	}
	again := openIn(t, image(t, s.opts.Dir))
	if _, err := again.Blob(ctx, sha256.Sum256(own)); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("the blob that nobody refers to: %v", err)
	}
	if n := count(t, again, append([]byte{tagPiece}, blobKey(sha256.Sum256(own))...)); n != 0 {
		t.Errorf("%d of its pieces are left", n)
	}
	if _, err := again.Blob(ctx, sha256.Sum256(both)); err != nil {
		t.Errorf("the blob of another: %v", err)
	}
	for _, prefix := range []string{"ewrk/a\x00", "x", "f"} {
		if n := count(t, again, []byte(prefix)); n != 0 {
			t.Errorf("%d entries with %q are left", n, prefix)
		}
	}
	if f := findings(t, again); len(f) != 0 {
		t.Errorf("found %+v", f)
	}
}

// A blob that somebody refers to while the last one that did is being deleted must stay.
func TestABlobThatIsReferredToAnewOutlivesTheDeletion(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	body := bytes.Repeat([]byte("body"), persistence.BlobThreshold)
	put := func(stream, session string) {
		t.Helper()
		l, err := s.Claim(ctx, stream, "test")
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Append(ctx, persistence.Batch{Lease: l, Expect: l.Next, Session: session, Records: []*messages.Record{{Body: body}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	put("wrk/a", "one")
	plan := &messages.DeletionPlan{Sessions: []string{"one"}, Streams: []string{"wrk/a"}}
	task := &deleteTask{waiting: waiting{make(chan error, 1)}, plan: plan, value: mustMarshal(t, plan)}
	if err := s.wait(ctx, task, task.answers); err != nil {
		t.Fatal(err)
	}
	blobs := map[[32]byte]bool{}
	if err := s.purge(ctx, func(p *purger) error { return p.planned(plan, blobs) }); err != nil {
		t.Fatal(err)
	}
	orphans, err := s.orphans(ctx, blobs)
	if err != nil || len(orphans) != 1 || orphans[0] != sha256.Sum256(body) {
		t.Fatalf("orphans %x, %v", orphans, err)
	}
	put("wrk/b", "two") // finds the blob there
	end := &deletedTask{waiting: waiting{make(chan error, 1)}, plan: plan, key: task.key, blobs: orphans}
	if err := s.wait(ctx, end, end.answers); err != nil {
		t.Fatal(err)
	}
	if f := findings(t, s); len(f) != 0 {
		t.Errorf("found %+v", f)
	}
	if _, err := s.Blob(ctx, sha256.Sum256(body)); err != nil {
		t.Errorf("the blob: %v", err)
	}
}

func TestATrimmedStoreIsBackedUpAndRepairedAsItIs(t *testing.T) {
	s := openIn(t, t.TempDir())
	trimmedStore(t, s)
	path := t.TempDir() + "/backup"
	backUp(t, s, path, nil)
	again := restored(t, path)
	wantBegins(t, again, "wrk/a", 6, 10)
	if f := findings(t, again); len(f) != 0 {
		t.Errorf("found %+v", f)
	}
	killed := image(t, s.opts.Dir)
	if r := wouldLose(t, killed); !r.Nothing() {
		t.Errorf("to repair: %+v", r)
	}
	// The mark itself is damaged: the snapshot says that nothing is missing.
	tamper(t, s, markKey(tagCommit, "wrk/a"), func(b []byte) []byte { b[0] ^= 1; return b })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mended, r := repaired(t, s.opts.Dir)
	wantBegins(t, mended, "wrk/a", 6, 10)
	if len(r.Lost) != 0 || !strings.Contains(strings.Join(r.Mended, " "), "beginning of stream wrk/a") {
		t.Errorf("repaired: %+v", r)
	}
}
