package actors_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestACancelledSessionGivesNobodyTheWord has a conversation fail over the cancel: what is cancelled stays so when it has come back.
func TestACancelledSessionGivesNobodyTheWord(t *testing.T) {
	t.Run("at once", func(t *testing.T) { cancelTalk(t, 0) })
	t.Run("when it has failed over it", func(t *testing.T) { cancelTalk(t, 1) })
}

func cancelTalk(t *testing.T, failures int32) {
	t.Helper()
	k := whileSlowSpeaks(t, actors.Limits{})
	h, s, w, store := k.h, k.s, k.w, k.store
	for _, turn := range []string{"inp_2", "inp_3"} {
		actortest.Ask[*messages.TurnAccepted](h, s, accepted(w[2], turn, "next"))
	}
	var refused atomic.Int32
	store.Refuse(func(f proto.Message) error {
		if _, is := f.(*messages.TurnWithdrawn); is && refused.Add(1) <= failures {
			return errors.New("no room")
		}
		return nil
	})
	if r := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{Reason: "enough"}); failures == 0 && r.GetTurns() != 1 || r.GetInputs() != 2 { // the next incarnation may have ended the turn itself
		t.Errorf("cancelled: %v", r)
	}
	v := readTalk(h, s) // nothing is waited for here
	if got := strings.Join(said(v), "; "); got != "slow cut abortedcancelled" || v.GetSpeaking() != "" || v.GetWaiting() != 0 {
		t.Errorf("when the cancel is answered there is %s, and %v", got, v)
	}
	for _, turn := range []string{"inp_2", "inp_3"} {
		if _, err := actortest.Try[*messages.TurnResult](h, s, &messages.AwaitSharedTurn{Name: "talk", TurnId: turn}); actortest.Code(err) != messages.CodeWithdrawn {
			t.Errorf("%s: %v", turn, err)
		}
	}
	if refused.Load() <= failures {
		t.Error("nothing was written")
	}
}

func TestATurnThatIsTakenBackIsOverBeforeThatIsAnswered(t *testing.T) {
	k := whileSlowSpeaks(t, actors.Limits{})
	h, s, store := k.h, k.s, k.store
	back := &messages.WithdrawTurn{Name: "talk", TurnId: "inp_slow", Reason: "enough"}
	store.Refuse(func(f proto.Message) error {
		if _, is := f.(*messages.TurnCut); is {
			return errors.New("no room")
		}
		return nil
	})
	if _, err := actortest.Try[*messages.Ack](h, s, back); actortest.Code(err) != messages.CodeUnavailable {
		t.Errorf("an end that could not be written: %v", err)
	}
	store.Refuse(nil)
	if _, err := again[*messages.Ack](t, h, s, back); err != nil && actortest.Code(err) != messages.CodeCommitted { // it may be over already
		t.Errorf("taken back again: %v", err)
	}
	if got := strings.Join(said(readTalk(h, s)), "; "); got != "slow cut abortedcancelled" {
		t.Errorf("when that is answered there is %q", got)
	}
}

// TestWhoCallsHimselfAConversationIsNone: who it comes from is a client's own word; whose origin it is is not.
func TestWhoCallsHimselfAConversationIsNone(t *testing.T) {
	const own = messages.ConversationPrefix + "0123456789abcdef"
	t.Run("what it asks is steered", func(t *testing.T) {
		gate, m := steps("nobody_knows_it")
		h := actortest.New(t, actortest.Options{Model: m})
		s, w := h.Create(&messages.CreateSession{})
		actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{InputId: "one", From: own, Parts: actortest.Text("one")})
		actortest.Wait(t, "the first call", gate.Came)
		steer(h, s, "rather this")
		gate.Open()
		if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: "one"}); r.GetText() != "read: one, rather this" {
			t.Errorf("the turn: %v", r)
		}
		if joined := actortest.Of[*messages.InputJoined](h.Facts(w)); len(joined) != 1 {
			t.Errorf("%d joined", len(joined))
		}
	})
	t.Run("what it asked is not taken back", func(t *testing.T) {
		b := &brittle{One: actortest.One{Model: actortest.Say("yes")}}
		b.panics.Store(1 << 20)
		h := actortest.New(t, actortest.Options{Models: b})
		s, _ := h.Create(&messages.CreateSession{})
		w := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Model: "brittle"}).GetId()
		actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: w, InputId: "one", From: own, Parts: actortest.Text("one")})
		if _, err := actortest.Try[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: w, InputId: "one"}); actortest.Code(err) != messages.CodeQuarantined {
			t.Fatalf("the turn of one that panics: %v", err)
		}
		b.panics.Store(0)
		actortest.Ask[*messages.WorkerView](h, s, &messages.ReleaseWorker{WorkerId: w, By: "somebody"})
		if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: w, InputId: "one"}); r.GetText() != "yes" {
			t.Errorf("once it is released: %v", r)
		}
	})
}

// I10: what is in the mailbox of a conversation that fails is answered there, and what comes later by its successor.
func TestNothingIsLostInAConversationThatFails(t *testing.T) {
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store})
	s, _, _ := talkers(h)
	store.Refuse(func(f proto.Message) error {
		if said, is := f.(*messages.TurnSubmitted); is && said.GetText() == "bad" {
			return errors.New("no room")
		}
		return nil
	})
	for i := range 60 { // what follows the one that fails comes while that is noticed
		text := "good"
		if i%3 == 0 {
			text = "bad"
		}
		_, err := actortest.Try[*messages.SharedTurn](h, s, &messages.SubmitTurn{Name: "talk", Text: text, By: "ann"})
		if text == "bad" && err == nil || err != nil && actortest.Code(err) != messages.CodeUnavailable {
			t.Errorf("%d, %s: %v", i, text, err)
		}
	}
}

// again asks until what has failed is there again.
func again[T proto.Message](t *testing.T, h *actortest.House, s string, m proto.Message) (reply T, err error) {
	t.Helper()
	actortest.Until(t, "it is there again", func() bool {
		reply, err = actortest.Try[T](h, s, m)
		return actortest.Code(err) != messages.CodeUnavailable
	})
	return reply, err
}

// TestWhatIsTakenBackCountsAndNamesAreShort: who asks and takes back without end fills the conversation, and not the memory.
func TestWhatIsTakenBackCountsAndNamesAreShort(t *testing.T) {
	k := whileSlowSpeaks(t, actors.Limits{Spoken: 3})
	h, s, w, gate, id := k.h, k.s, k.w, k.gate, k.id
	for _, turn := range []string{"inp_2", "inp_3"} {
		long := accepted(w[2], turn, strings.Repeat("n", 1<<20))
		long.By = strings.Repeat("b", 1<<20)
		actortest.Ask[*messages.TurnAccepted](h, s, long)
		actortest.Ask[*messages.Ack](h, s, &messages.WithdrawTurn{Name: "talk", TurnId: turn})
	}
	if _, err := actortest.Try[*messages.TurnAccepted](h, s, accepted(w[2], "inp_4", "next")); actortest.Code(err) != messages.CodeTooLarge {
		t.Errorf("one more: %v", err)
	}
	err := h.Store.Read(t.Context(), messages.ConversationStream(id), 1, func(e persistence.Entry) error {
		if n := proto.Size(e.Record); n > 4<<10 {
			t.Errorf("record %d has %d bytes", e.Record.GetSeq(), n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	gate.Open()
	actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitSharedTurn{Name: "talk", TurnId: "inp_slow"})
}

func TestAConversationThatIsFullTakesNoMore(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	s, w, _ := talkers(h)
	large := strings.Repeat("x", conversation.MaxSaid)
	for range conversation.MaxTranscript / conversation.MaxSaid {
		actortest.Ask[*messages.SharedTurn](h, s, &messages.SubmitTurn{Name: "talk", Text: large, By: "ann"})
	}
	for _, m := range []proto.Message{&messages.SubmitTurn{Name: "talk", Text: "more", By: "ann"}, accepted(w[1], "inp_1", "next")} {
		if _, err := actortest.Try[proto.Message](h, s, m); actortest.Code(err) != messages.CodeTooLarge {
			t.Errorf("%T: %v", m, err)
		}
	}
}
