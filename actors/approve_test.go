package actors_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
)

const (
	approved = messages.Decision_APPROVED
	rejected = messages.Decision_REJECTED
	revoked  = messages.Decision_CANCELLED
)

// asker is a session in a Restricted folder whose turn asks for approvals.
type asker struct {
	t     testing.TB
	h     *actortest.House
	o     actortest.Options
	store *memory.Store
	clock *actortest.Clock
	s, w  string
	in    string
	dir   string
	space []*messages.WorkspaceSpec
	calls int // of programs
}

func writes(names ...string) []*messages.ToolCall {
	var out []*messages.ToolCall
	for i, n := range names {
		out = append(out, actortest.Call(fmt.Sprint(i+1), "write_file", fmt.Sprintf(`{"path":%q,"content":"by the agent"}`, n)))
	}
	return out
}

// asks begins a turn that makes calls, and waits until as many approvals are pending.
func asks(t testing.TB, pending int, o actortest.Options, calls ...*messages.ToolCall) *asker {
	t.Helper()
	a := &asker{t: t, store: memory.New(), dir: t.TempDir(), clock: actortest.NewClock(time.UnixMilli(1_700_000_000_000))}
	t.Cleanup(func() { _ = a.store.Close() })
	if err := os.WriteFile(filepath.Join(a.dir, "there"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o.Model == nil {
		o.Model = plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			if actortest.Asked(r) == "yes" {
				return actortest.Reply{Text: "to what?"}
			}
			return actortest.CallThenSay(calls...)(ctx, r)
		})
	}
	o.Clock, o.Now, o.Store, o.DataDir = a.clock, a.clock.Now, a.store, t.TempDir()
	a.o = o
	a.h = actortest.New(t, o)
	a.space = []*messages.WorkspaceSpec{{Uri: "local:" + a.dir, Trust: messages.Trust_RESTRICTED}}
	a.s, a.w = a.h.Create(&messages.CreateSession{Workspaces: a.space, Ask: true})
	a.in = submit(a.h, a.s, "go")
	a.waits(pending)
	return a
}

func (a *asker) waits(pending int) {
	a.t.Helper()
	actortest.Until(a.t, "the turn waits for approvals", func() bool {
		v := a.h.Worker(a.s)
		return v.GetState() == "waiting" && int(v.GetApprovals()) == pending
	})
	if n := len(a.pending()); n != pending {
		a.t.Fatalf("%d approvals are listed, not %d", n, pending)
	}
}

func (a *asker) next() {
	a.t.Helper()
	a.h.Stop()
	a.store = a.store.Reopen()
	store := a.store
	a.t.Cleanup(func() { _ = store.Close() })
	a.o.Store = store
	a.h = actortest.New(a.t, a.o)
}

// pending lists the approvals that wait, in call order.
func (a *asker) pending() []*messages.ApprovalView {
	a.t.Helper()
	all, err := actors.Approvals(context.Background(), a.store, "")
	if err != nil {
		a.t.Fatal(err)
	}
	slices.SortFunc(all, func(x, y *messages.ApprovalView) int { return strings.Compare(x.GetCallId(), y.GetCallId()) })
	return all
}

func (a *asker) say(id string, d messages.Decision_Value, message string) error {
	return a.answer(&messages.ResolveApproval{ApprovalId: id, Decision: d, Message: message, By: "somebody"})
}

func (a *asker) answer(m *messages.ResolveApproval) error {
	m.WorkerId = a.w
	_, err := actortest.Try[*messages.Ack](a.h, a.s, m)
	return err
}

func (a *asker) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *asker) end() *messages.TurnResult {
	a.t.Helper()
	return actortest.Ask[*messages.TurnResult](a.h, a.s, &messages.AwaitTurn{InputId: a.in})
}

func (a *asker) file(name string) string {
	b, err := os.ReadFile(filepath.Join(a.dir, name))
	if err != nil {
		return "none"
	}
	return string(b)
}

// asleep checks that nobody has woken the session.
func (a *asker) asleep() {
	a.t.Helper()
	for _, k := range actortest.Ask[*messages.Tree](a.h, "", &messages.DescribeTree{}).GetRoot().GetChildren() {
		if k.GetId() == a.s {
			a.t.Errorf("the session was woken: %v", k)
		}
	}
}

func TestThreeCallsAreAnsweredInAnyOrderAcrossARestart(t *testing.T) {
	a := asks(t, 3, actortest.Options{}, writes("a", "b", "c")...)
	first := a.pending()
	if !strings.Contains(first[0].GetPreview(), "+by the agent") || first[0].GetKind() != "diff" || first[0].GetState() != "pending" || first[0].GetTool() != "write_file" {
		t.Errorf("listed as %v", first[0])
	}
	submit(a.h, a.s, "yes") // text is no answer
	a.must(a.say(first[2].GetApprovalId(), approved, ""))
	actortest.Until(t, "c is written", func() bool { return a.file("c") == "by the agent" })
	a.waits(2)
	if a.file("a") != "none" || a.file("b") != "none" {
		t.Fatal("a call ran before its answer")
	}
	a.next()
	if got := a.pending(); len(got) != 2 || got[0].GetApprovalId() != first[0].GetApprovalId() {
		t.Fatalf("after the restart: %v", got)
	}
	a.must(a.say(first[1].GetApprovalId(), rejected, "not this one"))
	a.asleep()
	a.waits(1)
	if a.file("a") != "none" {
		t.Fatal("a call ran before its answer")
	}
	a.must(a.say(first[0].GetApprovalId(), approved, ""))
	r := a.end()
	want := "Created a (1 line, 12 bytes)\nOperation rejected by user\nTheir message: not this one\nCreated c (1 line, 12 bytes)\n"
	if r.GetOutcome() != messages.TurnCompleted_DONE || r.GetText() != want {
		t.Errorf("%v %q", r.GetOutcome(), r.GetText())
	}
	if a.file("a") != "by the agent" || a.file("b") != "none" {
		t.Errorf("a %q, b %q", a.file("a"), a.file("b"))
	}
	for _, d := range actortest.Of[*messages.ToolDispatched](a.h.Facts(a.w)) {
		if d.GetExecId() == first[1].GetExecId() {
			t.Error("the rejected call was dispatched")
		}
	}
	for _, f := range actortest.Of[*messages.ToolFinished](a.h.Facts(a.w)) {
		if f.GetExecId() == first[1].GetExecId() && (f.GetStatus() != messages.ToolFinished_DENIED || f.GetErrorCode() != "user_rejected" || !strings.Contains(f.GetDetailsJson(), `"decision":"rejected"`)) {
			t.Errorf("rejected as %v", f)
		}
	}
	for _, id := range first {
		if _, err := actors.ApprovalNamed(context.Background(), a.store, id.GetApprovalId()); actortest.Code(err) != messages.CodeResolved {
			t.Errorf("a second answer: %v", err)
		}
	}
	if v := a.h.Worker(a.s); v.GetApprovals() != 0 || len(a.pending()) != 0 {
		t.Errorf("still listed: %v", a.pending())
	}
}

// TestAnswersToASessionThatSleepsAreNoDeaths gives more answers than a prompt may kill processes: each is an activation of its own.
func TestAnswersToASessionThatSleepsAreNoDeaths(t *testing.T) {
	const calls = 12
	var names []string
	for i := range calls {
		names = append(names, fmt.Sprint("f", i))
	}
	a := asks(t, calls, actortest.Options{}, writes(names...)...)
	a.next()
	for _, v := range a.pending() {
		a.must(a.say(v.GetApprovalId(), approved, ""))
	}
	a.asleep()
	if r := a.end(); r.GetOutcome() != messages.TurnCompleted_DONE || a.file("f11") != "by the agent" {
		t.Errorf("%v, the last file is %q", r, a.file("f11"))
	}
}

func TestWhatReadsAndWhatIsAllowedGoesOnWhileACallWaits(t *testing.T) {
	calls := append(writes("a"), actortest.Call("2", "read_file", `{"path":"there"}`), actortest.Call("3", "todo", `{"items":[]}`))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := actortest.New(t, actortest.Options{Model: actortest.CallThenSay(calls...)})
	s, w := h.Create(&messages.CreateSession{
		Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + dir, Trust: messages.Trust_RESTRICTED}}, Ask: true, Rules: []string{"@read"},
	})
	submit(h, s, "go")
	actortest.Until(t, "the others are done", func() bool {
		return len(actortest.Of[*messages.ToolFinished](h.Facts(w))) == 2 && h.Worker(s).GetState() == "waiting"
	})
	if n := h.Worker(s).GetApprovals(); n != 1 {
		t.Errorf("%d approvals", n)
	}
}

func TestAFileThatChangedSinceItWasShownIsLeftAlone(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("a")...)
	if err := os.WriteFile(filepath.Join(a.dir, "a"), []byte("by a person"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.must(a.say(a.pending()[0].GetApprovalId(), approved, ""))
	r := a.end()
	if a.file("a") != "by a person" || r.GetToolCalls()[0].GetErrorCode() != "concurrent_modification" {
		t.Errorf("%q, %v", a.file("a"), r.GetToolCalls())
	}
}

func TestAFileThatIsNotTheOneThatWasShownIsNotDeleted(t *testing.T) {
	o := actortest.Options{Agents: []actors.Agent{{Name: "default", Tools: []string{"delete_file"}}}}
	for _, now := range []string{"text", "by a person"} {
		a := asks(t, 1, o, actortest.Call("1", "delete_file", `{"path":"there"}`))
		if err := os.WriteFile(filepath.Join(a.dir, "there"), []byte(now), 0o600); err != nil {
			t.Fatal(err)
		}
		a.must(a.say(a.pending()[0].GetApprovalId(), approved, ""))
		code := a.end().GetToolCalls()[0].GetErrorCode()
		if same := now == "text"; same != (a.file("there") == "none") || same != (code == "") || !same && code != "concurrent_modification" {
			t.Errorf("%q: %q, %s", now, a.file("there"), code)
		}
	}
}

func TestASecondChangeOfAFileIsAskedAboutAsTheFirstLeavesIt(t *testing.T) {
	calls := append(writes("a"), actortest.Call("2", "edit_file", `{"path":"a","edits":[{"old_string":"agent","new_string":"editor"}]}`))
	a := asks(t, 1, actortest.Options{}, calls...)
	a.must(a.say(a.pending()[0].GetApprovalId(), approved, ""))
	actortest.Until(t, "the edit is asked about", func() bool { p := a.pending(); return len(p) == 1 && p[0].GetTool() == "edit_file" })
	if p := a.pending()[0].GetPreview(); !strings.Contains(p, "-by the agent") || !strings.Contains(p, "+by the editor") {
		t.Errorf("shown: %s", p)
	}
	a.must(a.say(a.pending()[0].GetApprovalId(), approved, ""))
	if r := a.end(); r.GetOutcome() != messages.TurnCompleted_DONE || a.file("a") != "by the editor" {
		t.Errorf("%v %q", r, a.file("a"))
	}
}

func TestAnApprovalThatNobodyAnswersExpires(t *testing.T) {
	for _, sleeps := range []bool{false, true} {
		a := asks(t, 2, actortest.Options{Limits: actors.Limits{Approval: 90 * time.Second}}, writes("a", "b")...)
		ids := a.pending()
		a.clock.Advance(89 * time.Second)
		a.must(a.say(ids[0].GetApprovalId(), approved, ""))
		if sleeps {
			a.waits(1)
			a.next()
		}
		a.clock.Advance(time.Second)
		if sleeps {
			if err := a.say(ids[1].GetApprovalId(), approved, ""); actortest.Code(err) != messages.CodeResolved {
				t.Errorf("an answer after the deadline: %v", err)
			}
			a.asleep()
		}
		r := a.end()
		c := r.GetToolCalls()[1]
		if c.GetContent() != "Tool execution failed: approval timed out after 90 s" || c.GetErrorCode() != "timeout" || a.file("b") != "none" || a.file("a") == "none" {
			t.Errorf("%v", c)
		}
		f := actortest.Of[*messages.ApprovalResolved](a.h.Facts(a.w))
		if len(f) != 2 || f[1].GetDecision() != messages.Decision_EXPIRED {
			t.Errorf("%v", f)
		}
	}
}

func TestTheFirstOfTwoAnswersCounts(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("a")...)
	id := a.pending()[0].GetApprovalId()
	var all []<-chan actortest.Answer[*messages.Ack]
	for i := range 16 {
		d := approved
		if i%2 == 1 {
			d = rejected
		}
		all = append(all, actortest.Later[*messages.Ack](a.h, a.s, &messages.ResolveApproval{WorkerId: a.w, ApprovalId: id, Decision: d}))
	}
	won := 0
	for _, ch := range all {
		switch x := actortest.Wait(t, "an answer", ch); {
		case x.Err == nil:
			won++
		case actortest.Code(x.Err) != messages.CodeResolved:
			t.Error(x.Err)
		}
	}
	f := actortest.Of[*messages.ApprovalResolved](a.h.Facts(a.w))
	if won != 1 || len(f) != 1 {
		t.Errorf("%d answers counted, %v", won, f)
	}
	a.end()
	if ran := a.file("a") != "none"; ran != (f[0].GetDecision() == approved) {
		t.Errorf("ran %v after %v", ran, f)
	}
}

func TestACancelAnswersWhatIsPending(t *testing.T) {
	for name, end := range map[string]func(a *asker) error{
		"cancel": func(a *asker) error {
			_, err := actortest.Try[*messages.Cancelled](a.h, a.s, &messages.CancelSession{By: "user"})
			return err
		},
		"answer": func(a *asker) error { return a.say(a.pending()[1].GetApprovalId(), revoked, "stop it") },
		"asleep": func(a *asker) error {
			a.next()
			defer a.asleep()
			return a.say(a.pending()[0].GetApprovalId(), revoked, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := asks(t, 2, actortest.Options{}, writes("a", "b")...)
			a.must(end(a))
			if len(a.pending()) != 0 {
				t.Errorf("still pending: %v", a.pending())
			}
			if r := a.end(); r.GetOutcome() != messages.TurnCompleted_ABORTED || a.file("a") != "none" || a.file("b") != "none" {
				t.Errorf("%v", r)
			}
			facts := a.h.Facts(a.w)
			for _, f := range actortest.Of[*messages.ApprovalResolved](facts) {
				if f.GetDecision() != revoked {
					t.Errorf("%v", f)
				}
			}
			for _, f := range actortest.Of[*messages.ToolFinished](facts) {
				if f.GetErrorCode() != "user_rejected" || !strings.Contains(f.GetDetailsJson(), "cancelled") {
					t.Errorf("%v", f)
				}
			}
			works(t, a.h, a.s)
		})
	}
}

func TestTheWorkspaceIsGivenBackWhileAPersonThinks(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("a")...)
	other, _ := a.h.Create(&messages.CreateSession{Workspaces: a.space})
	in := submit(a.h, other, "plain")
	actortest.Until(t, "the other one waits", func() bool { return a.h.Worker(other).GetState() == "waiting" })
	a.clock.Advance(59 * time.Second)
	if a.h.Worker(other).GetState() != "waiting" {
		t.Error("the workspace was given back before its time")
	}
	a.clock.Advance(time.Second)
	if r := actortest.Ask[*messages.TurnResult](a.h, other, &messages.AwaitTurn{InputId: in}); r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Fatal(r)
	}
	facts := a.h.Facts(a.w)
	before := actortest.Of[*messages.TurnStarted](facts)[0].GetLeases()[0].GetToken()
	a.must(a.say(a.pending()[0].GetApprovalId(), approved, ""))
	if r := a.end(); r.GetOutcome() != messages.TurnCompleted_DONE || a.file("a") != "by the agent" {
		t.Errorf("%v", r)
	}
	if d := actortest.Of[*messages.ToolDispatched](a.h.Facts(a.w)); len(d) != 1 || d[0].GetLease().GetToken() <= before {
		t.Errorf("dispatched as %v, first held %d", d, before)
	}
}

func TestAnApproverMayChangeTheArguments(t *testing.T) {
	a := asks(t, 1, actortest.Options{Agents: []actors.Agent{{Name: "default", Rules: []string{"deny write_file(secret/**)"}}}}, writes("a")...)
	id := a.pending()[0].GetApprovalId()
	for args, code := range map[string]string{
		`{"path":"b"}`:                         messages.CodeBadRequest, // no content
		`{"path":"secret/x","content":"mine"}`: messages.CodeBadRequest, // denied by a rule
		`nonsense`:                             messages.CodeBadRequest,
	} {
		if err := a.answer(&messages.ResolveApproval{ApprovalId: id, Decision: approved, Arguments: args}); actortest.Code(err) != code {
			t.Errorf("%s: %v", args, err)
		}
	}
	if err := a.answer(&messages.ResolveApproval{ApprovalId: id, Decision: approved, ArgsHash: []byte("another")}); actortest.Code(err) != messages.CodeConflict {
		t.Errorf("an answer to another call: %v", err)
	}
	a.must(a.answer(&messages.ResolveApproval{ApprovalId: id, Decision: approved, Arguments: `{"path":"b","content":"mine"}`, ArgsHash: a.pending()[0].GetArgsHash()}))
	if r := a.end(); r.GetOutcome() != messages.TurnCompleted_DONE || a.file("a") != "none" || a.file("b") != "mine" {
		t.Errorf("%v", r)
	}
	f := actortest.Of[*messages.ApprovalResolved](a.h.Facts(a.w))[0]
	if f.GetModifiedArgs() == "" || string(f.GetArgsHash()) == "" || f.GetBy() == "" {
		t.Errorf("%v", f)
	}
}

func TestWhereNobodyCanBeAskedNothingWaits(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.CallThenSay(writes("a")...)})
	space := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_RESTRICTED}}
	for _, m := range []*messages.CreateSession{{Workspaces: space}, {Workspaces: space, Ask: true, NoInput: true}} {
		s, w := h.Create(m)
		h.Run(s, "go")
		f := actortest.Of[*messages.ToolFinished](h.Facts(w))
		if len(f) != 1 || f[0].GetStatus() != messages.ToolFinished_DENIED || f[0].GetErrorCode() != "permission_denied" || !strings.Contains(f[0].GetDetailsJson(), "not_asked") {
			t.Errorf("%v", f)
		}
	}
}

func TestAnswersToWhatNobodyAskedAreRefused(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("a")...)
	id := a.pending()[0].GetApprovalId()
	for range 2 { // of a session in memory, and of one that is not
		if err := a.say("apr_none", approved, ""); actortest.Code(err) != messages.CodeNotFound {
			t.Error(err)
		}
		if err := a.say(id, messages.Decision_EXPIRED, ""); actortest.Code(err) != messages.CodeBadRequest {
			t.Error(err)
		}
		a.h.Worker(a.s)
		a.next()
	}
	if len(a.pending()) != 1 || a.file("a") != "none" {
		t.Errorf("%v", a.pending())
	}
}

func TestTheTimeThatAPersonTakesIsNotTheTurns(t *testing.T) {
	a := asks(t, 1, actortest.Options{Limits: actors.Limits{Wall: time.Minute, Hold: time.Hour}}, writes("a")...)
	a.clock.Advance(10 * time.Minute)
	a.must(a.say(a.pending()[0].GetApprovalId(), approved, ""))
	if r := a.end(); r.GetOutcome() != messages.TurnCompleted_DONE || a.file("a") == "none" {
		t.Errorf("%v", r)
	}
}

func TestAProgramsCallAsksToo(t *testing.T) {
	a := asks(t, 1, actortest.Options{}, writes("a")...)
	a.must(a.say(a.pending()[0].GetApprovalId(), rejected, ""))
	a.end()
	reply := actortest.Later[*messages.ToolReply](a.h, a.s, &messages.CallTool{CallId: "call_1", Tool: "write_file", Arguments: `{"path":"p","content":"x"}`})
	a.waits(1)
	a.must(a.say(a.pending()[0].GetApprovalId(), approved, ""))
	if r := actortest.Wait(t, "the reply", reply); r.Err != nil || r.Reply.GetStatus() != messages.ToolFinished_OK || a.file("p") != "x" {
		t.Errorf("%v", r)
	}
}

func TestACommandIsShownAsItWillRun(t *testing.T) {
	a := asks(t, 1, actortest.Options{Agents: []actors.Agent{{Name: "default", Tools: []string{"exec"}}}},
		actortest.Call("1", "exec", `{"command":"go test ./...","network":true}`))
	if p := a.pending()[0]; p.GetKind() != "command" || p.GetPreview() != "go test ./...\n# with network access" {
		t.Errorf("%v", p)
	}
}
