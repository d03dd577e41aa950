package troupe_test

import (
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

func TestASessionWhoseFilesAnotherOneHasAttachedIsNotDeleted(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	a, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := a.Call(ctx, "write_file", map[string]any{"path": "kept", "content": "x"}); err != nil || r.GetStatus() != messages.ToolFinished_OK {
		t.Fatalf("%v %v", r, err)
	}
	b, err := rt.Session(ctx, troupe.SessionOptions{Workspaces: []troupe.WorkspaceSpec{{URI: "troupe:/sessions/" + a.ID(), Name: "others", Trust: troupe.Full}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rt.Ask(ctx, forget(a.ID()))
	wantCode(t, "deleted under its user", err, messages.CodeConflict)
	if r, err := b.Call(ctx, "read_file", map[string]any{"path": "kept", "workspace_id": "others"}); err != nil || r.GetStatus() != messages.ToolFinished_OK {
		t.Errorf("its file: %v %v", r, err)
	}
	if err := b.Detach(ctx, "others"); err != nil {
		t.Fatal(err)
	}
	ask[*messages.Ack](t, rt, forget(a.ID()))
}

// TestWhoSendsAPromptSaysWhetherAnybodyCanBeAsked: the flag is the prompt's, and lasts for its turn.
func TestWhoSendsAPromptSaysWhetherAnybodyCanBeAsked(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: &stepwise{calls: calls(writesB)}})
	for _, c := range []struct {
		create *messages.CreateSession
		people messages.InputAccepted_People
		asks   bool
	}{
		{&messages.CreateSession{NoInput: true}, messages.InputAccepted_ASKED, true},
		{&messages.CreateSession{}, messages.InputAccepted_ASKED, true},
		{&messages.CreateSession{Ask: true}, messages.InputAccepted_NOBODY, false},
		{&messages.CreateSession{Ask: true}, messages.InputAccepted_AS_SESSION, true},
		{&messages.CreateSession{NoInput: true}, messages.InputAccepted_AS_SESSION, false},
	} {
		m := &messages.CreateSession{NoInput: c.create.GetNoInput(), Ask: c.create.GetAsk(), Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir()}}}
		session := ask[*messages.SessionView](t, rt, m).GetId()
		done := make(chan *messages.TurnResult, 1)
		go func() {
			in := &messages.SubmitInput{Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "go"}}}, People: c.people}
			r, err := rt.Ask(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_Run{Run: &messages.RunInput{Input: in}}})
			if err != nil {
				t.Error(err)
			}
			res, _ := r.(*messages.TurnResult)
			done <- res
		}()
		asked := false
		var r *messages.TurnResult
		actortest.Until(t, "the turn is done", func() bool {
			all, err := rt.Approvals(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range all {
				asked = true
				_ = rt.ResolveApproval(ctx, v.GetApprovalId(), troupe.Answer{Decision: troupe.Approved})
			}
			select {
			case r = <-done:
				return true
			default:
				return false
			}
		})
		want := map[bool]string{true: "ok", false: "denied"}[c.asks]
		if asked != c.asks || r.GetToolCalls()[0].GetStatus() != want {
			t.Errorf("%v %v: asked %v, %v", m, c.people, asked, r.GetToolCalls())
		}
	}
}

// TestCommandsThatWereLeftRunningAreCountedAndACancelTellsOfThem.
func TestCommandsThatWereLeftRunningAreCountedAndACancelTellsOfThem(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Sandbox: unconfined(t)})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Call(ctx, "exec", map[string]any{"command": "sleep 600", "background": true}); err != nil || r.GetStatus() != messages.ToolFinished_OK {
		t.Fatalf("%v %v", r, err)
	}
	n := ask[*messages.JobCount](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}})
	if n.GetBackground() != 1 || n.GetRunning() != 0 {
		t.Errorf("counted %v", n)
	}
	c := ask[*messages.Cancelled](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{}}})
	if c.GetJobs() != 1 {
		t.Errorf("the cancel tells of %v", c)
	}
}
