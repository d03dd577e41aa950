package troupe_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
)

// remembering runs a turn in a folder whose one call is approved for the session.
func remembering(t *testing.T, p *place, dir string, scope troupe.Scope) *troupe.Session {
	t.Helper()
	ctx := t.Context()
	s, err := p.Session(ctx, troupe.SessionOptions{Dir: dir, Ask: true})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, "go")
		done <- err
	}()
	for {
		all, err := p.Approvals(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 {
			if err := p.ResolveApproval(ctx, all[0].GetApprovalId(), troupe.Answer{Decision: troupe.Approved, Scope: scope}); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return s
}

func rulesOf(t *testing.T, p *place) []*troupe.Rule {
	t.Helper()
	all, err := p.Rules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// asksStill tells whether writing the file asks in a session.
func asksStill(t *testing.T, p *place, dir, session string) bool {
	t.Helper()
	ctx := t.Context()
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	done := make(chan *messages.ToolReply, 1)
	go func() {
		m, _ := p.Ask(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_CallTool{CallTool: &messages.CallTool{
			CallId: messages.NewID("call_"), Tool: "write_file", Arguments: `{"path":"a","content":"x"}`,
		}}})
		r, _ := m.(*messages.ToolReply)
		done <- r
	}()
	for {
		select {
		case r := <-done:
			if r.GetStatus() != messages.ToolFinished_OK {
				t.Fatalf("%v", r)
			}
			return false
		default:
		}
		all, err := p.Approvals(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if err := p.ResolveApproval(ctx, a.GetApprovalId(), troupe.Answer{Decision: troupe.Rejected}); err != nil {
				t.Fatal(err)
			}
			<-done
			return true
		}
	}
}

func TestAProgramRemembersAndTakesBack(t *testing.T) {
	p, dir := newPlace(t, writesOnce{}), t.TempDir()
	s := remembering(t, p, dir, troupe.ForAgent)
	all := rulesOf(t, p)
	if len(all) != 1 || all[0].GetAgent() != "default" || all[0].GetScope() != "agent" || asksStill(t, p, dir, s.ID()) {
		t.Fatalf("%v", all)
	}
	if err := p.RevokeRule(t.Context(), all[0].GetRuleId()); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "taken back twice", p.RevokeRule(t.Context(), all[0].GetRuleId()), messages.CodeNotFound)
	if !asksStill(t, p, dir, s.ID()) || len(rulesOf(t, p)) != 0 {
		t.Error("it counts still")
	}
}

func TestACopyOfASessionRemembersWhatItMay(t *testing.T) {
	p, dir := newPlace(t, writesOnce{}), t.TempDir()
	s := remembering(t, p, dir, troupe.ForSession)
	f, err := p.Fork(t.Context(), s.ID(), troupe.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := rulesOf(t, p)
	if len(all) != 2 || all[0].GetRuleId() == all[1].GetRuleId() || all[0].GetSessionId() == all[1].GetSessionId() {
		t.Fatalf("%v", all)
	}
	if asksStill(t, p, dir, f.ID()) {
		t.Error("the fork asks")
	}
	for _, r := range all {
		if r.GetSessionId() != f.ID() {
			continue
		}
		if err := p.RevokeRule(t.Context(), r.GetRuleId()); err != nil {
			t.Fatal(err)
		}
	}
	if !asksStill(t, p, dir, f.ID()) || asksStill(t, p, dir, s.ID()) {
		t.Error("a rule of the fork is one of the session's")
	}

	file := export(t, p, s.ID())
	other := newPlace(t, writesOnce{})
	load(t, other, file, &messages.ImportSession{})
	if again := load(t, other, file, &messages.ImportSession{}); !again.GetIdentical() {
		t.Errorf("brought in again as %v", again)
	}
	if got := rulesOf(t, other); len(got) != 0 || !asksStill(t, other, dir, s.ID()) {
		t.Errorf("a file brings rules along: %v", got)
	}
	trusting := newPlace(t, writesOnce{})
	load(t, trusting, file, &messages.ImportSession{KeepTrust: true})
	if got := rulesOf(t, trusting); len(got) != 1 || asksStill(t, trusting, dir, s.ID()) {
		t.Errorf("%v", got)
	}
}
