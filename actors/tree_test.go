package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// TestTheLiveTreeHoldsEveryKindOfActor walks the processes that are registered while a tool runs: names
// are paths in the tree.
func TestTheLiveTreeHoldsEveryKindOfActor(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`))),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) { return "", gate.Pass(ctx) })},
	})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	found := map[string]bool{}
	for _, bucket := range h.Sys.ProcessRegistry.LocalPIDs.LocalPIDs {
		for _, id := range bucket.Keys() {
			p := strings.Split(id, "/")
			switch {
			case id == "troupe":
				found["Supervisor"] = true
			case len(p) == 2 && p[0] == "troupe" && p[1] == s:
				found["Session"] = true
			case len(p) == 2 && p[0] == "troupe" && strings.HasPrefix(p[1], "workspace-"):
				found["Workspace"] = true
			case len(p) == 2 && p[0] == "troupe" && strings.HasPrefix(p[1], "limiter-"):
				found["Limiter"] = true
			case id == "troupe/"+s+"/"+w:
				found["Worker"] = true
			case strings.HasPrefix(id, "troupe/"+s+"/"+w+"/"):
				found["ToolExecutor"] = true
			}
		}
	}
	for _, kind := range []string{"Supervisor", "Session", "Workspace", "Limiter", "Worker", "ToolExecutor"} {
		if !found[kind] {
			t.Errorf("no %s in the live tree", kind)
		}
	}
	tree := actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{})
	kinds := map[string]int{}
	for _, a := range tree.GetRoot().GetChildren() {
		kinds[a.GetKind()]++
	}
	if tree.GetRoot().GetKind() != "supervisor" || kinds["session"] != 1 || kinds["limiter"] != 1 || kinds["workspace"] != 2 {
		t.Errorf("the tree says %v", kinds)
	}
	// The deep tree is what all of them say themselves.
	deep := actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{Deep: true}).GetRoot()
	states := map[string]string{}
	var walk func(a *messages.ActorView)
	walk = func(a *messages.ActorView) {
		states[a.GetKind()] = a.GetState()
		for _, child := range a.GetChildren() {
			walk(child)
		}
	}
	walk(deep)
	for kind, want := range map[string]string{"supervisor": "running", "session": "using_tool", "worker": "using_tool", "toolexecutor": "running", "limiter": "running", "workspace": "held"} {
		if states[kind] != want {
			t.Errorf("%s is %q, want %q", kind, states[kind], want)
		}
	}
	gate.Open()
	actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{})
}

func TestTheStatesOfAWorkerAreTheOnesThatWereAgreed(t *testing.T) {
	requesting, receiving, using := actortest.NewGate(), actortest.NewGate(), actortest.NewGate()
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{
		Store:  store,
		Limits: actors.Limits{ModelCalls: 1},
		Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			if actortest.Results(r) != nil {
				return actortest.Reply{Text: "ok"}
			}
			_ = requesting.Pass(ctx)
			return actortest.Reply{
				Text: "first words", Calls: []*messages.ToolCall{actortest.Call("1", "act", `{"name":"x"}`)},
				Late: func() { _ = receiving.Pass(ctx) },
			}
		}),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) { return "", using.Pass(ctx) })},
	})
	s, _ := h.Create(&messages.CreateSession{})
	h.State(s, "inactive")
	came, release := store.Hold(actortest.Is[*messages.TurnStarted])
	in := actortest.Later[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("go")})
	actortest.Wait(t, "the start", came)
	h.State(s, "working")
	permit := newProbe(h)
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	permit.send(limiter, &messages.AcquirePermit{Request: 1})
	permit.permit(t)
	release()
	actortest.Wait(t, "the acceptance", in)
	h.State(s, "waiting")
	permit.die(t)
	actortest.Wait(t, "the call", requesting.Came)
	h.State(s, "requesting")
	requesting.Open()
	actortest.Wait(t, "the answer", receiving.Came)
	h.State(s, "receiving")
	receiving.Open()
	actortest.Wait(t, "the tool", using.Came)
	h.State(s, "using_tool")
	using.Open()
	actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{})
	h.State(s, "inactive")

	b := &brittle{One: actortest.One{Model: actortest.Say("ok")}}
	b.panics.Store(100)
	bad := actortest.New(t, actortest.Options{Models: b, Node: "bad"})
	s, _ = bad.Create(&messages.CreateSession{Model: "brittle"})
	_, _ = actortest.Try[*messages.InputReply](bad, s, &messages.SubmitInput{Parts: actortest.Text("go")})
	bad.State(s, "inactive_failed")
}

func TestWorkersOfOneSessionHaveConversationsOfTheirOwn(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		var said []string
		for _, m := range r.Prompt.Messages {
			if m.Role == messages.User {
				said = append(said, m.Text)
			}
		}
		return actortest.Reply{Text: strings.Join(said, "+")}
	})})
	s, first := h.Create(&messages.CreateSession{})
	ids := []string{first}
	for range 4 {
		ids = append(ids, actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{}).GetId())
	}
	var all sync.WaitGroup
	for n, id := range ids {
		all.Go(func() {
			want := ""
			for i := range 3 {
				prompt := fmt.Sprintf("%d.%d", n, i)
				want = strings.TrimPrefix(want+"+"+prompt, "+")
				in, err := actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: id, Parts: actortest.Text(prompt)})
				if err != nil {
					t.Error(err)
					return
				}
				r, err := actortest.Try[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: id, InputId: in.GetInputId()})
				if err != nil || r.GetText() != want || r.GetWorkerId() != id {
					t.Errorf("worker %d: %q %v, want %q", n, r.GetText(), err, want)
				}
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, id := range ids { // one stream each, named by the worker, which is the conversation
		for _, in := range actortest.Of[*messages.InputAccepted](h.Facts(id)) {
			if seen[in.GetInputId()] {
				t.Errorf("input %s is in two journals", in.GetInputId())
			}
			seen[in.GetInputId()] = true
		}
		if got := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{WorkerId: id}); got.GetWorkerId() != id {
			t.Errorf("history of %s says %s", id, got.GetWorkerId())
		}
	}
	if len(seen) != 15 {
		t.Errorf("%d inputs", len(seen))
	}
}

func TestAWorkerContinuesACopyAndTheOriginalStaysAsItIs(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		return actortest.Reply{Text: fmt.Sprint(len(r.Prompt.Messages))}
	})})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "one")
	before := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{})
	fork := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{
		Origin: &messages.Lineage{Conversation: w, Seq: before.GetSeq()}, Copied: proto.Clone(before).(*messages.History).GetTurns(),
	}).GetId()
	in := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: fork, Parts: actortest.Text("two")})
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: fork, InputId: in.GetInputId()})
	if r.GetText() != "3" {
		t.Errorf("the copy's prompt had %s messages", r.GetText())
	}
	if after := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{}); !proto.Equal(before, after) {
		t.Errorf("the original changed: %v", after)
	}
	if o := actortest.Of[*messages.WorkerCreated](h.Facts(fork))[0].GetOrigin(); o.GetConversation() != w || o.GetSeq() != before.GetSeq() {
		t.Errorf("lineage %v", o)
	}
	dangling := []*messages.Turn{{Messages: []*messages.ChatMessage{{Role: "user", Content: "x"}, {Role: "assistant", ToolCalls: []*messages.ToolCall{actortest.Call("1", "act", "{}")}}}}}
	if _, err := actortest.Try[*messages.WorkerView](h, s, &messages.SpawnWorker{Copied: dangling}); actortest.Code(err) != messages.CodeBadRequest {
		t.Errorf("a history with a call without its result: %v", err)
	}
}

func TestAWorkerThatCannotBeBuiltLeavesNothingBehindAndBlocksNobody(t *testing.T) {
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, _ := h.Create(&messages.CreateSession{})
	if _, err := actortest.Try[*messages.WorkerView](h, s, &messages.SpawnWorker{Agent: "nobody"}); actortest.Code(err) != messages.CodeAgent {
		t.Errorf("an unknown agent: %v", err)
	}
	came, release := store.Hold(actortest.Is[*messages.WorkerCreated])
	slow := actortest.Later[*messages.WorkerView](h, s, &messages.SpawnWorker{})
	actortest.Wait(t, "the append", came)
	next := actortest.Later[*messages.WorkerView](h, s, &messages.SpawnWorker{})
	works(t, h, s) // the session routes while a worker is written down
	release()
	one, two := actortest.Wait(t, "the worker", slow), actortest.Wait(t, "the next", next)
	if one.Err != nil || two.Err != nil || one.Reply.GetId() == two.Reply.GetId() {
		t.Errorf("%v %v", one, two)
	}
	v := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{})
	if len(v.GetWorkers()) != 3 {
		t.Errorf("%d workers", len(v.GetWorkers()))
	}
	var listed int
	if err := store.Index(context.Background(), actors.WorkerKey(s, ""), func(string, []byte) error { listed++; return nil }); err != nil || listed != 3 {
		t.Errorf("%d workers listed, %v", listed, err)
	}
}

func TestOneOfTwoSessionsWithTheSameIdIsRefused(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	for i := range 20 {
		id := fmt.Sprint("ses_", i)
		var all []<-chan actortest.Answer[*messages.SessionView]
		for range 4 {
			all = append(all, actortest.Later[*messages.SessionView](h, "", &messages.CreateSession{SessionId: id}))
		}
		made := 0
		for _, ch := range all {
			switch a := actortest.Wait(t, "an answer", ch); {
			case a.Err == nil:
				made++
			case actortest.Code(a.Err) != messages.CodeAlreadyExists:
				t.Errorf("refused with %v", a.Err)
			}
		}
		if made != 1 {
			t.Errorf("made %d times", made)
		}
		if r := h.Run(id, "go"); r.GetText() != "ok" {
			t.Errorf("%v", r)
		}
	}
}

func TestASessionIdThatIsTakenOnDiskIsRefusedAndTheSessionLives(t *testing.T) {
	store := memory.New()
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, _ := h.Create(&messages.CreateSession{})
	h.Run(s, "one")
	h.Stop()
	again := store.Reopen()
	t.Cleanup(func() { _ = again.Close() })
	h = actortest.New(t, actortest.Options{Store: again, Model: actortest.Say("ok")})
	if _, err := actortest.Try[*messages.SessionView](h, "", &messages.CreateSession{SessionId: s}); actortest.Code(err) != messages.CodeAlreadyExists {
		t.Errorf("%v", err)
	}
	h.Run(s, "two")
	if got := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{}); len(got.GetTurns()) != 2 {
		t.Errorf("%d turns", len(got.GetTurns()))
	}
}

func TestEveryQuestionToASessionThatDoesNotExistIsAnswered(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	for round := range 50 {
		id := fmt.Sprint("ses_none_", round%3)
		var all []<-chan actortest.Answer[*messages.SessionView]
		for range 16 {
			all = append(all, actortest.Later[*messages.SessionView](h, id, &messages.DescribeSession{}))
		}
		for _, ch := range all {
			if a := actortest.Wait(t, "an answer", ch); actortest.Code(a.Err) != messages.CodeNotFound {
				t.Fatalf("round %d: %v %v", round, a.Reply, a.Err)
			}
		}
	}
	for _, id := range []string{"", "x", "ses_", "ses_../../etc", "ses_" + strings.Repeat("x", 65), "wrk_1"} {
		m := &messages.ToSession{SessionId: id, Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}}
		if _, err := actortest.Try[*messages.SessionView](h, "", m); actortest.Code(err) != messages.CodeNotFound {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := actortest.Try[*messages.SessionView](h, "", &messages.ToSession{SessionId: "ses_none_0"}); actortest.Code(err) == "" {
		t.Errorf("no command at all: %v", err)
	}
	tree := actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{})
	actortest.Until(t, "no session that does not exist is kept", func() bool {
		tree = actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{})
		return len(tree.GetRoot().GetChildren()) == 3 // the limiter, the rules and the timers
	})
}

func TestASessionThatCannotBeMadeIsRefusedAndItsIdIsFree(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	for name, m := range map[string]*messages.CreateSession{
		messages.CodeAgent:      {Agent: "nobody"},
		messages.CodeInvalidURI: {Workspaces: []*messages.WorkspaceSpec{{Uri: "://"}}},
		messages.CodeBadRequest: {Rules: []string{"((("}},
	} {
		m.SessionId = "ses_x"
		if _, err := actortest.Try[*messages.SessionView](h, "", m); actortest.Code(err) != name {
			t.Errorf("want %s: %v", name, err)
		}
		actortest.Until(t, "its name is free", func() bool {
			return len(actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{}).GetRoot().GetChildren()) == 3
		})
	}
	s, _ := h.Create(&messages.CreateSession{SessionId: "ses_x"})
	works(t, h, s)
}
