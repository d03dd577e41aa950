package troupe_test

import (
	"context"
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// between is a model that runs a function before its second answer of a turn.
type between struct {
	*stepwise
	once sync.Once
	do   func()
}

func (m *between) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	if slices.ContainsFunc(req.Prompt.Messages, func(s *messages.Message) bool { return s.Role == messages.Assistant }) {
		m.once.Do(m.do)
	}
	return m.stepwise.Stream(ctx, req)
}

// TestTheToolsetOfALiveConversationChanges changes it in the middle of a model call: that one was offered the old set, and its call is
// refused in words; the next one is offered the new set, and so is the next process (acceptance row 34).
func TestTheToolsetOfALiveConversationChanges(t *testing.T) {
	m := &between{stepwise: &stepwise{calls: calls(`list_files {}`, writesB, `list_files {}`)}}
	o := troupe.Options{Model: m}
	p := newPlaceWith(t, o)
	s, err := p.Session(t.Context(), troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	m.do = func() {
		if err := s.SetTools(t.Context(), "list_files", "read_file"); err != nil {
			t.Errorf("set the tools: %v", err)
		}
	}
	r := prompt(t, s, "go")
	if got := r.ToolCalls[1]; got.GetStatus() != "denied" || !strings.Contains(got.GetContent(), "write_file is not in the toolset") || r.ToolCalls[2].GetStatus() != "ok" {
		t.Errorf("%v", r.ToolCalls)
	}
	if !slices.Contains(m.offered[1], "write_file") || !slices.Equal(m.offered[2], []string{"list_files", "read_file"}) {
		t.Errorf("offered %v", m.offered)
	}
	p.again(t, o)
	if s, err = p.Open(t.Context(), s.ID()); err != nil {
		t.Fatal(err)
	}
	if got := unaskedWrite(t, s); got != "denied" {
		t.Errorf("after a restart it writes: %v", got)
	}
	if err := s.SetTools(t.Context(), troupe.AgentTools); err != nil || unaskedWrite(t, s) != "ok" {
		t.Errorf("its agent's toolset again: %v", err)
	}
	wantCode(t, "a tool that there is not", s.SetTools(t.Context(), "read_fil"), messages.CodeBadRequest)
	wantCode(t, "none", s.SetTools(t.Context()), messages.CodeBadRequest)
	var sets []string
	for _, e := range auditOf(t, p.Runtime, s.ID()) {
		if e.GetKind() == "toolset" {
			sets = append(sets, e.GetBy()+": "+e.GetWhat())
		}
	}
	if !slices.Equal(sets, []string{"program: list_files read_file", "program: *"}) {
		t.Errorf("recorded: %v", sets)
	}
}

func TestACallThatWaitsForItsApprovalIsRefusedWhenItsToolIsTakenAway(t *testing.T) {
	dir := t.TempDir()
	rt, ctx := runtimeOf(t, troupe.Options{Model: &stepwise{calls: calls(writesB)}})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Ask: true})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan *troupe.Result, 1)
	for e, err := range s.Stream(ctx, "go") {
		if err != nil {
			t.Fatal(err)
		}
		if e.GetType() == messages.EventApprovalRequested {
			go func() {
				r, err := s.Wait(ctx)
				if err != nil {
					t.Errorf("wait: %v", err)
				}
				done <- r
			}()
			if err := s.SetTools(ctx, "read_file"); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := <-done
	if got := r.ToolCalls[0]; r.Outcome != "done" || got.GetStatus() != "denied" || !strings.Contains(got.GetContent(), "write_file was taken from the toolset") {
		t.Errorf("%v %v", r.Outcome, got)
	}
	if all, err := rt.Approvals(ctx); err != nil || len(all) != 0 {
		t.Errorf("it is asked still: %v %v", all, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "b")); err == nil {
		t.Error("it ran")
	}
}

func auditOf(t *testing.T, rt *troupe.Runtime, session string) []*troupe.AuditEntry {
	t.Helper()
	all, err := rt.Audit(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAnAuditTellsWhoLetWhatRun has one call allowed by a rule, one approved, one rejected, one denied and one that there is no tool for.
func TestAnAuditTellsWhoLetWhatRun(t *testing.T) {
	m := &stepwise{calls: calls(`list_files {}`, writesB, `create_directory {"path":"d"}`, `exec {"command":"true"}`, `no_such {}`, `read_file {"path":"b"}`, wantsAccess)}
	approve := func(_ context.Context, a *troupe.Approval) troupe.Answer {
		switch a.GetTool() {
		case "create_directory":
			return troupe.Answer{Decision: troupe.Rejected, By: "ann", Message: "not here"}
		case "read_file":
			return troupe.Answer{Decision: troupe.Approved, By: "ann", Scope: troupe.Always}
		}
		return troupe.Answer{Decision: troupe.Approved, By: "bob"}
	}
	o := troupe.Options{Model: m, Approve: approve}
	p := newPlaceWith(t, o)
	s, err := p.Session(t.Context(), troupe.SessionOptions{Dir: t.TempDir(), Rules: []string{"list_files"}})
	if err != nil {
		t.Fatal(err)
	}
	prompt(t, s, "go")
	check := func(all []*troupe.AuditEntry, more ...string) {
		t.Helper()
		var got []string
		for _, e := range all {
			j := e.JSON()
			if j.Kind == "call" && (j.Session != s.ID() || j.ExecID == "" || j.Agent != "default" || j.Turn == "" || (j.ArgsHash == "") != (j.What == "no_such")) {
				t.Errorf("%+v", j)
			}
			if back, err := json.Marshal(j.Proto().JSON()); err != nil || !same(t, back, j) {
				t.Errorf("there and back: %s", back)
			}
			got = append(got, strings.Join([]string{j.Kind, j.What, j.Decision, j.By, j.Outcome, j.Scope}, ","))
		}
		want := []string{
			"trust,restricted,set,,,", "trust,full,set,,,",
			"call,list_files,allowed,,ok,", "call,write_file,approved,bob,ok,once", "call,create_directory,rejected,ann,denied,once",
			"call,exec,denied,,denied,", "call,no_such,refused,,error,", "rule,read_file(b),set,ann,,always", "call,read_file,approved,ann,ok,always",
			"call,request_write_access,approved,bob,ok,once", "trust,full,set,bob,,", "session,agent default,created,,,",
		}
		want = append(want, more...)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the audit is\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	all := auditOf(t, p.Runtime, s.ID())
	check(all)
	for _, e := range all {
		switch {
		case e.GetWhat() == "list_files" && (e.GetWhy() != "rule list_files" || e.GetDurationUs() == 0):
			t.Errorf("%v", e)
		case e.GetWhat() == "create_directory" && e.GetMessage() != "not here":
			t.Errorf("%v", e)
		}
	}
	p.again(t, o)
	check(auditOf(t, p.Runtime, ""))
	if _, err := p.Ask(t.Context(), &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Close{Close: &messages.CloseSession{Reason: "enough"}}}); err != nil {
		t.Fatal(err)
	}
	check(auditOf(t, p.Runtime, s.ID()), "session,enough,closed,user,,")
	_, err = p.Audit(t.Context(), "ses_none")
	wantCode(t, "of no session", err, messages.CodeNotFound)
}

func same(t *testing.T, raw []byte, v any) bool {
	t.Helper()
	want, err := json.Marshal(v)
	return err == nil && string(want) == string(raw)
}
