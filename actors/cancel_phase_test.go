package actors_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// half answers everything but "plain" with half of an answer, and what is left comes when it is too late.
func half(gate *actortest.Gate, next func(r *model.Request)) actortest.Model {
	return func(ctx context.Context, r *model.Request) actortest.Reply {
		if actortest.Asked(r) == "plain" {
			next(r)
			return actortest.Reply{Text: "ok"}
		}
		return actortest.Reply{Text: "first half", Then: func() error { return gate.Pass(ctx) }}
	}
}

// TestWhatWasSaidBeforeACancelIsKeptAndMarked also reads it as the next model call does.
func TestWhatWasSaidBeforeACancelIsKeptAndMarked(t *testing.T) {
	gate := actortest.NewGate()
	seen := make(chan []*messages.Message, 1)
	h := actortest.New(t, actortest.Options{Model: half(gate, func(r *model.Request) { seen <- r.Prompt.Messages })})
	s, w := h.Create(&messages.CreateSession{})
	watch := h.Watch(s)
	submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	if r := cancelled(t, h, s); r.GetText() != "first half" {
		t.Errorf("the turn came to %q", r.GetText())
	}
	g := actortest.Of[*messages.GenerationCompleted](h.Facts(w))
	if len(g) != 1 || !g[0].GetPartial() || g[0].GetFinishReason() != "cancelled" || g[0].GetContent() != "first half" {
		t.Errorf("written down %v", g)
	}
	var told *messages.Event
	for _, e := range watch.Until(messages.EventTurnCompleted) {
		if e.GetType() == messages.EventGenerationCompleted {
			told = e
		}
	}
	if told.GetText() != "first half" || told.GetFinishReason() != "cancelled" {
		t.Errorf("watchers are told %v", told)
	}
	works(t, h, s)
	got := <-seen
	if len(got) != 3 || got[1].Role != messages.Assistant || got[1].Text != "first half"+conversation.CutOffText {
		t.Errorf("the next call sees %v", got)
	}
	h.Stop()
}

func TestAnInputThatIsWithdrawnInTheMiddleOfItsAnswerLeavesNothingInTheConversation(t *testing.T) {
	gate := actortest.NewGate()
	seen := make(chan []*messages.Message, 1)
	h := actortest.New(t, actortest.Options{Model: half(gate, func(r *model.Request) { seen <- r.Prompt.Messages })})
	s, _ := h.Create(&messages.CreateSession{})
	in := submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	actortest.Ask[*messages.Ack](h, s, &messages.WithdrawInput{InputId: in})
	works(t, h, s)
	if got := <-seen; len(got) != 1 {
		t.Errorf("the next call sees %v", got)
	}
}

// slowToPrepare is a tool with effects that takes its time to hash what it is about to change.
type slowToPrepare struct {
	tools.Tool
	gate *actortest.Gate
}

func (s slowToPrepare) Prepare(tc *tools.Context, _ json.RawMessage) ([]*messages.FileHash, error) {
	return nil, s.gate.Pass(tc.Signal)
}

func TestACancelWhileACallPreparesKeepsItFromRunning(t *testing.T) {
	gate := actortest.NewGate()
	var ran atomic.Int32
	edit := slowToPrepare{tool(t, "edit", messages.Effect_RECONCILABLE, func(context.Context, string) (string, error) { ran.Add(1); return "", nil }), gate}
	h := actortest.New(t, actortest.Options{
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "edit", `{"name":"x"}`), actortest.Call("2", "edit", `{"name":"y"}`))),
		Tools: []tools.Tool{edit},
	})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the preparation", gate.Came)
	cancelled(t, h, s)
	finished := actortest.Of[*messages.ToolFinished](h.Facts(w))
	if ran.Load() != 0 || len(actortest.Of[*messages.ToolDispatched](h.Facts(w))) != 0 || len(finished) != 2 {
		t.Errorf("%d ran, %v", ran.Load(), finished)
	}
	for _, f := range finished {
		if f.GetStatus() != messages.ToolFinished_CANCELLED {
			t.Errorf("a call that never started finished as %v", f.GetStatus())
		}
	}
	works(t, h, s)
}

// TestACancelOfATurnThatWasJustRecoveredStartsNothing has the cancel be the first that is heard after a restart.
func TestACancelOfATurnThatWasJustRecoveredStartsNothing(t *testing.T) {
	for _, effect := range []messages.Effect_Class{atMostOnce, idempotent, pure} {
		t.Run(effect.String(), func(t *testing.T) {
			store := memory.New()
			gate := actortest.NewGate()
			var ran, first atomic.Int32
			house := func(store *memory.Store) *actortest.House {
				return actortest.New(t, actortest.Options{
					Store: store,
					Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`), actortest.Call("2", "act", `{"name":"y"}`))),
					Tools: []tools.Tool{tool(t, "act", effect, func(ctx context.Context, name string) (string, error) {
						ran.Add(1)
						if name == "x" { // the other waits for it, and may start before the cancel is heard
							first.Add(1)
						}
						return "", gate.Pass(ctx)
					})},
				})
			}
			h := house(store)
			s, w := h.Create(&messages.CreateSession{})
			submit(h, s, "go")
			actortest.Wait(t, "the call", gate.Came)
			h.Stop()
			store = store.Reopen()
			t.Cleanup(func() { _ = store.Close() })
			h = house(store)
			c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{})
			if c.GetTurns() != 1 {
				t.Errorf("%d turns cancelled", c.GetTurns())
			}
			after := ran.Load()
			finished := actortest.Of[*messages.ToolFinished](h.Facts(w))
			if len(finished) != 2 {
				t.Errorf("%d of 2 calls are closed", len(finished))
			}
			for _, f := range finished {
				if effect == pure && strings.Contains(f.GetContent(), "before it started") {
					t.Errorf("a call that ran before the restart is said not to have started: %q", f.GetContent())
				}
			}
			works(t, h, s)
			if ran.Load() != after {
				t.Errorf("%d calls started after the cancel was answered", ran.Load()-after)
			}
			if effect == atMostOnce && first.Load() != 1 {
				t.Errorf("a call that may run once ran again")
			}
		})
	}
}

func TestACancelOfASessionEndsTheTurnsOfAllItsWorkers(t *testing.T) {
	gate := actortest.NewGate()
	var ran atomic.Int32
	h := actortest.New(t, actortest.Options{
		Model:  plainOr(actortest.CallThenSay(actortest.Call("1", "look", `{"name":"x"}`))),
		Tools:  []tools.Tool{tool(t, "look", pure, func(ctx context.Context, _ string) (string, error) { ran.Add(1); return "", gate.Pass(ctx) })},
		Agents: []actors.Agent{{Name: "reader", System: "Read.", Tools: []string{"look"}}},
	})
	s, first := h.Create(&messages.CreateSession{Agent: "reader"})
	ids := []string{first}
	for range 3 {
		ids = append(ids, actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Agent: "reader"}).GetId())
	}
	var waits []<-chan actortest.Answer[*messages.TurnResult]
	for _, id := range ids {
		for i := range 2 {
			in := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: id, Parts: actortest.Text(fmt.Sprint("go ", i))})
			waits = append(waits, actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: id, InputId: in.GetInputId()}))
		}
		actortest.Wait(t, "a call", gate.Came)
	}
	if n := actortest.Ask[*messages.JobCount](h, s, &messages.CountJobs{}); n.GetRunning() != 4 || n.GetWaiting() != 4 {
		t.Errorf("counted %v", n)
	}
	idle := actortest.Later[*messages.Ack](h, s, &messages.WaitIdle{})
	c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{Inputs: true, Reason: "enough"})
	after := ran.Load()
	if c.GetTurns() != 4 || c.GetInputs() != 4 || after != 4 {
		t.Errorf("cancelled %v after %d calls", c, after)
	}
	for i, ch := range waits {
		a := actortest.Wait(t, "an answer", ch)
		if running := i%2 == 0; running && a.Reply.GetOutcome() != messages.TurnCompleted_ABORTED || !running && actortest.Code(a.Err) != messages.CodeWithdrawn {
			t.Errorf("input %d came to %v %v", i, a.Reply, a.Err)
		}
	}
	if a := actortest.Wait(t, "rest", idle); a.Err != nil {
		t.Error(a.Err)
	}
	if n := actortest.Ask[*messages.JobCount](h, s, &messages.CountJobs{}); n.GetRunning() != 0 || n.GetWaiting() != 0 {
		t.Errorf("counted %v", n)
	}
	if ran.Load() != after {
		t.Errorf("%d calls began after the answer", ran.Load()-after)
	}
	works(t, h, s)
}

func TestInputsThatWaitStayWhenOnlyTheTurnIsCancelled(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "one")
	actortest.Wait(t, "the first call", gate.Came)
	next := submit(h, s, "two")
	if c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{WorkerId: w}); c.GetTurns() != 1 || c.GetInputs() != 0 {
		t.Errorf("cancelled %v", c)
	}
	actortest.Wait(t, "the second call", gate.Came)
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: next}); r.GetText() != "said two" {
		t.Errorf("%v", r)
	}
}

// TestAStillHouseCancelsWithoutRunningAnything is the cancel of a turn that a dead process left.
func TestAStillHouseCancelsWithoutRunningAnything(t *testing.T) {
	store := memory.New()
	gate := actortest.NewGate()
	var asked, ran atomic.Int32
	house := func(store *memory.Store, still bool) *actortest.House {
		return actortest.New(t, actortest.Options{
			Store: store, Still: still,
			Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
				asked.Add(1)
				return actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`))(ctx, r)
			}),
			Tools: []tools.Tool{tool(t, "act", idempotent, func(ctx context.Context, _ string) (string, error) { ran.Add(1); return "", gate.Pass(ctx) })},
		})
	}
	h := house(store, false)
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	staged := submit(h, s, "plain")
	h.Stop()
	store = store.Reopen()
	h = house(store, true)
	h.State(s, "waiting")
	if _, err := actortest.Try[*messages.Ack](h, s, &messages.WithdrawInput{InputId: staged}); err != nil {
		t.Error(err)
	}
	added := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("plain")}).GetInputId()
	if c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{}); c.GetTurns() != 1 {
		t.Errorf("cancelled %v", c)
	}
	h.State(s, "waiting") // for somebody who begins the turn of the input
	if asked.Load() != 1 || ran.Load() != 1 {
		t.Errorf("the model was asked %d times, the tool ran %d times", asked.Load(), ran.Load())
	}
	for _, f := range actortest.Of[*messages.ToolFinished](h.Facts(w)) {
		if f.GetStatus() != messages.ToolFinished_INTERRUPTED_UNKNOWN {
			t.Errorf("a call that may have run finished as %v", f.GetStatus())
		}
	}
	h.Stop()
	store = store.Reopen()
	t.Cleanup(func() { _ = store.Close() })
	h = house(store, false)
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: added}); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
}

func TestDeletedWorkersTakeNothingAnyMoreAndTheSessionGoesOnWithoutThem(t *testing.T) {
	gate, m := gated()
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store, Model: m})
	s, first := h.Create(&messages.CreateSession{})
	other := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{}).GetId()
	in := submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	waits := actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	behind := submit(h, s, "behind it")
	waitsBehind := actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: behind})
	watch := h.Watch(s)
	actortest.Ask[*messages.Ack](h, s, &messages.DeleteWorker{WorkerId: first, Reason: "done with it"})
	if a := actortest.Wait(t, "the turn", waits); a.Reply.GetOutcome() != messages.TurnCompleted_ABORTED {
		t.Errorf("%v %v", a.Reply, a.Err)
	}
	a := actortest.Wait(t, "the input behind", waitsBehind)
	if code := actortest.Code(a.Err); code != messages.CodeWithdrawn && code != messages.CodeNotFound { // asked before or after the deletion
		t.Errorf("%v %v", a.Reply, a.Err)
	}
	events := watch.Until(messages.EventWorkerEnded)
	if e := events[len(events)-1]; e.GetWorker() != first || e.GetReason() != "done with it" || e.GetSeq() == 0 {
		t.Errorf("watchers are told %v", e)
	}
	for name, m := range map[string]proto.Message{
		"an input":   &messages.SubmitInput{WorkerId: first, Parts: actortest.Text("more")},
		"once more":  &messages.DeleteWorker{WorkerId: first},
		"no such id": &messages.DeleteWorker{WorkerId: "wrk_none"},
	} {
		if _, err := actortest.Try[proto.Message](h, s, m); actortest.Code(err) != messages.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	facts := h.Facts(first)
	if c, ok := facts[len(facts)-1].(*messages.Closed); !ok || c.GetReason() != "done with it" {
		t.Errorf("its journal ends with %T", facts[len(facts)-1])
	}
	v := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{})
	if len(v.GetWorkers()) != 1 || v.GetWorkers()[0].GetId() != other {
		t.Errorf("left are %v", v.GetWorkers())
	}
	if l := listedWorker(t, store, s, first); l.GetId() != "" {
		t.Errorf("still listed: %v", l)
	}
	gate.Open()
	works(t, h, s)                                                                         // the other one is the first now
	if err := h.Sys.Root.StopFuture(h.Sys.NewLocalPID("troupe/" + s)).Wait(); err != nil { // what it got meanwhile nobody would answer
		t.Fatal(err)
	}
	actortest.Until(t, "its next incarnation knows, too", func() bool {
		w := view(h, s).GetWorkers()
		return len(w) == 1 && w[0].GetId() == other
	})
}

func TestAClosedSessionEndsItsTurnsAndIsThereNoLonger(t *testing.T) {
	gate, m := gated()
	b := &brittle{One: actortest.One{Model: m}}
	h := actortest.New(t, actortest.Options{Models: b})
	s, first := h.Create(&messages.CreateSession{})
	bad := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Model: "brittle"}).GetId()
	b.panics.Store(100)
	actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: bad, Parts: actortest.Text("go")})
	actortest.Until(t, "one worker is quarantined", func() bool {
		return strings.Contains(fmt.Sprint(view(h, s).GetWorkers()), "quarantined:true")
	})
	in := submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	waits := actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	watch := h.Watch(s)
	actortest.Ask[*messages.Ack](h, s, &messages.CloseSession{Reason: "over"})
	if a := actortest.Wait(t, "the turn", waits); a.Reply.GetOutcome() != messages.TurnCompleted_ABORTED {
		t.Errorf("%v %v", a.Reply, a.Err)
	}
	watch.Until(messages.EventSessionClosed)
	for range 3 {
		if _, err := actortest.Try[proto.Message](h, s, &messages.SubmitInput{Parts: actortest.Text("more")}); actortest.Code(err) != messages.CodeClosed {
			t.Errorf("an input: %v", err)
		}
		if _, err := actortest.Try[proto.Message](h, s, &messages.CloseSession{}); actortest.Code(err) != messages.CodeClosed {
			t.Errorf("once more: %v", err)
		}
	}
	actortest.Until(t, "it has left memory", func() bool { return children(h)["session"] == 0 })
	for _, w := range []string{first, bad} {
		facts := h.Facts(w)
		if _, ok := facts[len(facts)-1].(*messages.Closed); !ok {
			t.Errorf("the journal of %s ends with %T", w, facts[len(facts)-1])
		}
	}
	if _, err := actortest.Try[proto.Message](h, "", &messages.CreateSession{SessionId: s}); actortest.Code(err) != messages.CodeAlreadyExists && actortest.Code(err) != messages.CodeClosed {
		t.Errorf("its id is free again: %v", err)
	}
}
