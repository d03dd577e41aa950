package actors_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestACancelTakesBackWhatIsOnItsWayToAnotherWorker has a message that is tried again, as its receiver was full.
func TestACancelTakesBackWhatIsOnItsWayToAnotherWorker(t *testing.T) {
	h, clock, done, s, a, b := refusedOnce(t)
	if c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{Inputs: true}); c.GetTurns() != 2 || c.GetInputs() != 0 || c.GetMessages() != 1 {
		t.Errorf("cancelled %v", c)
	}
	done.Open()
	clock.Advance(time.Hour)
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	if acks := actortest.Of[*messages.OutboxAcked](h.Facts(a)); len(mailTo(h, b)) != 0 || len(acks) != 1 || !strings.Contains(acks[0].GetRefused(), "cancelled") {
		t.Errorf("the receiver was told %v; the sender has noted %v", mailTo(h, b), acks)
	}
	if listedWorker(t, h.Store, s, a).GetOutbox() != 0 {
		t.Error("it is listed as on its way")
	}
	works(t, h, s)
}

// TestACancelOfOneWorkerLeavesWhatItHasSent: without the inputs that wait, what was sent is sent, though it was refused once.
func TestACancelOfOneWorkerLeavesWhatItHasSent(t *testing.T) {
	h, clock, done, s, a, b := refusedOnce(t)
	if c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{WorkerId: a}); c.GetTurns() != 1 || c.GetInputs() != 0 {
		t.Errorf("cancelled %v", c)
	}
	done.Open()
	actortest.Until(t, "the receiver is free", func() bool { return workers(h, s)[1].GetTurns() == 1 })
	clock.Advance(time.Minute)
	actortest.Until(t, "it has arrived", func() bool { return len(mailTo(h, b)) == 1 })
	if acks := actortest.Of[*messages.OutboxAcked](h.Facts(a)); len(acks) > 0 && acks[0].GetRefused() != "" {
		t.Errorf("it was taken back: %v", acks)
	}
}

// TestNothingBeginsAfterTheCancelOfWorkersThatWakeEachOther cancels two that answer each other for ever, wherever their messages are.
func TestNothingBeginsAfterTheCancelOfWorkersThatWakeEachOther(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 10
	}
	for i := range rounds {
		var asked atomic.Int32
		var other atomic.Pointer[map[string]string]
		came := make(chan struct{}, 1)
		h := actortest.New(t, actortest.Options{Limits: actors.Limits{Unasked: 1 << 20}, Model: actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
			if asked.Add(1) == int32(4+i) {
				came <- struct{}{}
			}
			if actortest.Results(r) != nil {
				return actortest.Reply{Text: "sent"}
			}
			to := ""
			for from, name := range *other.Load() {
				if strings.HasPrefix(actortest.Asked(r), "Message from worker "+from) {
					to = from
				} else if to == "" {
					to = name
				}
			}
			return actortest.Reply{Calls: []*messages.ToolCall{send("1", to, "your turn")}}
		})})
		s, a, b := pair(h)
		other.Store(&map[string]string{a: b})
		submit(h, s, "go")
		actortest.Wait(t, "they write to each other", came)
		actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{Inputs: i%2 == 0}) // a Ctrl-C in a chat leaves a person's inputs, and no others
		after := asked.Load()
		actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
		if n := asked.Load(); n != after {
			t.Errorf("round %d: the model was asked %d times after the cancel was answered", i, n-after)
		}
		for _, w := range workers(h, s) {
			if w.GetTurn() != "" || w.GetStaged() > 0 || w.GetOutbox() > 0 {
				t.Errorf("round %d: it rests as %v", i, w)
			}
		}
		h.Stop()
	}
}

// TestACancelOfAllLeavesThePersonsInputsThatWait is a Ctrl-C in the chat of a session with several workers.
func TestACancelOfAllLeavesThePersonsInputsThatWait(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	s, a, b := pair(h)
	submit(h, s, "one")
	actortest.Wait(t, "the first call", gate.Came)
	next := submit(h, s, "two")
	mail := &messages.DeliverMail{WorkerId: a, Mail: letter(b, a, "hello")}
	if _, err := deliver(t, h, s, mail); err != nil {
		t.Fatal(err)
	}
	if c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{}); c.GetTurns() != 1 || c.GetInputs() != 1 {
		t.Errorf("cancelled %v", c)
	}
	actortest.Wait(t, "the second call", gate.Came)
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: next}); r.GetText() != "said two" {
		t.Errorf("%v", r)
	}
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	if back := actortest.Of[*messages.InputWithdrawn](h.Facts(a)); len(back) != 1 || workers(h, s)[0].GetTurns() != 2 {
		t.Errorf("taken back were %v", back)
	}
}

// TestACancelOfACompactionThatWaitsForItsPermitLetsTheWorkerGoOn has a message that waits, too: what is written down of it comes before the next turn.
func TestACancelOfACompactionThatWaitsForItsPermitLetsTheWorkerGoOn(t *testing.T) {
	store, gate := memory.New(), actortest.NewGate()
	t.Cleanup(func() { _ = store.Close() })
	first := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, a, b := pair(first)
	first.Run(s, "plain")
	first.Stop()
	write(t, store, s, a, recordOf(t, letter(a, b, "hello")))
	write(t, store, s, b, recordOf(t, &messages.Panicked{Reason: "as the test wants it", Quarantined: true}))
	h := actortest.New(t, actortest.Options{Store: store, Limits: actors.Limits{ModelCalls: 1}, Model: plainOr(func(ctx context.Context, _ *model.Request) actortest.Reply {
		return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
	})})
	other, _ := h.Create(&messages.CreateSession{})
	submit(h, other, "hold the permit")
	actortest.Wait(t, "the first call", gate.Came)
	actortest.Ask[*messages.Inputs](h, s, &messages.ListInputs{WorkerId: a})
	wanted := act.Asked[*messages.Compacted](h.Sys, h.Sys.NewLocalPID("troupe/"+s), &messages.CompactHistory{WorkerId: a})
	actortest.Ask[*messages.Inputs](h, s, &messages.ListInputs{WorkerId: a}) // the compaction waits
	actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{Inputs: true})
	ctx, cancel := context.WithTimeout(t.Context(), actortest.Patience)
	defer cancel()
	if x, err := wanted(ctx); actortest.Code(err) != messages.CodeUnavailable {
		t.Errorf("%v, %v", x, err)
	}
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{WorkerId: a})
	gate.Open()
	works(t, h, s)
	if acks := actortest.Of[*messages.OutboxAcked](h.Facts(a)); len(acks) != 1 || acks[0].GetRefused() == "" {
		t.Errorf("the message was not taken back: %v", acks)
	}
}

// TestACancelKeepsTheResultOfAChildInTheBackgroundFromWakingItsParent has a child whose answer waits for its parent, which is quarantined.
func TestACancelKeepsTheResultOfAChildInTheBackgroundFromWakingItsParent(t *testing.T) {
	store, gate := memory.New(), actortest.NewGate()
	t.Cleanup(func() { _ = store.Close() })
	gate.Open()
	first := actortest.New(t, actortest.Options{Store: store, Model: apart(behind(gate), inBackground("1", "x"))})
	s, w := first.Create(&messages.CreateSession{})
	first.Run(s, "go")
	quiet(first, t, s, 3)
	child := workers(first, s)[1].GetId()
	first.Stop()
	result := letter(child, w, "done again")
	result.Mail.Kind = messages.Mail_RESULT
	write(t, store, s, child, recordOf(t, result))
	write(t, store, s, w, recordOf(t, &messages.Panicked{Reason: "as the test wants it", Quarantined: true}))
	h := actortest.New(t, actortest.Options{Store: store, Model: apart(behind(gate), inBackground("1", "x"))})
	actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{Inputs: true})
	actortest.Ask[*messages.WorkerView](h, s, &messages.ReleaseWorker{WorkerId: w})
	actortest.Until(t, "nothing is on its way", func() bool { return listedWorker(t, h.Store, s, child).GetOutbox() == 0 })
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	if in := mailTo(h, w); len(in) != 1 || workers(h, s)[0].GetTurns() != 2 {
		t.Errorf("the parent was told %v", in)
	}
}
