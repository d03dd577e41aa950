package actors_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// TestHooksStandAroundACallThatDelegates: one that is refused has no child, and the other one's answer is told.
func TestHooksStandAroundACallThatDelegates(t *testing.T) {
	var mu sync.Mutex
	var told []string
	h := actortest.New(t, actortest.Options{Model: family(actortest.Say("found"), delegate("1", "not this"), delegate("2", "but this"))})
	h.Svc.Hooks = actors.Hooks{
		BeforeCall: func(_ context.Context, c actors.Call, _ *tools.Context, args json.RawMessage) error {
			if c.Tool == "delegate" && strings.Contains(string(args), "not this") {
				return errors.New("not that one")
			}
			return nil
		},
		AfterCall: func(_ context.Context, _ actors.Call, _ *tools.Context, r *messages.ToolReply) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, r.GetContent())
		},
	}
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "go")
	for _, f := range finishedCalls(h, w) {
		if want := map[string]messages.ToolFinished_Status{"1": messages.ToolFinished_DENIED, "2": messages.ToolFinished_OK}[f.GetCallId()]; f.GetStatus() != want {
			t.Errorf("call %s ended as %v: %s", f.GetCallId(), f.GetStatus(), f.GetContent())
		}
	}
	if n := len(workers(h, s)); n != 2 {
		t.Errorf("%d workers", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 1 || told[0] != "found" {
		t.Errorf("the hook after calls was told %q", told)
	}
}

// TestAChildWhoseWorkspaceWasDetachedIsNotMade: it works in the one that was named, or nowhere.
func TestAChildWhoseWorkspaceWasDetachedIsNotMade(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Agents: []actors.Agent{{Name: "lead", Rules: []string{"ask delegate"}}},
		Model:  family(actortest.Say("never"), delegate("1", "x", `,"workspace_id":"lib"`)),
	})
	s, w := h.Create(&messages.CreateSession{Agent: "lead", Ask: true, Workspaces: []*messages.WorkspaceSpec{space(t.TempDir(), "dir"), space(t.TempDir(), "lib")}})
	in := submit(h, s, "go")
	var asked []*messages.ApprovalView
	actortest.Until(t, "the call asks", func() bool {
		asked, _ = actors.Approvals(context.Background(), h.Store, s)
		return len(asked) == 1
	})
	detach(h, s, "lib")
	actortest.Ask[*messages.Ack](h, s, &messages.ResolveApproval{ApprovalId: asked[0].GetApprovalId(), Decision: approved})
	actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	if f := finishedCalls(h, w)[0]; f.GetErrorCode() != tools.CodeWorkspaceNotAvailable || !strings.Contains(f.GetContent(), "'lib' is not available") {
		t.Errorf("the call ended as %v", f)
	}
	if n := len(workers(h, s)); n != 1 {
		t.Errorf("%d workers", n)
	}
}

// TestALateReleaseOfAChildLeavesItsNewLease: kin share a token, so that a grant which comes after its wish was taken back could
// end the next one's lease.
func TestALateReleaseOfAChildLeavesItsNewLease(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	uri, ws := open(h, "/kin/late")
	parent, child := newProbe(h), newProbe(h)
	parent.send(ws, &messages.AcquireLease{Workspace: uri, Holder: "wrk_p", Request: 1})
	parent.granted(t)
	ask := func(request uint64) *messages.LeaseGranted {
		child.send(ws, &messages.AcquireLease{Workspace: uri, Holder: "wrk_c", Parent: "wrk_p", Request: request})
		return child.granted(t)
	}
	first := ask(1)
	child.send(ws, &messages.ReleaseLease{Workspace: uri, Holder: "wrk_c", Request: 1})
	second := ask(2)
	child.send(ws, &messages.ReleaseLease{Workspace: uri, Holder: "wrk_c", Request: 1, Token: first.GetToken()})
	child.send(ws, &messages.EffectBegun{Workspace: uri, Token: second.GetToken(), Child: second.GetChild(), ExecId: "exe_c"})
	if m, ok := actortest.Wait(t, "the child's effect", child.seen).(*messages.EffectAllowed); !ok {
		t.Errorf("the child is told %v", m)
	}
}
