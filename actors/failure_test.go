package actors_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// brittle is a table of models that panics in the mailbox of who asks for the model "brittle", as
// often as it is told to.
type brittle struct {
	actortest.One
	panics atomic.Int32
}

func (b *brittle) Resolve(name string) (*actors.Resolved, error) {
	if name == "brittle" && b.panics.Add(-1) >= 0 {
		panic("as the test wants it")
	}
	return b.One.Resolve(name)
}

func TestAPanicRestartsOneWorkerAndNobodyElseNotices(t *testing.T) {
	gate, m := gated()
	b := &brittle{One: actortest.One{Model: m}}
	h := actortest.New(t, actortest.Options{Models: b})
	s, w := h.Create(&messages.CreateSession{})
	// A sibling in the same session and one in another are in the middle of their turns.
	sibling := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Model: "brittle"}).GetId()
	other, _ := h.Create(&messages.CreateSession{})
	submit(h, other, "steady")
	first := submit(h, s, "steady")
	actortest.Wait(t, "one call", gate.Came)
	actortest.Wait(t, "another call", gate.Came)

	b.panics.Store(1)
	in := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: sibling, Parts: actortest.Text("plain")})
	gate.Open() // the sibling's turn waits for the workspace, panics, and is taken up again
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: sibling, InputId: in.GetInputId()})
	if r.GetText() != "ok" {
		t.Errorf("the worker that panicked: %v", r)
	}
	if n := len(actortest.Of[*messages.Panicked](h.Facts(sibling))); n != 1 {
		t.Errorf("%d panics written down", n)
	}
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: first}); r.GetText() != "said steady" {
		t.Errorf("the sibling: %v", r)
	}
	if r := actortest.Ask[*messages.TurnResult](h, other, &messages.AwaitTurn{}); r.GetText() != "said steady" {
		t.Errorf("the other session: %v", r)
	}
	v := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{})
	for _, x := range v.GetWorkers() {
		if want := map[string]int32{w: 0, sibling: 1}[x.GetId()]; x.GetRestarts() != want {
			t.Errorf("worker %s: %d restarts, want %d", x.GetId(), x.GetRestarts(), want)
		}
	}
	tree := actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{})
	for _, a := range tree.GetRoot().GetChildren() {
		if a.GetRestarts() != 0 || a.GetState() != "running" {
			t.Errorf("%s %s: %d restarts, %s", a.GetKind(), a.GetId(), a.GetRestarts(), a.GetState())
		}
	}
	works(t, h, s)
}

func TestThreePanicsWithoutProgressQuarantineAWorkerAndItsSessionSaysSo(t *testing.T) {
	b := &brittle{One: actortest.One{Model: actortest.Say("ok")}}
	b.panics.Store(100)
	h := actortest.New(t, actortest.Options{Models: b})
	s, w := h.Create(&messages.CreateSession{})
	bad := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Model: "brittle"}).GetId()
	in := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: bad, Parts: actortest.Text("go")})
	waits := actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: bad, InputId: in.GetInputId()})
	if a := actortest.Wait(t, "who waits for its turn", waits); actortest.Code(a.Err) != messages.CodeQuarantined {
		t.Errorf("told %v %v", a.Reply, a.Err)
	}
	if n := 100 - b.panics.Load(); n != 3 {
		t.Errorf("%d panics", n)
	}
	_, err := actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: bad, Parts: actortest.Text("again")})
	if actortest.Code(err) != messages.CodeQuarantined || !strings.Contains(err.Error(), "as the test wants it") {
		t.Errorf("a new input: %v", err)
	}
	v := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{})
	for _, x := range v.GetWorkers() {
		if x.GetId() == bad && (x.GetState() != "inactive_failed" || x.GetLastError() == "") || x.GetId() == w && x.GetState() != "inactive" {
			t.Errorf("worker %v", x)
		}
	}
	works(t, h, s)
}

func TestPanicsWithProgressBetweenDoNotQuarantine(t *testing.T) {
	b := &brittle{One: actortest.One{Model: actortest.Say("ok")}}
	h := actortest.New(t, actortest.Options{Models: b})
	s, w := h.Create(&messages.CreateSession{Model: "brittle"})
	for i := range 4 {
		b.panics.Store(1)
		if r := h.Run(s, fmt.Sprint("turn ", i)); r.GetText() != "ok" {
			t.Fatalf("turn %d: %v", i, r)
		}
	}
	if n := len(actortest.Of[*messages.Panicked](h.Facts(w))); n != 4 {
		t.Errorf("%d panics written down", n)
	}
}

func TestAModelAdapterThatPanicsFailsItsCallOnly(t *testing.T) {
	var calls atomic.Int32
	h := actortest.New(t, actortest.Options{Model: plainOr(func(context.Context, *model.Request) actortest.Reply {
		if calls.Add(1) == 1 {
			panic("as the test wants it")
		}
		return actortest.Reply{Text: "recovered"}
	})})
	s, w := h.Create(&messages.CreateSession{})
	if r := h.Run(s, "go"); r.GetText() != "recovered" {
		t.Errorf("%v", r)
	}
	if v := h.Worker(s); v.GetRestarts() != 0 || len(actortest.Of[*messages.GenerationFailed](h.Facts(w))) != 1 {
		t.Errorf("%v", v)
	}
	works(t, h, s)
}

func TestAToolThatPanicsIsAResultOfItsCall(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`), actortest.Call("2", "look", `{"name":"y"}`))),
		Tools: []tools.Tool{
			tool(t, "act", atMostOnce, func(context.Context, string) (string, error) { panic("as the test wants it") }),
			tool(t, "look", pure, func(context.Context, string) (string, error) { return "saw", nil }),
		},
	})
	s, _ := h.Create(&messages.CreateSession{})
	if r := h.Run(s, "go"); r.GetText() != "Unexpected error: the tool crashed\nsaw\n" {
		t.Errorf("%q", r.GetText())
	}
	if v := h.Worker(s); v.GetRestarts() != 0 {
		t.Errorf("%d restarts", v.GetRestarts())
	}
	works(t, h, s)
}

// executor finds the one child of a worker in the registry of processes.
func executor(t *testing.T, h *actortest.House, session, worker string) string {
	t.Helper()
	prefix := "troupe/" + session + "/" + worker + "/"
	for _, bucket := range h.Sys.ProcessRegistry.LocalPIDs.LocalPIDs {
		for _, id := range bucket.Keys() {
			if strings.HasPrefix(id, prefix) {
				return id
			}
		}
	}
	t.Fatal("the worker has no executor")
	return ""
}

func TestAnExecutorThatDiesLeavesNoCallWithoutAResult(t *testing.T) {
	gate := actortest.NewGate()
	var looked, acted atomic.Int32
	h := actortest.New(t, actortest.Options{
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`), actortest.Call("2", "look", `{"name":"y"}`))),
		Tools: []tools.Tool{
			tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) { acted.Add(1); return "did", gate.Pass(ctx) }),
			tool(t, "look", pure, func(ctx context.Context, _ string) (string, error) {
				if looked.Add(1) > 1 {
					return "saw", nil
				}
				return "", gate.Pass(ctx)
			}),
		},
	})
	s, w := h.Create(&messages.CreateSession{})
	in := submit(h, s, "go")
	actortest.Wait(t, "one call", gate.Came)
	actortest.Wait(t, "the other call", gate.Came)
	h.Sys.Root.Stop(h.Sys.NewLocalPID(executor(t, h, s, w)))
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	if !strings.HasPrefix(r.GetText(), "Stopped before it finished") || !strings.HasSuffix(r.GetText(), "\nsaw\n") {
		t.Errorf("%q", r.GetText())
	}
	if acted.Load() != 1 {
		t.Errorf("a call that may run once ran %d times", acted.Load())
	}
	if r := actortest.Ask[*messages.ToolReply](h, s, &messages.CallTool{Tool: "look", Arguments: `{"name":"z"}`}); r.GetContent() != "saw" {
		t.Errorf("the next call: %v", r)
	}
	works(t, h, s)
}

func TestAWorkspaceThatDiesRefusesTheEffectsOfItsOldHolders(t *testing.T) {
	answer := actortest.NewGate()
	var ran atomic.Int32
	h := actortest.New(t, actortest.Options{
		Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			if res := actortest.Results(r); res != nil {
				return actortest.Reply{Text: res[0].Text}
			}
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("1", "act", `{"name":"x"}`)}, Err: answer.Pass(ctx)}
		}),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(context.Context, string) (string, error) { ran.Add(1); return "did", nil })},
	})
	s, _ := h.Create(&messages.CreateSession{})
	in := submit(h, s, "go")
	actortest.Wait(t, "the call", answer.Came)
	v := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{})
	ws := h.Sys.NewLocalPID("troupe/workspace-" + v.GetWorkspaces()[0].GetId())
	if err := h.Sys.Root.StopFuture(ws).Wait(); err != nil {
		t.Fatal(err)
	}
	answer.Open()
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	if ran.Load() != 0 || !strings.HasPrefix(r.GetText(), "Not started: ") {
		t.Errorf("%d runs, %q", ran.Load(), r.GetText())
	}
	works(t, h, s)
}

func TestASessionThatPanicsIsReplacedAndItsTurnsGoOn(t *testing.T) {
	gate, m := gated()
	var armed atomic.Bool
	h := actortest.New(t, actortest.Options{Model: m, Now: func() time.Time {
		if armed.Load() && strings.Contains(string(debug.Stack()), "(*Session).start(") && armed.CompareAndSwap(true, false) {
			panic("as the test wants it")
		}
		return time.Now()
	}})
	s, w := h.Create(&messages.CreateSession{})
	other, _ := h.Create(&messages.CreateSession{})
	submit(h, other, "steady")
	in := submit(h, s, "go on")
	actortest.Wait(t, "one call", gate.Came)
	actortest.Wait(t, "another call", gate.Came)
	armed.Store(true)
	added := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{}).GetId()
	var all []<-chan actortest.Answer[*messages.SessionView]
	for range 20 {
		all = append(all, actortest.Later[*messages.SessionView](h, s, &messages.DescribeSession{}))
	}
	for _, ch := range all {
		a := actortest.Wait(t, "an answer", ch)
		if a.Err != nil && actortest.Code(a.Err) != messages.CodeUnavailable || a.Err == nil && len(a.Reply.GetWorkers()) == 0 {
			t.Errorf("%v %v", a.Reply, a.Err)
		}
	}
	actortest.Until(t, "the session is back", func() bool { return !armed.Load() && len(view(h, s).GetWorkers()) == 2 })
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in}); r.GetText() != "said go on" || r.GetWorkerId() != w {
		t.Errorf("%v", r)
	}
	in = actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: added, Parts: actortest.Text("plain")}).GetInputId()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: added, InputId: in}); r.GetText() != "ok" {
		t.Errorf("the worker that was added: %v", r)
	}
	if r := actortest.Ask[*messages.TurnResult](h, other, &messages.AwaitTurn{}); r.GetText() != "said steady" {
		t.Errorf("the other session: %v", r)
	}
}

// view is a session's view, an empty one while it is down.
func view(h *actortest.House, session string) *messages.SessionView {
	v, _ := actortest.Try[*messages.SessionView](h, session, &messages.DescribeSession{})
	return v
}

// doubtful is a tool that cannot be asked whether it happened.
