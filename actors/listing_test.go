package actors_test

import (
	"testing"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

// TestTheListSaysWhatWaitsAlsoWhenTheProcessEndsAtOnce reads the store while nothing but acceptances is written.
func TestTheListSaysWhatWaitsAlsoWhenTheProcessEndsAtOnce(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	dir := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	first, w := h.Create(&messages.CreateSession{Workspaces: dir})
	submit(h, first, "hold it")
	actortest.Wait(t, "the call", gate.Came)
	v := actortest.Ask[*messages.SessionView](h, "", &messages.CreateSession{Workspaces: dir, First: &messages.SubmitInput{Parts: actortest.Text("one")}})
	second := v.GetId()
	waits := h.Worker(second)
	listed := func(worker, state string, staged int32) {
		t.Helper()
		session := second
		if worker == w {
			session = first
		}
		l := listedWorker(t, h.Store, session, worker)
		if l.GetState() != state || l.GetStaged() != staged || l.GetWaitsFor() != "" || l.GetExecutor() != "" {
			t.Errorf("listed as %v, want %s with %d inputs", l, state, staged)
		}
	}
	listed(w, "working", 0)
	listed(waits.GetId(), "waiting", 1)
	submit(h, second, "two")
	listed(waits.GetId(), "waiting", 2)
	actortest.Until(t, "it says what it waits for", func() bool {
		return h.Worker(second).GetWaitsFor() == "the workspace "+dir[0].GetUri()+", in which session "+first+" works"
	})
	on := h.Worker(second).GetWaiting()
	if on.GetKind() != "lease" || on.GetSubject() != dir[0].GetUri() || on.GetSession() != first || on.GetSinceUnixMs() == 0 {
		t.Errorf("waits on %v", on)
	}
	for _, in := range actortest.Ask[*messages.Inputs](h, second, &messages.ListInputs{}).GetInputs() {
		actortest.Ask[*messages.Ack](h, second, &messages.WithdrawInput{InputId: in.GetInputId()})
	}
	listed(waits.GetId(), "inactive", 0)
	behind := submit(h, first, "behind it")
	listed(w, "working", 1)
	gate.Open()
	actortest.Ask[*messages.TurnResult](h, first, &messages.AwaitTurn{InputId: behind})
	listed(w, "inactive", 0)
}
