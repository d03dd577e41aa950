package persistencetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// inFlight hands in appends that depend on those before without waiting for any: keys, timers,
// cursors, claims and snapshots must see what is not durable yet.
func inFlight(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	const rounds = 120
	base := time.Unix(1_700_000_000, 0)
	type answer struct {
		n   int
		err error
	}
	answers := make(chan answer, 2*rounds)
	w := write(t, s, "wrk/a", "s1")
	snapped := make(chan error, rounds)
	records, snapshots := uint64(0), 0
	for n := range rounds {
		if n%10 == 9 { // a new activation, behind everything that the old one handed in
			old := *w
			w = write(t, s, "wrk/a", "s1")
			if w.next != records+1 {
				t.Fatalf("claim says that %d is next, %d records were handed in", w.next, records)
			}
			s.Enqueue(func(_ persistence.Receipt, err error) {
				if !errors.Is(err, persistence.ErrFenced) {
					t.Errorf("append of a fenced activation: %v", err)
				}
			}, old.batch(1))
		}
		b := w.batch(1 + n%2)
		records += uint64(len(b.Records))
		b.Keys = []persistence.Key{{Name: fmt.Sprint("k", n)}}
		b.Timers = []persistence.TimerOp{{ID: "t", Due: base.Add(time.Duration(rounds-n) * time.Second), Value: fmt.Append(nil, n)}}
		s.Enqueue(func(_ persistence.Receipt, err error) { answers <- answer{n, err} }, b)

		again := w.batch(1)
		w.next--
		again.Keys = b.Keys
		s.Enqueue(func(_ persistence.Receipt, err error) {
			if !errors.Is(err, persistence.ErrDuplicate) {
				t.Errorf("append with key %d again: %v", n, err)
			}
		}, again)
		if n%7 == 6 {
			snapshots++
			lease, seq := w.lease, records
			go func() { snapped <- s.PutSnapshot(ctx, lease, &messages.Snapshot{Seq: seq}) }()
		}
	}
	for n := range rounds {
		if a := <-answers; a.n != n || a.err != nil {
			t.Fatalf("append %d was answered when %d was next: %v", a.n, n, a.err)
		}
	}
	for range snapshots { // one may be late for its lease, none for its records
		if err := <-snapped; err != nil && !errors.Is(err, persistence.ErrFenced) {
			t.Errorf("snapshot: %v", err)
		}
	}
	wantList(t, "timers", dueAfter(t, s, base), []string{fmt.Sprintf("t=%d@1", rounds-1)})
	wantStream(t, s, "wrk/a", records)
	wantCursors(t, s, "s1", 0, records)
	wantVerified(t, s)
}

// dueAfter lists the timers of the hour after a time, with their seconds in it.
func dueAfter(t *testing.T, s persistence.Store, base time.Time) (due []string) {
	t.Helper()
	must(t, s.Due(context.Background(), base.Add(time.Hour), func(tm persistence.Timer) error {
		due = append(due, fmt.Sprintf("%s=%s@%d", tm.ID, tm.Value, tm.Due.Sub(base)/time.Second))
		return nil
	}))
	return due
}
