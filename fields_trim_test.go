package troupe_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// TestTheJournalOfFieldsIsTrimmedAndNothingThatCountsGoes: what is older than data.trim says and stands in both snapshots goes; the fields, their
// revision and the ids of edits are as they were, and a writer of before is fenced still.
func TestTheJournalOfFieldsIsTrimmedAndNothingThatCountsGoes(t *testing.T) {
	store, data, dir, ctx := memoryOf(t), t.TempDir(), folder(t, nil), t.Context()
	var now atomic.Int64
	now.Store(1_700_000_000)
	session, stream, edits := "", "", 0
	live := func(trim time.Duration, n int, look func(*troupe.Session)) {
		rt, err := troupe.New(ctx, troupe.Options{Model: echo(), Store: store, DataDir: data, Trim: trim, Now: func() time.Time { return time.Unix(now.Load(), 0) }})
		if err != nil {
			t.Fatal(err)
		}
		s, err := rt.Open(ctx, session)
		if session == "" {
			s, err = rt.Session(ctx, troupe.SessionOptions{Dir: dir, Fields: workFields})
		}
		if err != nil {
			t.Fatal(err)
		}
		session = s.ID()
		for range n {
			edits++
			if _, err := s.SetField(ctx, troupe.FieldEdit{Field: "count", Value: edits, ID: fmt.Sprintf("edit_%d", edits)}); err != nil {
				t.Fatal(err)
			}
		}
		look(s)
		if err := rt.Close(ctx); err != nil {
			t.Fatal(err)
		}
		now.Add(10 * 24 * 3600)
	}
	first := func() uint64 {
		err := store.Read(ctx, stream, 1, func(persistence.Entry) error { return nil })
		var left *persistence.TrimmedError
		switch {
		case errors.As(err, &left):
			return left.First
		case err != nil:
			t.Fatal(err)
		}
		return 1
	}
	holds := func(s *troupe.Session) {
		t.Helper()
		v, err := s.Fields(ctx, "")
		if err != nil || fieldOf(t, s, "count") != fmt.Sprint(edits) || v.GetRev() != uint64(edits)+2 {
			t.Fatalf("after %d edits: count %s, revision %d, %v", edits, fieldOf(t, s, "count"), v.GetRev(), err)
		}
		again, err := s.SetField(ctx, troupe.FieldEdit{Field: "count", Value: 3, ID: "edit_3"})
		if err != nil || again.GetRev() != 4 || fieldOf(t, s, "count") != fmt.Sprint(edits) {
			t.Errorf("an old edit made again: %v %v", again, err)
		}
		_, err = s.SetField(ctx, troupe.FieldEdit{Field: "count", Value: 4, ID: "edit_3"})
		wantCode(t, "another one by its id", err, messages.CodeConflict)
	}
	live(0, 600, func(s *troupe.Session) {
		if _, err := s.SetField(ctx, troupe.FieldEdit{Field: "status", Value: "done", ID: "edit_status"}); err != nil {
			t.Fatal(err)
		}
	})
	err := store.Streams(ctx, "wsp/", func(name string) error { stream = name; return nil })
	if err != nil || !strings.HasPrefix(stream, "wsp/") {
		t.Fatalf("%q %v", stream, err)
	}
	if got := first(); got != 1 {
		t.Errorf("without data.trim the first record is %d", got)
	}
	stale, err := store.Claim(ctx, stream, "of before")
	if err != nil {
		t.Fatal(err)
	}
	const days = 5 * 24 * time.Hour
	live(days, 300, holds)
	if got := first(); got < 256 || got > 700 {
		t.Errorf("the first record is %d after %d edits", got, edits)
	}
	batch := persistence.Batch{Lease: stale, Expect: stale.Next}
	if _, err := store.Append(ctx, batch); !errors.Is(err, persistence.ErrFenced) {
		t.Errorf("who wrote before the restart: %v", err)
	}
	was := first()
	live(days, 1, holds) // the newest are in no two snapshots
	if got := first(); got != was {
		t.Errorf("the first record is %d, and was %d", got, was)
	}
	live(days, 300, func(s *troupe.Session) {
		holds(s)
		if fieldOf(t, s, "status") != `"done"` || fieldOf(t, s, "progress") != "100" {
			t.Errorf("status %s, progress %s", fieldOf(t, s, "status"), fieldOf(t, s, "progress"))
		}
	})
	if got := first(); got <= was || got > uint64(edits) {
		t.Errorf("the first record is %d, and was %d", got, was)
	}
	live(days, 0, holds)
}
