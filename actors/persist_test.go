package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/tools"
)

// appends is a store that counts the appends to workers' journals.
type appends struct {
	persistence.Store
	n atomic.Int64
}

func (s *appends) Enqueue(done func(persistence.Receipt, error), b ...persistence.Batch) {
	if strings.HasPrefix(b[0].Lease.Stream, messages.WorkerStream("")) {
		s.n.Add(1)
	}
	s.Store.Enqueue(done, b...)
}

func (s *appends) Release(l persistence.Lease) { s.Store.(persistence.Releaser).Release(l) }

// looking is a model that calls `look`, which only reads, then with `act` in the prompt `act`, and then answers.
func looking(pass func(ctx context.Context, step int)) actortest.Model {
	return func(ctx context.Context, r *model.Request) actortest.Reply {
		step := len(actortest.Results(r))
		for i, all := 0, r.Prompt.Messages; len(actortest.Results(r)) > 0 && i < len(all); i++ {
			if all[i].Role == messages.User {
				step = 0
			} else if all[i].Role == messages.ToolRole {
				step++
			}
		}
		pass(ctx, step)
		switch {
		case step == 0:
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("c", "look", `{"name":"x"}`)}}
		case step == 1 && strings.Contains(actortest.Asked(r), "act"):
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("c", "act", `{"name":"x"}`)}}
		}
		return actortest.Reply{Text: "done"}
	}
}

// types names the facts of a journal.
func types(facts []proto.Message) string {
	var out []string
	for _, f := range facts {
		out = append(out, string(f.ProtoReflect().Descriptor().Name()))
	}
	return strings.Join(out, " ")
}

func TestAPolicyDecidesHowManyAppendsATurnTakesAndNeverAboutItsEffects(t *testing.T) {
	for policy, want := range map[messages.Persist_Policy]struct{ pure, acting int64 }{
		messages.Persist_MESSAGE: {4, 6},
		messages.Persist_TASK:    {2, 4},
		messages.Persist_MANUAL:  {1, 3},
	} {
		t.Run(policy.String(), func(t *testing.T) {
			var h *actortest.House
			var worker string
			acted := 0
			look := tool(t, "look", messages.Effect_PURE, func(context.Context, string) (string, error) { return "seen", nil })
			act := tool(t, "act", messages.Effect_AT_MOST_ONCE, func(context.Context, string) (string, error) {
				acted++
				if facts := h.Facts(worker); !actortest.Is[*messages.ToolDispatched](facts[len(facts)-1]) || len(actortest.Of[*messages.GenerationCompleted](facts)) == 0 {
					t.Errorf("the effect runs when the journal says %s", types(facts))
				}
				return "acted", nil
			})
			store := &appends{Store: kept(t)}
			h = actortest.New(t, actortest.Options{Store: store, Tools: []tools.Tool{look, act}, Model: looking(func(context.Context, int) {})})
			session, id := h.Create(&messages.CreateSession{Persist: policy})
			worker = id
			h.Run(session, "warm up") // its first append says that it is there
			actortest.Ask[*messages.Ack](h, session, &messages.SaveHistory{})
			run := func(prompt string) int64 {
				before := store.n.Load()
				if r := h.Run(session, prompt); r.GetOutcome() != messages.TurnCompleted_DONE || r.GetText() != "done" {
					t.Fatalf("%v", r)
				}
				return store.n.Load() - before
			}
			if n := run("only look"); n != want.pure {
				t.Errorf("a turn that only reads took %d appends", n)
			}
			actortest.Ask[*messages.Ack](h, session, &messages.SaveHistory{})
			if n := run("look and act"); n != want.acting {
				t.Errorf("a turn with an effect took %d appends", n)
			}
			if acted != 1 || actortest.Ask[*messages.SessionView](h, session, &messages.DescribeSession{}).GetPersist() != policy {
				t.Errorf("acted %d times", acted)
			}
			h.Stop() // in order: nothing is lost
			facts := h.Facts(worker)
			if n := len(actortest.Of[*messages.TurnCompleted](facts)); n != 3 || len(actortest.Of[*messages.ToolFinished](facts)) != 4 {
				t.Errorf("%d turns are kept: %s", n, types(facts))
			}
		})
	}
}

// TestACrashLosesWhatThePolicySaysAndNoAcknowledgementOrEffect: the process dies while the model is asked for the last time, or
// after the turn's end.
func TestACrashLosesWhatThePolicySaysAndNoAcknowledgementOrEffect(t *testing.T) {
	for _, c := range []struct {
		policy     messages.Persist_Policy
		prompt     string
		after      bool // the end of the turn
		save       bool
		journal    string // after the acceptance
		asked      int    // the model, from then on
		looked     int32  // in all
		acted      int32
		finalTurns int
	}{
		{messages.Persist_MESSAGE, "look", false, false, "GenerationCompleted ToolPlanned ToolFinished GenerationStarted", 1, 1, 0, 1},
		{messages.Persist_TASK, "look", false, false, "", 2, 2, 0, 1},
		{messages.Persist_TASK, "look", false, true, "GenerationCompleted ToolPlanned ToolFinished GenerationStarted", 1, 1, 0, 1},
		{messages.Persist_TASK, "look", true, false, "GenerationCompleted ToolPlanned ToolFinished GenerationStarted GenerationCompleted TurnCompleted", 0, 1, 0, 1},
		{messages.Persist_TASK, "act", false, false, "GenerationCompleted ToolPlanned ToolFinished GenerationStarted GenerationCompleted ToolPlanned ToolDispatched ToolFinished GenerationStarted", 1, 1, 1, 1},
		{messages.Persist_MANUAL, "look", true, false, "", 2, 2, 0, 1},
		{messages.Persist_MANUAL, "look", true, true, "GenerationCompleted ToolPlanned ToolFinished GenerationStarted GenerationCompleted TurnCompleted", 0, 1, 0, 1},
		{messages.Persist_MANUAL, "act", true, false, "GenerationCompleted ToolPlanned ToolFinished GenerationStarted GenerationCompleted ToolPlanned ToolDispatched ToolFinished GenerationStarted", 1, 1, 1, 1},
	} {
		t.Run(fmt.Sprintf("%s, %s, after %v, saved %v", c.policy, c.prompt, c.after, c.save), func(t *testing.T) {
			var looked, acted atomic.Int32
			count := func(n *atomic.Int32) func(context.Context, string) (string, error) {
				return func(context.Context, string) (string, error) { n.Add(1); return "ok", nil }
			}
			both := []tools.Tool{tool(t, "look", messages.Effect_PURE, count(&looked)), tool(t, "act", messages.Effect_AT_MOST_ONCE, count(&acted))}
			store, gate := kept(t), actortest.NewGate()
			last := map[string]int{"look": 1, "act": 2}[c.prompt]
			h := actortest.New(t, actortest.Options{Store: store, Tools: both, Model: looking(func(ctx context.Context, step int) {
				if step == last && !c.after {
					_ = gate.Pass(ctx)
				}
			})})
			session, worker := h.Create(&messages.CreateSession{Persist: c.policy})
			in := actortest.Ask[*messages.InputReply](h, session, &messages.SubmitInput{Parts: actortest.Text(c.prompt)})
			if c.after {
				actortest.Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{InputId: in.GetInputId()})
			} else {
				actortest.Wait(t, "the model", gate.Came)
			}
			if c.save {
				actortest.Ask[*messages.Ack](h, session, &messages.SaveHistory{})
			}
			journal := types(h.Facts(worker))
			if want := strings.TrimSpace("WorkerCreated Activated InputAccepted TurnStarted GenerationStarted " + c.journal); journal != want {
				t.Errorf("the journal has\n%s\nnot\n%s", journal, want)
			}
			asked := atomic.Int32{} // another process takes over: the first one is fenced, as a dead one is
			next := actortest.New(t, actortest.Options{Store: store, Tools: both, Model: looking(func(context.Context, int) { asked.Add(1) })})
			if r := actortest.Ask[*messages.TurnResult](next, session, &messages.AwaitTurn{InputId: in.GetInputId()}); r.GetOutcome() != messages.TurnCompleted_DONE || r.GetText() != "done" {
				t.Errorf("%v", r)
			}
			if int(asked.Load()) != c.asked || looked.Load() != c.looked || acted.Load() != c.acted {
				t.Errorf("the model was asked %d times again; looked %d, acted %d times", asked.Load(), looked.Load(), acted.Load())
			}
			next.Stop()
			if n := len(actortest.Of[*messages.TurnCompleted](next.Facts(worker))); n != c.finalTurns {
				t.Errorf("%d turns in the end", n)
			}
		})
	}
}

func TestWhoWatchesIsToldOfEverythingInOrderWhateverThePolicy(t *testing.T) {
	for _, policy := range []messages.Persist_Policy{messages.Persist_MESSAGE, messages.Persist_TASK, messages.Persist_MANUAL} {
		look := tool(t, "look", messages.Effect_PURE, func(context.Context, string) (string, error) { return "seen", nil })
		h := actortest.New(t, actortest.Options{Tools: []tools.Tool{look}, Model: looking(func(context.Context, int) {})})
		session, _ := h.Create(&messages.CreateSession{Persist: policy})
		h.Run(session, "before")
		actortest.Ask[*messages.Ack](h, session, &messages.SaveHistory{}) // what came before is no matter of this test
		w := h.Watch(session)
		h.Run(session, "only look")
		var got []string
		seq := uint64(0)
		for _, e := range w.Until(messages.EventTurnCompleted) {
			if e.GetSeq() != 0 && e.GetSeq() <= seq {
				t.Errorf("%s: event %d after %d", policy, e.GetSeq(), seq)
			}
			if seq = max(seq, e.GetSeq()); e.GetSeq() > 0 {
				got = append(got, e.GetType())
			}
		}
		want := "input.accepted turn.started generation.started generation.completed tool.planned tool.finished generation.started generation.completed turn.completed"
		if !strings.HasSuffix(strings.Join(got, " "), want) {
			t.Errorf("%s: %s", policy, got)
		}
	}
}

// TestWhatWasKeptBackIsWrittenForWhoComesToWatch: nothing else may follow the end of a turn.
func TestWhatWasKeptBackIsWrittenForWhoComesToWatch(t *testing.T) {
	look := tool(t, "look", messages.Effect_PURE, func(context.Context, string) (string, error) { return "seen", nil })
	h := actortest.New(t, actortest.Options{Tools: []tools.Tool{look}, Model: looking(func(context.Context, int) {})})
	session, worker := h.Create(&messages.CreateSession{Persist: messages.Persist_MANUAL})
	h.Run(session, "only look")
	if facts := h.Facts(worker); len(actortest.Of[*messages.TurnCompleted](facts)) != 0 {
		t.Fatalf("nothing was kept back: %s", types(facts))
	}
	h.Watch(session)
	actortest.Until(t, "the end of the turn", func() bool { return len(actortest.Of[*messages.TurnCompleted](h.Facts(worker))) == 1 })
}

// TestWhoComesWhileATurnTakesItsLeaseKeepsItFromNothing: what was kept back is then written with the turn.
func TestWhoComesWhileATurnTakesItsLeaseKeepsItFromNothing(t *testing.T) {
	look := tool(t, "look", messages.Effect_PURE, func(context.Context, string) (string, error) { return "seen", nil })
	store := kept(t)
	h := actortest.New(t, actortest.Options{Store: store, Tools: []tools.Tool{look}, Model: looking(func(context.Context, int) {})})
	for range 200 {
		session, _ := h.Create(&messages.CreateSession{Persist: messages.Persist_MANUAL})
		h.Run(session, "only look")
		next := actortest.Later[*messages.InputReply](h, session, &messages.SubmitInput{Parts: actortest.Text("only look")})
		h.Watch(session)
		a := actortest.Wait(t, "the acceptance", next)
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		actortest.Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{InputId: a.Reply.GetInputId()})
	}
}

func TestASaveWithNothingToSaveAndAFailingOneAreAnswered(t *testing.T) {
	look := tool(t, "look", messages.Effect_PURE, func(context.Context, string) (string, error) { return "seen", nil })
	store := &actortest.Store{Store: kept(t)}
	h := actortest.New(t, actortest.Options{Store: store, Tools: []tools.Tool{look}, Model: looking(func(context.Context, int) {})})
	session, worker := h.Create(&messages.CreateSession{Persist: messages.Persist_MANUAL})
	actortest.Ask[*messages.Ack](h, session, &messages.SaveHistory{})
	h.Run(session, "only look")
	before := len(h.Facts(worker))
	fails := true
	store.Refuse(func(f proto.Message) error {
		if fails && actortest.Is[*messages.TurnCompleted](f) {
			fails = false
			return persistence.ErrUnavailable
		}
		return nil
	})
	if _, err := actortest.Try[*messages.Ack](h, session, &messages.SaveHistory{}); actortest.Code(err) != messages.CodeUnavailable {
		t.Errorf("%v", err)
	}
	if r := actortest.Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{}); r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("the successor does the turn again: %v", r)
	}
	actortest.Ask[*messages.Ack](h, session, &messages.SaveHistory{})
	if n := len(h.Facts(worker)); n <= before {
		t.Errorf("%d facts, %d before", n, before)
	}
}
