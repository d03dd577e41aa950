package badger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// tamper changes a stored value behind the store's back.
func tamper(t *testing.T, s *Store, key []byte, change func([]byte) []byte) {
	t.Helper()
	err := s.db.Update(func(txn *engine.Txn) error {
		item, err := txn.Get(key)
		if err != nil {
			return err
		}
		value, err := item.ValueCopy(nil)
		if err != nil {
			return err
		}
		return txn.SetEntry(&engine.Entry{Key: key, Value: change(value), UserMeta: item.UserMeta()})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func findings(t *testing.T, s *Store) (out []persistence.Finding) {
	t.Helper()
	if _, err := s.Verify(context.Background(), nil, func(f persistence.Finding) { out = append(out, f) }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnyFlippedBitIsNamedAndNeverReadAsData(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	appendTo(t, s, "wrk/a", "s", 3)
	key := nameKey(nil, tagCommit, "wrk/a", 2)
	var size int
	tamper(t, s, key, func(b []byte) []byte { size = len(b); return b })
	for bit := range 8 * size {
		turn := func(b []byte) []byte { b[bit/8] ^= 1 << (bit % 8); return b }
		tamper(t, s, key, turn)
		var got []uint64
		err := s.Read(ctx, "wrk/a", 1, func(e persistence.Entry) error { got = append(got, e.Record.Seq); return nil })
		if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), "stream wrk/a seq 2") || len(got) != 1 {
			t.Fatalf("bit %d: read %v, error %v", bit, got, err)
		}
		err = s.ReadSession(ctx, "s", 1, func(persistence.Entry) error { return nil })
		if !errors.Is(err, persistence.ErrCorrupt) {
			t.Fatalf("bit %d: session read with error %v", bit, err)
		}
		tamper(t, s, key, turn)
	}
	if f := findings(t, s); len(f) != 0 {
		t.Fatalf("mended store has findings %+v", f)
	}
}

func TestVerifyNamesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, s *Store)
		want   persistence.Finding
	}{
		"a flipped bit": {func(t *testing.T, s *Store) {
			tamper(t, s, nameKey(nil, tagCommit, "wrk/a", 2), func(b []byte) []byte { b[3] ^= 1; return b })
		}, persistence.Finding{Stream: "wrk/a", Seq: 2, Problem: "checksum"}},
		"a missing record": {func(t *testing.T, s *Store) {
			remove(t, s, nameKey(nil, tagCommit, "wrk/a", 2))
		}, persistence.Finding{Stream: "wrk/a", Seq: 2, Problem: "missing"}},
		"a missing cursor": {func(t *testing.T, s *Store) {
			remove(t, s, nameKey(nil, tagCursor, "s", 3))
		}, persistence.Finding{Stream: "wrk/a", Seq: 3, Problem: "no entry for cursor 3"}},
		"a cursor that leads elsewhere": {func(t *testing.T, s *Store) {
			key := nameKey(nil, tagCursor, "s", 2)
			tamper(t, s, key, func([]byte) []byte { return seal(key, append([]byte{1, 1}, "wrk/a"...)) })
		}, persistence.Finding{Stream: "wrk/a", Seq: 2, Problem: "leads to stream wrk/a seq 1"}},
		"a database behind its watermark": {func(t *testing.T, s *Store) {
			key := []byte(metaCommits)
			tamper(t, s, key, func([]byte) []byte { return seal(key, binary.BigEndian.AppendUint64(nil, 1)) })
		}, persistence.Finding{Problem: "commits were acknowledged, the database holds 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openIn(t, t.TempDir())
			appendTo(t, s, "wrk/a", "s", 4)
			c.damage(t, s)
			found := findings(t, s)
			for _, f := range found {
				if f.Stream == c.want.Stream && f.Seq == c.want.Seq && strings.Contains(f.Problem, c.want.Problem) {
					return
				}
			}
			t.Errorf("found %+v, want %+v", found, c.want)
		})
	}
}

func remove(t *testing.T, s *Store, key []byte) {
	t.Helper()
	if err := s.db.Update(func(txn *engine.Txn) error { return txn.Delete(key) }); err != nil {
		t.Fatal(err)
	}
}

func TestEpochThatGoesBackIsCorrupt(t *testing.T) {
	s := openIn(t, t.TempDir())
	appendTo(t, s, "wrk/a", "s", 1)
	appendTo(t, s, "wrk/a", "s", 1)
	key := nameKey(nil, tagCommit, "wrk/a", 2)
	tamper(t, s, key, func([]byte) []byte {
		task := &appendTask{batches: []persistence.Batch{{
			Lease: persistence.Lease{Stream: "wrk/a", Epoch: 1}, Expect: 2, Session: "s",
			Records: []*messages.Record{textRecord("wrk/a", 2)},
		}}}
		if err := persistence.Prepare(task.batches); err != nil {
			t.Fatal(err)
		}
		task.encode()
		task.parts[0].finish(&task.batches[0], 2)
		return task.parts[0].commit.Value
	})
	err := s.Read(context.Background(), "wrk/a", 1, func(persistence.Entry) error { return nil })
	if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), "epoch 1 after") {
		t.Errorf("read: %v", err)
	}
	if f := findings(t, s); len(f) != 1 || f[0].Seq != 2 {
		t.Errorf("found %+v", f)
	}
}

func TestDamagedSnapshotGivesWayToTheOneBefore(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	appendTo(t, s, "wrk/a", "s", 3)
	l, err := s.Claim(ctx, "wrk/a", "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{1, 2, 3} {
		if err := s.PutSnapshot(ctx, l, &messages.Snapshot{Seq: seq, State: fmt.Append(nil, seq)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint64{3, 2} {
		snap, err := s.Snapshot(ctx, "wrk/a", 0)
		if err != nil || snap.Seq != want || string(snap.State) != fmt.Sprint(want) {
			t.Fatalf("snapshot %v, %v, want seq %d", snap, err, want)
		}
		tamper(t, s, nameKey(nil, tagSnapshot, "wrk/a", want), func(b []byte) []byte { b[1] ^= 1; return b })
	}
	if _, err := s.Snapshot(ctx, "wrk/a", 0); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("third snapshot: %v; two are kept", err)
	}
}

func TestFullDiskRefusesTurnsThenAppends(t *testing.T) {
	ctx := context.Background()
	var free atomic.Uint64
	free.Store(1 << 30)
	s := openIn(t, t.TempDir(), func(o *Options) {
		o.FreeSpace = func(string) (uint64, error) { return free.Load(), nil }
		o.RefuseTurnsBelow, o.RefuseAppendsBelow = 1000, 100
	})
	appendTo(t, s, "wrk/a", "s", 1)
	if st := s.Space(); st.RefuseTurns || st.RefuseAppends {
		t.Errorf("with much room: %+v", st)
	}
	free.Store(999)
	if st := s.Space(); !st.RefuseTurns || st.RefuseAppends || st.Free != 999 {
		t.Errorf("with little room: %+v", st)
	}
	appendTo(t, s, "wrk/a", "s", 1) // what was begun can end
	free.Store(99)
	if st := s.Space(); !st.RefuseTurns || !st.RefuseAppends {
		t.Errorf("with no room: %+v", st)
	}
	l, err := s.Claim(ctx, "wrk/a", "test")
	if err != nil {
		t.Fatal(err)
	}
	b := persistence.Batch{Lease: l, Expect: 3, Records: []*messages.Record{textRecord("wrk/a", 3)}}
	if _, err := s.Append(ctx, b); !errors.Is(err, persistence.ErrFull) {
		t.Errorf("append on a full disk: %v", err)
	}
	if err := s.PutBlob(ctx, persistence.Blob{Hash: [32]byte{}, Data: nil}); !errors.Is(err, persistence.ErrInvalid) {
		t.Errorf("nonsense on a full disk: %v", err)
	}
	if err := s.PutSnapshot(ctx, l, &messages.Snapshot{Seq: 1}); !errors.Is(err, persistence.ErrFull) {
		t.Errorf("snapshot on a full disk: %v", err)
	}
	if head, err := s.Head(ctx, "wrk/a"); err != nil || head != 2 || s.Health() != nil {
		t.Errorf("a full disk still reads: head %d, %v, health %v", head, err, s.Health())
	}
	free.Store(1 << 30)
	if _, err := s.Append(ctx, b); err != nil {
		t.Errorf("append after room was made: %v", err)
	}
}

// failing opens a store whose next commits are what commit makes of them.
func failing(t *testing.T, commit func(*engine.Txn) error, change ...func(*Options)) (*Store, persistence.Lease) {
	t.Helper()
	s := openIn(t, t.TempDir(), change...)
	appendTo(t, s, "wrk/a", "s", 1)
	l, err := s.Claim(context.Background(), "wrk/a", "test")
	if err != nil {
		t.Fatal(err)
	}
	s.commit = commit // no group is in flight, and the next one is handed over by a channel
	return s, l
}

func TestWriteErrorFailsTheStoreForGood(t *testing.T) {
	ctx, broken := context.Background(), errors.New("input/output error")
	commits := 0
	told := make(chan error, 9)
	s, l := failing(t, func(txn *engine.Txn) error { commits++; txn.Discard(); return broken }, func(o *Options) { o.Failed = func(err error) { told <- err } })
	batch := func() persistence.Batch {
		return persistence.Batch{Lease: l, Expect: 2, Session: "s", Records: []*messages.Record{textRecord("wrk/a", 2)}}
	}
	_, err := s.Append(ctx, batch())
	if !errors.Is(err, persistence.ErrAmbiguous) || !errors.Is(err, persistence.ErrUnavailable) || !errors.Is(err, broken) {
		t.Errorf("append whose commit failed: %v", err)
	}
	select {
	case err := <-told:
		if !errors.Is(err, broken) {
			t.Errorf("the owner was told %v", err)
		}
	default:
		t.Error("the writer hears of the failure before the owner does")
	}
	for range 3 {
		if _, err := s.Append(ctx, batch()); !errors.Is(err, persistence.ErrUnavailable) || errors.Is(err, persistence.ErrAmbiguous) {
			t.Errorf("append to a failed store: %v", err)
		}
	}
	if _, err := s.Claim(ctx, "wrk/b", "test"); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("claim on a failed store: %v", err)
	}
	if commits != 1 {
		t.Errorf("%d commits were tried, want 1: a failed sync must not be repeated", commits)
	}
	if err := s.Health(); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("health: %v", err)
	}
	if head, err := s.Head(ctx, "wrk/a"); err != nil || head != 1 {
		t.Errorf("a failed store still reads: head %d, %v", head, err)
	}
	if err := s.Close(); !errors.Is(err, broken) {
		t.Errorf("close: %v", err)
	}
	if len(told) > 0 {
		t.Errorf("the owner was told again: %v", <-told)
	}
}

func TestCloseReturnsWhenTheDiskHangs(t *testing.T) {
	hang, hangs := make(chan struct{}), make(chan struct{})
	s, l := failing(t, func(txn *engine.Txn) error {
		close(hangs)
		<-hang
		txn.Discard()
		return errors.New("too late")
	}, func(o *Options) { o.CloseTimeout = 50 * time.Millisecond })
	const queued = 5
	answers := make(chan error, 2*queued)
	enqueue := func(seq uint64) {
		s.Enqueue(func(_ persistence.Receipt, err error) { answers <- err }, persistence.Batch{
			Lease: l, Expect: seq, Session: "s", Records: []*messages.Record{textRecord("wrk/a", seq)},
		})
	}
	enqueue(2)
	<-hangs
	for seq := range uint64(queued - 1) {
		enqueue(3 + seq)
	}
	if err := s.Close(); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("close: %v", err)
	}
	ambiguous := 0
	for range queued {
		err := <-answers
		if !errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("answer of a hanging store: %v", err)
		}
		if errors.Is(err, persistence.ErrAmbiguous) {
			ambiguous++
		}
	}
	if ambiguous != 1 {
		t.Errorf("%d answers are ambiguous, want that of the append in flight", ambiguous)
	}
	close(hang)
	<-s.commits.ended
	if len(answers) != 0 {
		t.Errorf("%d appends were answered twice", len(answers))
	}
	if err := s.db.Close(); err != nil { // left open by a Close that could not wait
		t.Error(err)
	}
}

func TestFailedFlushOfTheDatabaseFailsTheStore(t *testing.T) {
	l := &engineLog{log: Options{}.withDefaults().Logger}
	var failed error
	if err := l.listen(func(err error) { failed = err }); err != nil {
		t.Fatal(err)
	}
	l.Errorf("while deleting file: %s, err: %v", "x", "gone")
	if failed != nil {
		t.Errorf("a leftover file failed the store: %v", failed)
	}
	l.Errorf("error flushing memtable to disk: %v, retrying", "no space")
	if failed == nil || !strings.Contains(failed.Error(), "no space") {
		t.Errorf("a failed flush: %v", failed)
	}
}

func TestReleasedStreamsAndIdleSessionsAreForgotten(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	s.commits.keep = 4 // nothing was handed in yet
	const sessions, rounds = 30, 3
	for range rounds {
		for i := range sessions {
			stream := fmt.Sprint("wrk/", i)
			appendTo(t, s, stream, fmt.Sprint("ses", i), 1)
			l, err := s.Claim(ctx, stream, "test")
			if err != nil {
				t.Fatal(err)
			}
			s.Release(l)
		}
	}
	for i := range sessions {
		if last, err := s.Cursor(ctx, fmt.Sprint("ses", i)); err != nil || last != rounds {
			t.Errorf("session %d is at cursor %d, %v, want %d", i, last, err, rounds)
		}
	}
	if f := findings(t, s); len(f) != 0 {
		t.Errorf("found %+v", f)
	}
	if err := s.Close(); err != nil { // ends the stager, so that its maps can be looked at
		t.Fatal(err)
	}
	if heads, kept := len(s.commits.heads), len(s.commits.sessions); heads > 3 || kept > 8 {
		t.Errorf("%d streams and %d sessions are kept in memory", heads, kept)
	}
}
