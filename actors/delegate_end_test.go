package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// orderly checks the records of a session: no call that delegates ends before its child's turn has (I13), and at the end
// no turn is open.
func orderly(t *testing.T, store persistence.Store, session string) {
	t.Helper()
	open, child := make(map[string]bool), make(map[string]string)
	err := store.ReadSession(context.Background(), session, 0, func(e persistence.Entry) error {
		if strings.HasPrefix(e.Stream, "ses/") {
			if f, _ := messages.SessionFactIn(e.Record); f != nil {
				if s, ok := f.(*messages.WorkerSpawned); ok && s.GetExecId() != "" {
					child[s.GetExecId()] = "wrk/" + s.GetWorkerId()
				}
			}
			return nil
		}
		f, err := messages.WorkerFactIn(e.Record)
		switch f := f.(type) {
		case *messages.InputAccepted:
			open[e.Stream] = true
		case *messages.InputWithdrawn, *messages.TurnCompleted:
			open[e.Stream] = false
		case *messages.ToolFinished:
			if open[child[f.GetExecId()]] {
				t.Errorf("call %s ended before its child's turn", f.GetExecId())
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for stream, is := range open {
		if is {
			t.Errorf("%s has an open turn, or a task that waits for one", stream)
		}
	}
}

// stored is a store that is closed at the end of the test.
func stored(t *testing.T) *memory.Store {
	s := memory.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// stuckChildren is a parent with two children, whose calls wait at a gate.
func stuckChildren(t *testing.T, gate *actortest.Gate, store persistence.Store, dir string) *actortest.House {
	stay := tool(t, "stay", atMostOnce, func(ctx context.Context, _ string) (string, error) { return "stayed", gate.Pass(ctx) })
	return actortest.New(t, actortest.Options{
		Store: store, DataDir: dir, Tools: []tools.Tool{stay},
		Model: plainOr(family(actortest.CallThenSay(actortest.Call("1", "stay", `{"name":"x"}`)), delegate("1", "one", `,"workspace_id":"home"`), delegate("2", "two"))),
	})
}

func TestACancelOfTheParentEndsItsChildrenFirst(t *testing.T) {
	gate, store := actortest.NewGate(), stored(t)
	h := stuckChildren(t, gate, store, t.TempDir())
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the first child's call", gate.Came)
	actortest.Wait(t, "the second child's call", gate.Came)
	if c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{WorkerId: w, By: "user"}); c.GetTurns() != 1 {
		t.Errorf("%d turns cancelled", c.GetTurns())
	}
	for _, f := range finishedCalls(h, w) {
		if f.GetStatus() != messages.ToolFinished_CANCELLED || !strings.Contains(f.GetMetaJson(), `"outcome":"aborted"`) {
			t.Errorf("the call ended as %v", f)
		}
	}
	orderly(t, store, s)
	works(t, h, s)
}

// TestACancelAtAnyRecordLeavesNoChildBehind cuts the journal of a cancelled family after each append, and lets the next
// process find it so. It also cancels what that takes up.
func TestACancelAtAnyRecordLeavesNoChildBehind(t *testing.T) {
	gate, whole, dir := actortest.NewGate(), stored(t), t.TempDir()
	h := stuckChildren(t, gate, whole, dir)
	space := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	s, w := h.Create(&messages.CreateSession{Workspaces: space})
	submit(h, s, "go")
	actortest.Wait(t, "the first child's call", gate.Came)
	actortest.Wait(t, "the second child's call", gate.Came)
	actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{WorkerId: w, By: "user"})
	h.Stop()
	gate.Open()
	if whole.Appends() < 12 {
		t.Fatalf("%d appends: this does not do what the test is about", whole.Appends())
	}
	for n := 2; n <= whole.Appends(); n++ { // the session, and its input
		for _, again := range []bool{false, true} {
			store, err := whole.Cut(n)
			if err != nil {
				t.Fatal(err)
			}
			h := stuckChildren(t, gate, store, dir)
			if again {
				actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{WorkerId: w, By: "user", Inputs: true})
			}
			actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{WorkerId: w})
			t.Run(fmt.Sprintf("after %d of %d, again=%v", n, whole.Appends(), again), func(t *testing.T) { orderly(t, store, s) })
			h.Stop()
			_ = store.Close()
		}
	}
}

func TestNoMoreChildrenWorkAtATimeThanTheLimitSays(t *testing.T) {
	for name, o := range map[string]actortest.Options{
		"the common one":   {Limits: actors.Limits{Children: 2}},
		"an agent's own":   {Agents: []actors.Agent{{Name: actors.DefaultAgent, Limits: actors.AgentLimits{Children: 2}}}},
		"never more by it": {Limits: actors.Limits{Children: 2}, Agents: []actors.Agent{{Name: actors.DefaultAgent, Limits: actors.AgentLimits{Children: 3}}}},
	} {
		t.Run(name, func(t *testing.T) { twoAtATime(t, o) })
	}
}

// twoAtATime has a worker delegate to five others.
func twoAtATime(t *testing.T, o actortest.Options) {
	gate := actortest.NewGate()
	var calls []*messages.ToolCall
	for i := range 5 {
		calls = append(calls, delegate(fmt.Sprint(i), fmt.Sprintf("task %d", i)))
	}
	o.Model = family(func(ctx context.Context, r *model.Request) actortest.Reply {
		return actortest.Reply{Text: "did " + actortest.Asked(r), Then: func() error { return gate.Pass(ctx) }}
	}, calls...)
	h := actortest.New(t, o)
	s, _ := h.Create(&messages.CreateSession{})
	done := actortest.Later[*messages.TurnResult](h, s, &messages.RunInput{Input: &messages.SubmitInput{Parts: actortest.Text("go")}})
	actortest.Wait(t, "the first child", gate.Came)
	actortest.Wait(t, "the second child", gate.Came)
	if n := len(workers(h, s)); n != 3 {
		t.Errorf("%d workers, of whom one is the parent", n)
	}
	if v := h.Worker(s); v.GetCalls() != 2 {
		t.Errorf("%d calls run", v.GetCalls())
	}
	gate.Open()
	if r := actortest.Wait(t, "the turn", done); r.Reply.GetText() != "did task 0\ndid task 1\ndid task 2\ndid task 3\ndid task 4\n" {
		t.Errorf("the turn came to %v %v", r.Reply, r.Err)
	}
	if n := len(workers(h, s)); n != 6 {
		t.Errorf("%d workers", n)
	}
	orderly(t, h.Store, s)
}

// TestWhatBecomesOfAChildIsTheParentsResult: none of it ends the parent's turn.
func TestWhatBecomesOfAChildIsTheParentsResult(t *testing.T) {
	loop := actortest.Call("1", "todo", `{"items":[]}`)
	for name, one := range map[string]struct {
		child  actortest.Model
		status messages.ToolFinished_Status
		code   string
		says   []string
	}{
		"fails": {func(context.Context, *model.Request) actortest.Reply {
			return actortest.Reply{Err: &model.Error{Class: model.Auth, Message: "no key"}}
		}, messages.ToolFinished_ERROR, tools.CodeDelegateFailed, []string{"did not finish (error)", "no key"}},
		"limit": {func(context.Context, *model.Request) actortest.Reply {
			return actortest.Reply{Text: "on it", Calls: []*messages.ToolCall{loop}}
		}, messages.ToolFinished_ERROR, tools.CodeDelegateFailed, []string{"did not finish (limit)", "its limit of 3 steps", "Its last words:\non it"}},
		"no words": {actortest.Say(""), messages.ToolFinished_OK, "", []string{"ended without a word"}},
		"panics":   {func(context.Context, *model.Request) actortest.Reply { panic("as the test wants it") }, messages.ToolFinished_ERROR, tools.CodeDelegateFailed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := actortest.New(t, actortest.Options{Limits: actors.Limits{Steps: 3}, Model: family(one.child, delegate("1", "x"))})
			s, w := h.Create(&messages.CreateSession{})
			r := h.Run(s, "go")
			f := finishedCalls(h, w)[0]
			if r.GetOutcome() != messages.TurnCompleted_DONE || f.GetStatus() != one.status || f.GetErrorCode() != one.code {
				t.Errorf("the turn ended as %v after %v", r, f)
			}
			for _, want := range one.says {
				if !strings.Contains(f.GetContent(), want) {
					t.Errorf("%q is not in %q", want, f.GetContent())
				}
			}
			orderly(t, h.Store, s)
		})
	}
}

func TestAQuarantinedChildIsAnErrorOfTheCallAndTheTurnGoesOn(t *testing.T) {
	b := &brittle{One: actortest.One{Model: family(actortest.Say("never"), delegate("1", "x", `,"agent":"glass"`))}}
	b.panics.Store(1 << 20)
	h := actortest.New(t, actortest.Options{Models: b, Agents: []actors.Agent{{Name: "glass", Model: "brittle"}}})
	s, w := h.Create(&messages.CreateSession{})
	r := h.Run(s, "go")
	f := finishedCalls(h, w)[0]
	if r.GetOutcome() != messages.TurnCompleted_DONE || f.GetErrorCode() != tools.CodeDelegateFailed || !strings.Contains(f.GetContent(), "is quarantined") {
		t.Errorf("the turn ended as %v after %v", r, f)
	}
}

func TestAChildThatIsDeletedIsAnErrorOfTheCall(t *testing.T) {
	gate := actortest.NewGate()
	h := stuckChildren(t, gate, stored(t), t.TempDir())
	s, w := h.Create(&messages.CreateSession{})
	in := submit(h, s, "go")
	actortest.Wait(t, "the first child's call", gate.Came)
	actortest.Wait(t, "the second child's call", gate.Came)
	for _, v := range workers(h, s)[1:] {
		actortest.Ask[*messages.Ack](h, s, &messages.DeleteWorker{WorkerId: v.GetId()})
	}
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in}); r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("the turn ended as %v", r)
	}
	for _, f := range finishedCalls(h, w) {
		if f.GetStatus() == messages.ToolFinished_OK {
			t.Errorf("%v", f)
		}
	}
}
