package actors_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// TestAChildMayDoNoMoreThanItsParent gives it an agent whose tools, rules and workspaces would be wider.
func TestAChildMayDoNoMoreThanItsParent(t *testing.T) {
	dir := t.TempDir()
	var offered []string
	h := actortest.New(t, actortest.Options{
		Agents: []actors.Agent{
			{Name: "careful", Tools: []string{"delegate", "read_file", "write_file", "list_files"}, Rules: []string{"deny write_file(secret/**)"}},
			{Name: "bold", Rules: []string{"allow write_file(**)", "allow delete_file(**)"}, Tools: []string{"write_file", "delete_file", "read_file"}},
		},
		Model: family(func(ctx context.Context, r *model.Request) actortest.Reply {
			for _, d := range r.Tools {
				offered = append(offered, d.Name)
			}
			return actortest.CallThenSay(
				actortest.Call("1", "write_file", `{"path":"secret/x","content":"x"}`), actortest.Call("2", "delete_file", `{"path":"there"}`),
				actortest.Call("3", "write_file", `{"path":"fine","content":"x"}`), actortest.Call("4", "write_file", `{"path":"x","content":"x","workspace_id":"home"}`),
			)(ctx, r)
		}, delegate("1", "x", `,"agent":"bold"`, `,"workspace_id":"main"`)),
	})
	if err := os.WriteFile(filepath.Join(dir, "there"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := h.Create(&messages.CreateSession{Agent: "careful", Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + dir, Name: "main", Trust: messages.Trust_FULL}}})
	h.Run(s, "go")
	var got []string
	for _, f := range finishedCalls(h, workers(h, s)[1].GetId()) {
		got = append(got, f.GetTool()+" "+f.GetStatus().String()+" "+f.GetContent())
	}
	slices.Sort(got)
	want := []string{"delete_file DENIED", "write_file DENIED", "write_file ERROR Workspace 'home' not found; there are: main", "write_file OK"}
	for i := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("the child's calls are %q, want %q", got, want)
			break
		}
	}
	slices.Sort(offered)
	if want := []string{"read_file", "write_file"}; !slices.Equal(slices.Compact(offered), want) {
		t.Errorf("offered %v, want %v", offered, want)
	}
}

// TestAnApprovalOfAChildSaysWhoseItIs and is answered like any other one; the parent's call waits as long.
func TestAnApprovalOfAChildSaysWhoseItIs(t *testing.T) {
	a := &asker{t: t, dir: t.TempDir()}
	h := actortest.New(t, actortest.Options{Model: family(actortest.CallThenSay(writes("by-child")...), delegate("1", "x")), Agents: []actors.Agent{{Name: "lead", Tools: []string{"delegate", "write_file"}, Rules: []string{"allow delegate"}}}})
	s, w := h.Create(&messages.CreateSession{Agent: "lead", Ask: true, Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + a.dir, Trust: messages.Trust_RESTRICTED}}})
	in := submit(h, s, "go")
	var pending []*messages.ApprovalView
	actortest.Until(t, "the child asks", func() bool {
		all, err := actors.Approvals(context.Background(), h.Store, s)
		pending = all
		return err == nil && len(all) == 1
	})
	v := pending[0]
	if child := workers(h, s)[1]; v.GetWorkerId() != child.GetId() || v.GetParent() != w || v.GetAgent() != "lead" {
		t.Errorf("shown as %v", v)
	}
	actortest.Ask[*messages.Ack](h, s, &messages.ResolveApproval{WorkerId: v.GetWorkerId(), ApprovalId: v.GetApprovalId(), Decision: approved})
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in}); r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("the turn ended as %v", r)
	}
	if _, err := os.Stat(filepath.Join(a.dir, "by-child")); err != nil {
		t.Error(err)
	}
}

// TestAChildWhosePersonIsNotThereIsToldSo and so is its parent, when the answer to it ends the child's turn.
func TestAChildWhosePersonIsNotThereIsToldSo(t *testing.T) {
	agents := []actors.Agent{{Name: "lead", Tools: []string{"delegate", "write_file"}, Rules: []string{"allow delegate"}}}
	h := actortest.New(t, actortest.Options{Model: family(actortest.CallThenSay(writes("by-child")...), delegate("1", "x")), Agents: agents})
	restricted := func() []*messages.WorkspaceSpec {
		return []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_RESTRICTED}}
	}
	s, _ := h.Create(&messages.CreateSession{Agent: "lead", NoInput: true, Workspaces: restricted()})
	if got := h.Run(s, "go").GetText(); !strings.Contains(got, "nobody can be asked") {
		t.Errorf("the parent was told %q", got)
	}
	s, w := h.Create(&messages.CreateSession{Agent: "lead", Ask: true, Workspaces: restricted()})
	in := submit(h, s, "go")
	actortest.Until(t, "the child asks", func() bool {
		all, _ := actors.Approvals(context.Background(), h.Store, s)
		for _, v := range all {
			actortest.Ask[*messages.Ack](h, s, &messages.ResolveApproval{WorkerId: v.GetWorkerId(), ApprovalId: v.GetApprovalId(), Decision: revoked, Message: "not today"})
		}
		return len(all) == 1
	})
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	f := finishedCalls(h, w)[0]
	if r.GetOutcome() != messages.TurnCompleted_DONE || f.GetErrorCode() != tools.CodeCancelled || !strings.Contains(f.GetContent(), "not today") {
		t.Errorf("the turn ended as %v after %v", r, f)
	}
}
