package actors_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// TestADeletedWorkerThatIsQuarantinedOwesNobodyAnAnswer: nobody else takes what it asked, doubted and waited for off the lists.
func TestADeletedWorkerThatIsQuarantinedOwesNobodyAnAnswer(t *testing.T) {
	for _, whole := range []bool{false, true} { // the session goes, too
		a := asks(t, 1, actortest.Options{}, writes("a")...)
		actortest.Ask[*messages.TimerView](a.h, a.s, &messages.SetTimer{DueUnixMs: a.clock.Now().Add(time.Hour).UnixMilli(), Parts: actortest.Text("wake")})
		actortest.Ask[*messages.WorkerView](a.h, a.s, &messages.SpawnWorker{})
		asked := a.pending()[0]
		a.h.Stop()
		a.bar(asked.GetExecId())
		a.next()
		actortest.Until(t, "the worker is quarantined", func() bool { return a.h.Worker(a.s).GetQuarantined() })
		if n := a.owed(); n != 3 {
			t.Fatalf("%d things are listed: this is not what the test is about", n)
		}
		if whole {
			actortest.Ask[*messages.Ack](a.h, a.s, &messages.CloseSession{})
		} else {
			actortest.Ask[*messages.Ack](a.h, a.s, &messages.DeleteWorker{WorkerId: a.w})
		}
		if n := a.owed(); n != 0 {
			t.Errorf("whole session %v: %d things are still listed", whole, n)
		}
		if _, err := actors.ApprovalNamed(context.Background(), a.store, asked.GetApprovalId()); actortest.Code(err) != messages.CodeResolved {
			t.Errorf("whole session %v: an answer that comes now: %v", whole, err)
		}
	}
}

// bar quarantines the worker while nobody runs, and puts a call of its on the list of those in doubt.
func (a *asker) bar(exec string) {
	a.t.Helper()
	a.store = a.store.Reopen()
	j, err := persistence.OpenJournal(context.Background(), a.store, messages.WorkerStream(a.w), a.s, "test")
	a.must(err)
	r, err := messages.NewRecord(&messages.Panicked{Reason: "as the test wants it", Quarantined: true}, "")
	a.must(err)
	v, err := proto.Marshal(&messages.CallView{SessionId: a.s, WorkerId: a.w, ExecId: exec})
	a.must(err)
	done := make(chan error, 1)
	j.Append(func(_ persistence.Receipt, err error) { done <- err }, persistence.Draft{
		Records: []*messages.Record{r}, Index: []persistence.IndexOp{{Key: actors.DoubtKey(a.s, exec), Value: v}},
	})
	a.must(<-done)
	j.Release()
}

// owed counts what is listed as waiting: approvals, calls in doubt, timers.
func (a *asker) owed() int {
	a.t.Helper()
	doubts, err := actors.CallsInDoubt(context.Background(), a.store, a.s)
	a.must(err)
	n := len(a.pending()) + len(doubts)
	a.must(a.store.Due(context.Background(), a.clock.Now().Add(24*time.Hour), func(persistence.Timer) error { n++; return nil }))
	return n
}
