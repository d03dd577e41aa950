package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// summing is a store in which the snapshot of a workspace's fields waits before it is written.
type summing struct {
	*memory.Store
	gate     *actortest.Gate
	released atomic.Bool // the journal, meanwhile
	end      chan struct{}
}

func (s *summing) PutSnapshot(ctx context.Context, l persistence.Lease, snap *messages.Snapshot) error {
	if !strings.HasPrefix(l.Stream, "wsp/") {
		return s.Store.PutSnapshot(ctx, l, snap)
	}
	if err := s.gate.Pass(ctx); err != nil {
		return err
	}
	return s.Store.PutSnapshot(ctx, l, snap)
}

// Release implements persistence.Releaser.
func (s *summing) Release(l persistence.Lease) {
	s.Store.Release(l)
	if strings.HasPrefix(l.Stream, "wsp/") && !s.released.Swap(true) {
		close(s.end)
	}
}

// TestAWorkspaceThatStopsKeepsItsJournalUntilItsFieldsAreSummedUp: what is being written when it stops is not lost.
func TestAWorkspaceThatStopsKeepsItsJournalUntilItsFieldsAreSummedUp(t *testing.T) {
	store := &summing{Store: memory.New(), gate: actortest.NewGate(), end: make(chan struct{})}
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("yes")})
	open := sync.OnceFunc(store.gate.Open)
	defer open()
	s, _ := h.Create(&messages.CreateSession{})
	id := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{}).GetWorkspaces()[0].GetId()
	ws := h.Sys.NewLocalPID("troupe/workspace-" + id)
	if _, err := act.Ask[*messages.FieldsView](t.Context(), h.Sys, ws, &messages.DeclareFields{Schema: `{"type":"object","properties":{"count":{"type":"integer"}}}`, By: "a test"}); err != nil {
		t.Fatal(err)
	}
	for i := range 256 {
		edit := &messages.SetField{Field: "count", Value: fmt.Sprint(i), ExecId: fmt.Sprintf("edit_%d", i), By: "a test", Owner: true}
		if _, err := act.Ask[*messages.FieldUpdated](t.Context(), h.Sys, ws, edit); err != nil {
			t.Fatal(err)
		}
	}
	actortest.Wait(t, "the snapshot", store.gate.Came)
	if err := h.Sys.Root.StopFuture(ws).Wait(); err != nil {
		t.Fatal(err)
	}
	if store.released.Load() {
		t.Error("the journal was given back while its snapshot was written")
	}
	open()
	actortest.Wait(t, "the journal to be given back", store.end)
	if snap, err := store.Snapshot(t.Context(), messages.WorkspaceStream(id), 0); err != nil || snap.GetSeq() < 256 {
		t.Errorf("the snapshot: %d, %v", snap.GetSeq(), err)
	}
}
