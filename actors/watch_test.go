package actors_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// TestAWatcherThatComesAtAnyMomentMissesNothing subscribes before every append of a turn in turn. The records up
// to the cursor it is told, and the events it is sent, are together what the session's journal holds.
func TestAWatcherThatComesAtAnyMomentMissesNothing(t *testing.T) {
	moments := map[string]func(proto.Message) bool{
		"the start":    actortest.Is[*messages.TurnStarted],
		"the answer":   actortest.Is[*messages.GenerationCompleted],
		"the dispatch": actortest.Is[*messages.ToolDispatched],
		"the result":   actortest.Is[*messages.ToolFinished],
		"the end":      actortest.Is[*messages.TurnCompleted],
	}
	for name, match := range moments {
		t.Run(name, func(t *testing.T) {
			store := &actortest.Store{Store: memory.New()}
			t.Cleanup(func() { _ = store.Close() })
			h := actortest.New(t, actortest.Options{
				Store: store,
				Model: actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`), actortest.Call("2", "act", `{"name":"y"}`)),
				Tools: []tools.Tool{tool(t, "act", atMostOnce, func(context.Context, string) (string, error) { return "did", nil })},
			})
			s, _ := h.Create(&messages.CreateSession{})
			came, release := store.Hold(match)
			in := actortest.Later[*messages.InputReply](h, s, &messages.SubmitInput{InputId: "inp_1", Parts: actortest.Text("go")})
			actortest.Wait(t, "the append", came)
			w := h.Watch(s)
			release()
			if a := actortest.Wait(t, "the acceptance", in); a.Err != nil {
				t.Fatal(a.Err)
			}
			seen := map[uint64]bool{}
			for _, e := range w.Until(messages.EventTurnCompleted) {
				if e.GetSeq() == 0 {
					continue
				}
				if seen[e.GetSeq()] || e.GetSeq() <= w.Cursor {
					t.Errorf("event %d twice, or again: %s", e.GetSeq(), e.GetType())
				}
				seen[e.GetSeq()] = true
			}
			actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
			err := store.ReadSession(context.Background(), s, w.Cursor, func(e persistence.Entry) error {
				f, err := messages.WorkerFactIn(e.Record)
				if _, quiet := f.(*messages.Activated); err == nil && !quiet && !seen[e.Cursor] {
					t.Errorf("record %d, %T, was not shown", e.Cursor, f)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestASlowWatcherLosesTheOldestAndHoldsUpNobody(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	s, _ := h.Create(&messages.CreateSession{})
	inbox := act.NewInbox(h.Sys, 3)
	defer inbox.Close()
	h.Sys.Root.RequestWithCustomSender(h.Root, actortest.Command(s, &messages.Subscribe{}), inbox.PID())
	quick := h.Watch(s)
	for i := range 10 {
		h.Run(s, fmt.Sprint("turn ", i))
	}
	for range 10 {
		quick.Until(messages.EventTurnCompleted)
	}
	msgs, lost, err := inbox.Take(context.Background())
	if err != nil || !lost || len(msgs) != 3 {
		t.Errorf("%d messages, lost %v, %v", len(msgs), lost, err)
	}
}

func TestWatchersOfASessionThatIsReplacedAreToldToComeAgain(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	s, _ := h.Create(&messages.CreateSession{})
	w := h.Watch(s)
	if err := h.Sys.Root.StopFuture(h.Sys.NewLocalPID("troupe/" + s)).Wait(); err != nil {
		t.Fatal(err)
	}
	for told := false; !told; {
		for _, m := range w.Take() {
			_, is := m.(*messages.Unsubscribe)
			told = told || is
		}
	}
	actortest.Until(t, "it is back", func() bool { return len(view(h, s).GetWorkers()) == 1 })
	again := h.Watch(s)
	h.Run(s, "go")
	again.Until(messages.EventTurnCompleted)
}

func TestAWorkerThatIsReplacedIsStillWatched(t *testing.T) {
	b := &brittle{One: actortest.One{Model: actortest.Say("ok")}}
	h := actortest.New(t, actortest.Options{Models: b})
	s, _ := h.Create(&messages.CreateSession{Model: "brittle"})
	w := h.Watch(s)
	b.panics.Store(1)
	if r := h.Run(s, "go"); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
	if v := h.Worker(s); v.GetRestarts() != 1 {
		t.Errorf("%d restarts", v.GetRestarts())
	}
	w.Until(messages.EventTurnCompleted)
}

func TestDeltasCarryTheirGenerationAndGoToWatchersAlone(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("some words")})
	s, w := h.Create(&messages.CreateSession{})
	watch := h.Watch(s)
	h.Run(s, "go")
	gen := actortest.Of[*messages.GenerationStarted](h.Facts(w))[0].GetGenId()
	deltas := ""
	for _, e := range watch.Until(messages.EventTurnCompleted) {
		if e.GetType() == messages.EventTextDelta {
			deltas += e.GetText()
			if e.GetGenId() != gen || e.GetSeq() != 0 {
				t.Errorf("delta %v of generation %s", e, gen)
			}
		}
	}
	if deltas != "some words" {
		t.Errorf("deltas %q", deltas)
	}
}

func TestAReaderWhoseToolsGrowDoesNotWriteBesideOthers(t *testing.T) {
	gate := actortest.NewGate()
	ran := false
	h := actortest.New(t, actortest.Options{
		Agents: []actors.Agent{{Name: "reader", System: "Read.", Tools: []string{"look"}}},
		Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			if res := actortest.Results(r); res != nil {
				return actortest.Reply{Text: res[0].Text}
			}
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("1", "act", `{"name":"x"}`)}, Err: gate.Pass(ctx)}
		}),
		Tools: []tools.Tool{
			tool(t, "look", pure, func(context.Context, string) (string, error) { return "saw", nil }),
			tool(t, "act", atMostOnce, func(context.Context, string) (string, error) { ran = true; return "did", nil }),
		},
	})
	s, _ := h.Create(&messages.CreateSession{Agent: "reader"})
	two := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Agent: "reader"}).GetId()
	in := submit(h, s, "go")
	actortest.Wait(t, "one reader", gate.Came)
	actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: two, Parts: actortest.Text("go")})
	actortest.Wait(t, "another reader beside it", gate.Came)
	actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{Tools: []string{"act", "look"}})
	gate.Open()
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	if ran || r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("ran %v, %q", ran, r.GetText())
	}
	works(t, h, s)
}
