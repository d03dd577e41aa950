package actors_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// scoped answers an approval so that it is remembered.
func (a *asker) scoped(v *messages.ApprovalView, d messages.Decision_Value, scope, rule string) error {
	return a.answer(&messages.ResolveApproval{ApprovalId: v.GetApprovalId(), Decision: d, Scope: scope, Rule: rule, By: "somebody"})
}

// tries makes a program's call in a session and tells how it was decided; what asks is rejected.
func (a *asker) tries(session, tool, args string) string {
	a.t.Helper()
	if err := os.Remove(filepath.Join(a.dir, "x")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.t.Fatal(err)
	}
	a.calls++
	id := fmt.Sprint("call_", a.calls)
	reply := actortest.Later[*messages.ToolReply](a.h, session, &messages.CallTool{CallId: id, Tool: tool, Arguments: args})
	var asked *messages.ApprovalView
	var r actortest.Answer[*messages.ToolReply]
	done := false
	actortest.Until(a.t, "the call is decided", func() bool {
		select {
		case r = <-reply:
			done = true
		default:
		}
		for _, v := range a.pending() {
			if v.GetCallId() == id {
				asked = v
			}
		}
		return done || asked != nil
	})
	if asked != nil {
		if _, err := actortest.Try[*messages.Ack](a.h, session, &messages.ResolveApproval{WorkerId: asked.GetWorkerId(), ApprovalId: asked.GetApprovalId(), Decision: rejected}); err != nil {
			a.t.Fatal(err)
		}
		actortest.Wait(a.t, "the rejected call", reply)
		return "ask"
	}
	if r.Err != nil {
		a.t.Fatalf("%s(%s): %v", tool, args, r.Err)
	}
	if r.Reply.GetErrorCode() == "permission_denied" {
		return "deny"
	}
	return "allow"
}

func (a *asker) decided(session string, want map[string]string) {
	a.t.Helper()
	for call, w := range want {
		tool, args, _ := strings.Cut(call, " ")
		if got := a.tries(session, tool, args); got != w {
			a.t.Errorf("%s: %s, not %s", call, got, w)
		}
	}
}

func (a *asker) rules() []*messages.RuleView {
	a.t.Helper()
	own, err := actors.RememberedBy(context.Background(), a.store, "")
	if err != nil {
		a.t.Fatal(err)
	}
	return append(own, a.h.Svc.Standing()...)
}

func (a *asker) revoke(v *messages.RuleView) {
	a.t.Helper()
	m := &messages.RevokeRule{RuleId: v.GetRuleId(), By: "me"}
	if v.GetScope() == "session" {
		actortest.Ask[*messages.Ack](a.h, "", &messages.ToSession{SessionId: v.GetSessionId(), Command: &messages.ToSession_RevokeRule{RevokeRule: m}})
		return
	}
	actortest.Ask[*messages.Ack](a.h, "", m)
}

// another makes one more session that can be asked.
func (a *asker) another(agent string, space []*messages.WorkspaceSpec) string {
	s, _ := a.h.Create(&messages.CreateSession{Agent: agent, Workspaces: space, Ask: true})
	return s
}

const writesX = `write_file {"path":"x","content":"1"}`

func TestAnAnswerHoldsForItsScopeAndForNothingElse(t *testing.T) {
	agents := []actors.Agent{{Name: "default"}, {Name: "other"}}
	elsewhere := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_RESTRICTED}}
	for scope, c := range map[string]struct{ same, agent string }{
		"session": {"ask", "ask"}, "agent": {"allow", "ask"}, "always": {"allow", "allow"},
	} {
		t.Run(scope, func(t *testing.T) {
			a := asks(t, 1, actortest.Options{Agents: agents}, writes("x")...)
			a.must(a.scoped(a.pending()[0], approved, scope, ""))
			a.end()
			check := func() {
				t.Helper()
				a.decided(a.s, map[string]string{writesX: "allow", `write_file {"path":"y","content":"1"}`: "ask", `create_directory {"path":"x"}`: "ask", `read_file {"path":"x"}`: "ask"})
				a.decided(a.another("", a.space), map[string]string{writesX: c.same})
				a.decided(a.another("other", a.space), map[string]string{writesX: c.agent})
				a.decided(a.another("", elsewhere), map[string]string{writesX: "ask"})
			}
			check()
			all := a.rules()
			if len(all) != 1 || all[0].GetRule() != "write_file(x)" || all[0].GetScope() != scope || all[0].GetBy() != "somebody" || all[0].GetSessionId() != a.s || all[0].GetWorkspace() != "local:"+a.dir {
				t.Fatalf("%v", all)
			}
			a.next()
			check()
			if again := a.rules(); len(again) != 1 || !proto.Equal(again[0], all[0]) {
				t.Fatalf("after a restart: %v", again)
			}
			a.revoke(all[0])
			a.decided(a.s, map[string]string{writesX: "ask"})
			a.decided(a.another("", a.space), map[string]string{writesX: "ask"})
			a.next()
			a.decided(a.s, map[string]string{writesX: "ask"})
			if again := a.rules(); len(again) != 0 {
				t.Errorf("%v", again)
			}
			f := actortest.Of[*messages.ApprovalResolved](a.h.Facts(a.w))[0]
			if f.GetRule() != "write_file(x)" || f.GetRuleId() != all[0].GetRuleId() || f.GetScope() != scope {
				t.Errorf("kept as %v", f)
			}
		})
	}
}

func TestAnAnswerToACommandCoversNoOther(t *testing.T) {
	o := actortest.Options{Agents: []actors.Agent{{Name: "default", Tools: []string{"exec"}}, {Name: "without", Tools: []string{"read_file"}}}}
	a := asks(t, 1, o, actortest.Call("1", "exec", `{"command":"go test ./..."}`))
	if p := a.pending()[0]; !slices.Equal(p.GetRules(), []string{"exec(go test ./...)"}) {
		t.Errorf("%v", p)
	}
	a.must(a.scoped(a.pending()[0], approved, "always", ""))
	a.end()
	a.decided(a.s, map[string]string{
		`exec {"command":"go test ./..."}`:              "allow",
		`exec {"command":"go test ./...; rm -rf x"}`:    "ask",
		`exec {"command":"go test ./... > f"}`:          "ask",
		`exec {"command":"A=b go test ./..."}`:          "ask",
		`exec {"command":"go test ./...\nrm x"}`:        "ask",
		`exec {"command":"go test ./...","cwd":"sub"}`:  "ask",
		`exec {"command":"go test ./...","cwd":"../x"}`: "ask",

		`exec {"command":"go test ./...","background":true}`: "ask",
	})
	a.decided(a.another("without", a.space), map[string]string{`exec {"command":"go test ./..."}`: "deny"}) // it has no such tool
}

func TestWhatCannotBeRememberedIsNotAnswered(t *testing.T) {
	o := actortest.Options{Agents: []actors.Agent{{Name: "default", Tools: []string{"exec", "read_file", "write_file"}}}}
	a := asks(t, 3, o, actortest.Call("1", "exec", `{"command":"make; rm x"}`), actortest.Call("2", "write_file", `{"path":"a*","content":""}`), actortest.Call("3", "read_file", `{"path":"there"}`))
	p := a.pending()
	for name, m := range map[string]*messages.ResolveApproval{
		"a chain":               {ApprovalId: p[0].GetApprovalId(), Decision: approved, Scope: "always"},
		"a chain, refused":      {ApprovalId: p[0].GetApprovalId(), Decision: rejected, Scope: "session"},
		"a wildcard":            {ApprovalId: p[1].GetApprovalId(), Decision: approved, Scope: "session"},
		"another rule":          {ApprovalId: p[2].GetApprovalId(), Decision: approved, Scope: "session", Rule: "exec"},
		"a wider rule":          {ApprovalId: p[2].GetApprovalId(), Decision: approved, Scope: "session", Rule: "read_file"},
		"all reads for ever":    {ApprovalId: p[2].GetApprovalId(), Decision: approved, Scope: "always", Rule: "@read"},
		"all reads, refused":    {ApprovalId: p[2].GetApprovalId(), Decision: rejected, Scope: "session", Rule: "@read"},
		"no such scope":         {ApprovalId: p[2].GetApprovalId(), Decision: approved, Scope: "forever"},
		"a rule once":           {ApprovalId: p[2].GetApprovalId(), Decision: approved, Rule: "@read"},
		"the end of the turn":   {ApprovalId: p[2].GetApprovalId(), Decision: revoked, Scope: "session"},
		"edited, into a chain":  {ApprovalId: p[0].GetApprovalId(), Decision: approved, Scope: "always", Arguments: `{"command":"make && true"}`},
		"edited, to a wildcard": {ApprovalId: p[2].GetApprovalId(), Decision: approved, Scope: "always", Arguments: `{"path":"*"}`},
	} {
		if err := a.answer(m); actortest.Code(err) != messages.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(a.pending()) != 3 || len(a.rules()) != 0 {
		t.Fatalf("%v %v", a.pending(), a.rules())
	}
	if p[0].GetUnremembered() == "" || p[1].GetUnremembered() == "" || !slices.Equal(p[2].GetRules(), []string{"@read", "read_file(there)"}) {
		t.Errorf("shown as %v", p)
	}
	a.must(a.answer(&messages.ResolveApproval{ApprovalId: p[0].GetApprovalId(), Decision: approved, Scope: "agent", Arguments: `{"command":"make"}`}))
	a.must(a.scoped(p[1], approved, "once", ""))
	a.must(a.scoped(p[2], approved, "session", "@read"))
	if r := a.end(); r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Fatal(r)
	}
	a.decided(a.s, map[string]string{`read_file {"path":"a*"}`: "allow", `exec {"command":"make"}`: "allow", `exec {"command":"make; rm x"}`: "ask", `write_file {"path":"a*","content":""}`: "ask"})
}

func TestARefusalIsRememberedToo(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("x")...)
	a.must(a.scoped(a.pending()[0], rejected, "session", ""))
	a.end()
	a.decided(a.s, map[string]string{writesX: "deny", `write_file {"path":"y","content":"1"}`: "ask"})
	a.decided(a.another("", a.space), map[string]string{writesX: "ask"})
	if a.file("x") != "none" {
		t.Error("it was written")
	}
}

func TestTwoAnswersWithTheSameScopeLeaveOneRule(t *testing.T) {
	for _, scope := range []string{"session", "always"} {
		a := asks(t, 2, actortest.Options{Agents: []actors.Agent{{Name: "default", Tools: []string{"exec"}}}},
			actortest.Call("1", "exec", `{"command":"make"}`), actortest.Call("2", "exec", `{"command":"make"}`))
		var all []<-chan actortest.Answer[*messages.Ack]
		for _, v := range a.pending() {
			for range 4 { // the question is not settled by the rule, and two answers to it are one too many
				all = append(all, actortest.Later[*messages.Ack](a.h, a.s, &messages.ResolveApproval{WorkerId: a.w, ApprovalId: v.GetApprovalId(), Decision: approved, Scope: scope}))
			}
		}
		won := 0
		for _, ch := range all {
			if x := actortest.Wait(t, "an answer", ch); x.Err == nil {
				won++
			} else if actortest.Code(x.Err) != messages.CodeResolved {
				t.Error(x.Err)
			}
		}
		if won != 2 || len(a.rules()) != 1 {
			t.Errorf("%s: %d answers counted, %v", scope, won, a.rules())
		}
		a.end()
	}
}

func TestARuleThatIsTakenBackAnswersNothingThatWaits(t *testing.T) {
	a := asks(t, 2, actortest.Options{Agents: []actors.Agent{{Name: "default", Tools: []string{"exec"}}}},
		actortest.Call("1", "exec", `{"command":"make"}`), actortest.Call("2", "exec", `{"command":"make"}`))
	p := a.pending()
	a.must(a.scoped(p[0], approved, "always", ""))
	a.waits(1)
	a.revoke(a.rules()[0])
	a.waits(1)
	a.next() // recovered without it
	a.waits(1)
	a.must(a.say(p[1].GetApprovalId(), rejected, ""))
	if r := a.end(); r.GetToolCalls()[1].GetErrorCode() != "user_rejected" {
		t.Errorf("%v", r)
	}
	a.decided(a.s, map[string]string{`exec {"command":"make"}`: "ask"})
}

func TestARuleIsWrittenBeforeTheAnswerThatLeavesIt(t *testing.T) {
	for _, scope := range []string{"session", "agent", "always"} {
		a := asks(t, 1, actortest.Options{}, writes("x")...)
		a.h.Stop()
		a.store = a.store.Reopen()
		t.Cleanup(func() { _ = a.store.Close() })
		held := &actortest.Store{Store: a.store}
		a.o.Store = held
		a.h = actortest.New(t, a.o)
		came, release := held.Hold(actortest.Is[*messages.ApprovalResolved])
		v := a.pending()[0]
		answer := actortest.Later[*messages.Ack](a.h, a.s, &messages.ResolveApproval{WorkerId: a.w, ApprovalId: v.GetApprovalId(), Decision: approved, Scope: scope})
		actortest.Wait(t, "the answer is on its way to the disk", came)
		if all := a.rules(); len(all) != 1 {
			t.Errorf("%s: the answer is written, and its rule is not: %v", scope, all)
		}
		if len(a.pending()) != 1 {
			t.Errorf("%s: answered before it was written", scope)
		}
		release()
		if x := actortest.Wait(t, "the answer", answer); x.Err != nil {
			t.Error(x.Err)
		}
		a.end()
	}
}

func TestAnAnswerWhoseRuleCannotBeWrittenIsNone(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("x")...)
	a.h.Stop()
	a.store = a.store.Reopen()
	t.Cleanup(func() { _ = a.store.Close() })
	broken := &actortest.Store{Store: a.store}
	a.o.Store = broken
	a.h = actortest.New(t, a.o)
	v := a.pending()[0]
	for _, scope := range []string{"session", "always"} {
		fails := 1
		broken.Refuse(func(f proto.Message) error {
			_, own := f.(*messages.RuleAdded)
			_, standing := f.(*messages.RuleRemembered)
			if (own || standing) && fails > 0 {
				fails--
				return errors.New("no")
			}
			return nil
		})
		if err := a.scoped(v, approved, scope, ""); err == nil {
			t.Errorf("%s: answered", scope)
		}
		a.waits(1)
		if len(a.rules()) != 0 || a.file("x") != "none" {
			t.Errorf("%s: %v", scope, a.rules())
		}
	}
	a.must(a.scoped(v, approved, "session", ""))
	if a.end(); a.file("x") == "none" || len(a.rules()) != 1 {
		t.Errorf("%v", a.rules())
	}
}

func TestASleepingSessionIsAnsweredWithAScope(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("x")...)
	a.next()
	a.must(a.scoped(a.pending()[0], approved, "session", ""))
	a.end()
	a.decided(a.s, map[string]string{writesX: "allow"})
}

func TestRulesOfASessionEndWithIt(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("x")...)
	a.must(a.scoped(a.pending()[0], approved, "session", ""))
	a.end()
	actortest.Ask[*messages.Ack](a.h, a.s, &messages.CloseSession{})
	if all := a.rules(); len(all) != 0 {
		t.Errorf("%v", all)
	}
}

// TestWhatCannotBeReadAllowsNothing: a rule that denies may be among those of the whole store that cannot be read.
func TestWhatCannotBeReadAllowsNothing(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("x")...)
	a.must(a.scoped(a.pending()[0], approved, "session", ""))
	a.end()
	a.decided(a.s, map[string]string{writesX: "allow"})
	j, err := persistence.OpenJournal(context.Background(), a.store, messages.SystemStream, "", "test")
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	j.Append(func(_ persistence.Receipt, err error) { written <- err }, persistence.Draft{Records: []*messages.Record{{Type: 9999, Body: []byte("?")}}})
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	j.Release()
	a.next()
	a.decided(a.s, map[string]string{writesX: "ask"})
}
