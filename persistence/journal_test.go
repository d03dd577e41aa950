package persistence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *memory.Store {
	s := memory.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func journal(t *testing.T, s persistence.Store, stream string) *persistence.Journal {
	t.Helper()
	j, err := persistence.OpenJournal(context.Background(), s, stream, "ses", "test")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

type answer struct {
	receipt persistence.Receipt
	err     error
}

// appending hands a draft of n records in and returns where its answer comes.
func appending(j *persistence.Journal, n int) <-chan answer {
	answers := make(chan answer, 1)
	d := persistence.Draft{}
	for range n {
		d.Records = append(d.Records, &messages.Record{Type: 3, Body: []byte("x")})
	}
	j.Append(func(r persistence.Receipt, err error) { answers <- answer{r, err} }, d)
	return answers
}

func wantErr(t *testing.T, doing string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", doing, err, want)
	}
}

func TestJournalFillsInWhatTheWriterLeaves(t *testing.T) {
	s := open(t)
	j := journal(t, s, "wrk/a")
	j.Now = func() time.Time { return time.UnixMilli(42) }
	own := make([]byte, 16)
	done := make(chan error, 1)
	first := j.Append(func(_ persistence.Receipt, err error) { done <- err }, persistence.Draft{
		Records: []*messages.Record{{Type: 1}, {Type: 2, RecordId: own, AtUnixMs: 7}},
		Keys:    []persistence.Key{{Name: "k", Value: []byte("v")}},
		Index:   []persistence.IndexOp{{Key: "i"}},
		Timers:  []persistence.TimerOp{{ID: "t"}},
	})
	if err := <-done; err != nil || first != 1 || j.Next() != 3 {
		t.Fatalf("append from %d, next %d: %v", first, j.Next(), err)
	}
	var got []*messages.Record
	err := j.Replay(context.Background(), 1, func(e persistence.Entry) error { got = append(got, e.Record); return nil })
	if err != nil || len(got) != 2 {
		t.Fatalf("replay gives %d records, %v", len(got), err)
	}
	if len(got[0].RecordId) != 16 || string(got[0].RecordId) == string(own) || got[0].AtUnixMs != 42 || got[0].Epoch != j.Lease().Epoch {
		t.Errorf("first record: %v", got[0])
	}
	if string(got[1].RecordId) != string(own) || got[1].AtUnixMs != 7 {
		t.Errorf("the writer's id and time were replaced: %v", got[1])
	}
	if e, err := persistence.Committed(context.Background(), s, "wrk/a", 1, got[0].RecordId); err != nil || e.Record.Seq != 1 {
		t.Errorf("found by record id: %v, %v", e, err)
	}
	_, err = persistence.Committed(context.Background(), s, "wrk/a", 1, []byte("none"))
	wantErr(t, "look for a record that is not there", err, persistence.ErrNotFound)
}

func TestAppendsFollowEachOtherWithoutWaiting(t *testing.T) {
	j := journal(t, open(t), "wrk/a")
	var answers []<-chan answer
	for n := range 20 {
		answers = append(answers, appending(j, n%3))
	}
	for n, a := range answers {
		if got := <-a; got.err != nil {
			t.Fatalf("append %d: %v", n, got.err)
		}
	}
	if j.Next() != 1+6*(0+1+2)+0+1 || j.Err() != nil {
		t.Errorf("next is %d, %v", j.Next(), j.Err())
	}
}

func TestRefusedAppendFailsTheJournalForGood(t *testing.T) {
	s := open(t)
	old := journal(t, s, "wrk/a")
	if a := <-appending(old, 2); a.err != nil {
		t.Fatal(a.err)
	}
	newer := journal(t, s, "wrk/a")
	wantErr(t, "append of the older activation", (<-appending(old, 1)).err, persistence.ErrFenced)
	wantErr(t, "append after a failure", (<-appending(old, 1)).err, persistence.ErrFenced)
	wantErr(t, "the journal", old.Err(), persistence.ErrFenced)
	records := 0
	if err := newer.Replay(context.Background(), 0, func(persistence.Entry) error { records++; return nil }); err != nil || records != 2 {
		t.Errorf("replay of the newer activation: %d records, %v", records, err)
	}
	if a := <-appending(newer, 1); a.err != nil || newer.Next() != 4 {
		t.Errorf("append of the newer activation: next %d, %v", newer.Next(), a.err)
	}
}

func TestDraftThatNoStoreTakesLeavesTheJournalUsable(t *testing.T) {
	j := journal(t, open(t), "wrk/a")
	for _, c := range []struct {
		draft persistence.Draft
		want  error
	}{
		{persistence.Draft{Records: []*messages.Record{nil}}, persistence.ErrInvalid},
		{persistence.Draft{Records: []*messages.Record{{Body: make([]byte, persistence.MaxBlob+1)}}}, persistence.ErrTooLarge},
		{persistence.Draft{Index: []persistence.IndexOp{{}}}, persistence.ErrInvalid},
	} {
		var got error
		j.Append(func(_ persistence.Receipt, err error) { got = err }, c.draft)
		wantErr(t, "draft", got, c.want)
	}
	if a := <-appending(j, 1); a.err != nil || j.Next() != 2 {
		t.Errorf("append after refused drafts: next %d, %v", j.Next(), a.err)
	}
}

func TestCreationOverTwoJournalsIsOneAppend(t *testing.T) {
	s := open(t)
	ses, wrk := journal(t, s, "ses/1"), journal(t, s, "wrk/1")
	create := func() answer {
		answers := make(chan answer, 1)
		persistence.AppendTogether(func(r persistence.Receipt, err error) { answers <- answer{r, err} },
			persistence.Part{Journal: ses, Draft: persistence.Draft{Records: []*messages.Record{{Type: 1}}}},
			persistence.Part{Journal: wrk, Draft: persistence.Draft{Records: []*messages.Record{{Type: 1}, {Type: 3}}}})
		return <-answers
	}
	if a := create(); a.err != nil || a.receipt != (persistence.Receipt{First: 1, Last: 3}) {
		t.Fatalf("creation: %+v", a)
	}
	if s.Appends() != 1 || ses.Next() != 2 || wrk.Next() != 3 {
		t.Errorf("%d appends, next %d and %d", s.Appends(), ses.Next(), wrk.Next())
	}
	wrk.Release()
	wantErr(t, "creation with a released journal", create().err, persistence.ErrFenced)
	if ses.Err() != nil || ses.Next() != 2 {
		t.Errorf("the other journal: next %d, %v", ses.Next(), ses.Err())
	}
	journal(t, s, "ses/1") // another activation
	wrk = journal(t, s, "wrk/1")
	wantErr(t, "creation with a fenced journal", create().err, persistence.ErrFenced)
	for _, j := range []*persistence.Journal{ses, wrk} {
		wantErr(t, "journal "+j.Stream(), j.Err(), persistence.ErrFenced)
	}
	if n, err := s.Head(context.Background(), "wrk/1"); err != nil || n != 2 {
		t.Errorf("the refused append left %d records, %v", n, err)
	}
}

func TestSnapshotThroughTheJournal(t *testing.T) {
	ctx := context.Background()
	j := journal(t, open(t), "wrk/a")
	_, err := j.Snapshot(ctx, 0)
	wantErr(t, "snapshot of a new stream", err, persistence.ErrNotFound)
	if a := <-appending(j, 3); a.err != nil {
		t.Fatal(a.err)
	}
	if err := j.PutSnapshot(ctx, 3, 2, []byte("state")); err != nil {
		t.Fatal(err)
	}
	snap, err := j.Snapshot(ctx, 0)
	if err != nil || snap.Seq != 3 || snap.Schema != 2 || string(snap.State) != "state" {
		t.Errorf("snapshot %v, %v", snap, err)
	}
}

// short is a store that gives out less than it holds.
type short struct {
	persistence.Store
	drop func(uint64) bool
}

func (s short) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	return s.Store.Read(ctx, stream, from, func(e persistence.Entry) error {
		if s.drop(e.Record.Seq) {
			return nil
		}
		return fn(e)
	})
}

func TestReplayRefusesAGapAndAnEarlyEnd(t *testing.T) {
	s := open(t)
	if a := <-appending(journal(t, s, "wrk/a"), 5); a.err != nil {
		t.Fatal(a.err)
	}
	for _, gap := range []uint64{1, 3, 5} {
		j := journal(t, short{s, func(seq uint64) bool { return seq == gap }}, "wrk/a")
		err := j.Replay(context.Background(), 1, func(persistence.Entry) error { return nil })
		wantErr(t, fmt.Sprintf("replay without record %d", gap), err, persistence.ErrCorrupt)
	}
}
