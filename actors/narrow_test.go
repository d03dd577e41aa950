package actors_test

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// TestAToolThatIsTakenFromAParentIsTakenFromItsChildren: also from one that is in the middle of its turn, with a call that waits, and for good.
func TestAToolThatIsTakenFromAParentIsTakenFromItsChildren(t *testing.T) {
	gate, store, dir := actortest.NewGate(), stored(t), t.TempDir()
	acted := make(chan string, 16)
	equipped := func() *actortest.House {
		return actortest.New(t, actortest.Options{
			Store: store, DataDir: dir, Tools: []tools.Tool{
				tool(t, "stay", pure, func(ctx context.Context, _ string) (string, error) { return "stayed", gate.Pass(ctx) }),
				tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) { acted <- a; return "acted", nil }),
			},
			Model: plainOr(family(actortest.CallThenSay(actortest.Call("1", "stay", `{"name":"x"}`)), delegate("1", "one"))),
		})
	}
	h := equipped()
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the child", gate.Came)
	child := workers(h, s)[1].GetId()
	actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{WorkerId: w, Tools: []string{"delegate", "stay"}})
	if n := len(actortest.Of[*messages.ConfigChanged](h.Facts(child))); n != 1 { // before anybody hears that it was taken
		t.Errorf("the child has written %d changes down", n)
	}
	gate.Open()
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	denied := func(h *actortest.House) {
		t.Helper()
		r, err := actortest.Try[*messages.ToolReply](h, s, &messages.CallTool{CallId: messages.NewID("call_"), WorkerId: child, Tool: "act", Arguments: `{"name":"y"}`})
		if err == nil && r.GetErrorCode() != tools.CodePermissionDenied || len(acted) > 0 {
			t.Errorf("the child acts: %v %v", r, err)
		}
	}
	denied(h)
	h.Stop()
	h = equipped() // its journal has it
	denied(h)
	actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{WorkerId: w, Tools: []string{"act"}}) // what it gets later is its own
	denied(h)
}

// TestAToolThatIsTakenFromAParentWhileAChildIsOutOfMemoryIsTakenFromItAfterARestart: nothing but the parent's journal knows of it then.
func TestAToolThatIsTakenFromAParentWhileAChildIsOutOfMemoryIsTakenFromItAfterARestart(t *testing.T) {
	store, dir := stored(t), t.TempDir()
	acted := make(chan string, 16)
	equipped := func() *actortest.House {
		return actortest.New(t, actortest.Options{
			Store: store, DataDir: dir, Tools: []tools.Tool{
				tool(t, "stay", pure, func(context.Context, string) (string, error) { return "stayed", nil }),
				tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) { acted <- a; return "acted", nil }),
			},
			Model: plainOr(family(actortest.CallThenSay(actortest.Call("1", "stay", `{"name":"x"}`)), delegate("1", "one"))),
		})
	}
	h := equipped()
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	child := workers(h, s)[1].GetId()
	h.Stop()
	h = equipped()
	actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{WorkerId: w, Tools: []string{"delegate", "stay"}})
	h.Stop()
	if n := len(actortest.Of[*messages.ConfigChanged](h.Facts(child))); n != 0 {
		t.Fatalf("the child was in memory: %d", n)
	}
	h = equipped()
	r, err := actortest.Try[*messages.ToolReply](h, s, &messages.CallTool{CallId: messages.NewID("call_"), WorkerId: child, Tool: "act", Arguments: `{"name":"y"}`})
	if err == nil && r.GetErrorCode() != tools.CodePermissionDenied || len(acted) > 0 {
		t.Errorf("the child acts: %v %v", r, err)
	}
}

// TestAChildWritesUnderItsParentsLeaseAsFarAsThatDoes: under one that is shared it is told why not.
func TestAChildWritesUnderItsParentsLeaseAsFarAsThatDoes(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	uri, ws := open(h, "/a")
	for _, shared := range []bool{false, true} {
		parent, child := newProbe(h), newProbe(h)
		parent.send(ws, &messages.AcquireLease{Workspace: uri, Holder: "wrk_p", Request: 1, Shared: shared})
		parent.granted(t)
		child.send(ws, &messages.AcquireLease{Workspace: uri, Holder: "wrk_c", Parent: "wrk_p", Request: 1})
		l := child.granted(t)
		_, err := act.Ask[*messages.EffectAllowed](context.Background(), h.Sys, ws, &messages.EffectBegun{Workspace: uri, Token: l.GetToken(), Child: l.GetChild(), ExecId: "exe_1"})
		switch {
		case !shared && err != nil:
			t.Errorf("under an exclusive lease: %v", err)
		case shared && (actortest.Code(err) != messages.CodeDenied || !strings.Contains(err.Error(), "the agent that delegated only reads")):
			t.Errorf("under a shared one: %v", err)
		}
		child.send(ws, &messages.EffectEnded{Workspace: uri, Token: l.GetToken(), ExecId: "exe_1"})
		parent.die(t)
		child.die(t)
		actortest.Until(t, "nobody holds it", func() bool { return len(look(t, h, ws).GetHolders()) == 0 })
	}
}

// TestAChildIsHeldToTheRulesOfWhatItsParentBecomes: as well as to those of what that was, and for good.
func TestAChildIsHeldToTheRulesOfWhatItsParentBecomes(t *testing.T) {
	store, dir := stored(t), t.TempDir()
	acted := make(chan string, 16)
	equipped := func() *actortest.House {
		return actortest.New(t, actortest.Options{
			Store: store, DataDir: dir, Tools: []tools.Tool{
				tool(t, "stay", pure, func(context.Context, string) (string, error) { return "stayed", nil }),
				tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) { acted <- a; return "acted", nil }),
			},
			Agents: []actors.Agent{{}, {Name: "strict", Rules: []string{"deny act"}}, {Name: "mild"}},
			Model:  plainOr(family(actortest.CallThenSay(actortest.Call("1", "stay", `{"name":"x"}`)), delegate("1", "one"))),
		})
	}
	h := equipped()
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	child := workers(h, s)[1].GetId()
	acts := func() string {
		t.Helper()
		return actortest.Ask[*messages.ToolReply](h, s, &messages.CallTool{CallId: messages.NewID("call_"), WorkerId: child, Tool: "act", Arguments: `{"name":"y"}`}).GetErrorCode()
	}
	if code := acts(); code != "" {
		t.Fatalf("while nothing forbids it: %s", code)
	}
	for _, agent := range []string{"strict", "strict", "mild"} {
		actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{WorkerId: w, Agent: agent})
		if code := acts(); code != tools.CodePermissionDenied {
			t.Errorf("its parent is %s: %q", agent, code)
		}
	}
	if n := len(actortest.Of[*messages.ConfigChanged](h.Facts(child))); n != 2 {
		t.Errorf("%d changes are written down", n)
	}
	h.Stop()
	h = equipped()
	if code := acts(); code != tools.CodePermissionDenied {
		t.Errorf("after a restart: %q", code)
	}
}
