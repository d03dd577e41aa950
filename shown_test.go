package troupe_test

import (
	"context"
	"errors"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

// TestAnApprovalThatSomebodySeesIsToldFromOneThatNobodyDoes: in listings of approvals and calls, and in events; when who saw it goes it is
// pending again, and who sees it hears when it was answered elsewhere (acceptance rows 48 and 89).
func TestAnApprovalThatSomebodySeesIsToldFromOneThatNobodyDoes(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: &stepwise{calls: calls(writesB)}})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Ask: true})
	if err != nil {
		t.Fatal(err)
	}
	sees := func(want string, viewers ...string) {
		t.Helper()
		actortest.Until(t, "it is "+want, func() bool {
			all, err := rt.Approvals(ctx)
			if err != nil || len(all) != 1 {
				t.Fatalf("%v %v", all, err)
			}
			j := all[0].JSON()
			if j.State != want || len(j.Shown) != len(viewers) {
				return false
			}
			for i, w := range viewers {
				if j.Shown[i].By != w || j.Shown[i].Since == "" {
					t.Errorf("shown to %v", j.Shown)
				}
			}
			return true
		})
	}
	said := make(chan string, 16)
	go func() {
		defer close(said)
		for e, err := range s.Stream(ctx, "go") {
			if err != nil {
				t.Errorf("events: %v", err)
				return
			}
			switch e.GetType() {
			case messages.EventApprovalRequested, messages.EventApprovalResolved:
				said <- e.GetType()
			case messages.EventApprovalShown:
				if e.GetSeq() != 0 {
					t.Errorf("it has a place in the journal: %v", e)
				}
				said <- e.GetState() + " " + e.GetBy()
			}
		}
	}()
	next := func(want string) {
		t.Helper()
		if got := <-said; got != want {
			t.Errorf("said %q, not %q", got, want)
		}
	}
	next(messages.EventApprovalRequested)
	sees("pending")
	all, _ := rt.Approvals(ctx)
	id := all[0].GetApprovalId()

	looking, away := context.WithCancelCause(ctx)
	gone, left := errors.New("gone"), make(chan error, 1)
	go func() { left <- rt.ShowApproval(looking, id, "ann") }()
	next("shown ann")
	sees("shown", "ann")
	m, err := rt.Ask(ctx, &messages.ListCalls{SessionId: s.ID(), State: "shown"})
	if err != nil || len(m.(*messages.Calls).GetCalls()) != 1 {
		t.Errorf("calls that are shown: %v %v", m, err)
	}
	away(gone)
	if err := <-left; !errors.Is(err, gone) {
		t.Errorf("who went: %v", err)
	}
	next("pending ")
	sees("pending")

	go func() { left <- rt.ShowApproval(ctx, id, "bob") }()
	next("shown bob")
	if err := rt.ResolveApproval(ctx, id, troupe.Answer{Decision: troupe.Approved}); err != nil {
		t.Fatal(err)
	}
	if err := <-left; err != nil {
		t.Errorf("who saw it answered elsewhere: %v", err)
	}
	next(messages.EventApprovalResolved)
	wantCode(t, "shown after the answer", rt.ShowApproval(ctx, id, "eve"), messages.CodeResolved)
	wantCode(t, "of none", rt.ShowApproval(ctx, "apr_none", "eve"), messages.CodeNotFound)
	for range said {
		t.Error("there is more")
	}
}
