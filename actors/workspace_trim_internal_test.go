package actors

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/workspace"
)

// TestAnEditThatIsWrittenWhileAWorkspaceStopsIsNotSummedUpWithoutIt: its record is durable, and the Workspace has not heard of that yet.
func TestAnEditThatIsWrittenWhileAWorkspaceStopsIsNotSummedUpWithoutIt(t *testing.T) {
	store, ctx := memory.New(), context.Background()
	t.Cleanup(func() { _ = store.Close() })
	svc := &Services{Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler), pool: act.NewPool(), running: &sync.WaitGroup{}}
	t.Cleanup(svc.pool.Close)
	journal, err := persistence.OpenJournal(ctx, store, messages.WorkspaceStream("w"), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkspace(svc)
	w.book = fieldBook{fields: &workspace.Fields{}, journal: journal, snaps: &snapshots{records: snapshotRecords}}
	write := func(f proto.Message) {
		t.Helper()
		if err := appendFields(svc, journal, []proto.Message{f}); err != nil {
			t.Fatal(err)
		}
	}
	declared, err := w.book.fields.Declare(`{"properties":{"count":{"type":"integer","x-editable":true}}}`, "me")
	if err != nil {
		t.Fatal(err)
	}
	for journal.Next() <= snapshotNone+1 {
		write(declared)
		w.book.fields.Apply(declared)
	}
	fact, _, err := w.book.fields.Edit(workspace.FieldEdit{Field: "count", Value: "7", ExecID: "exe_1", By: "me"})
	if err != nil {
		t.Fatal(err)
	}
	w.book.busy = true
	write(fact)
	done := make(chan struct{})
	w.sumFields(true, func() { journal.Release(); close(done) })
	<-done
	again, err := persistence.OpenJournal(ctx, store, messages.WorkspaceStream("w"), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Release()
	f, _, err := recoverFields(ctx, again)
	if err != nil {
		t.Fatal(err)
	}
	if _, duplicate, err := f.Edit(workspace.FieldEdit{Field: "count", Value: "7", ExecID: "exe_1", By: "me"}); err != nil || !duplicate {
		t.Errorf("the edit is lost: %v %v", f.State(), err)
	}
}
