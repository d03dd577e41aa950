package actors_test

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// slowMember is a model that lets the member named slow wait at a gate.
func slowMember() (*actortest.Gate, model.Model) {
	gate := actortest.NewGate()
	return gate, actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
		if strings.Contains(actortest.Asked(r), "You are slow") {
			if err := gate.Pass(ctx); err != nil {
				return actortest.Reply{Err: err}
			}
		}
		return actortest.Reply{Text: "yes"}
	})
}

// slowTalk is a session of three workers that share a conversation: the second one, slow, has the word with turn inp_slow, and waits at the gate.
type slowTalk struct {
	h     *actortest.House
	store *actortest.Store
	gate  *actortest.Gate
	s, id string // of the session and of the conversation
	w     []string
}

func whileSlowSpeaks(t *testing.T, limits actors.Limits) *slowTalk {
	t.Helper()
	k := &slowTalk{store: &actortest.Store{Store: memory.New()}}
	t.Cleanup(func() { _ = k.store.Close() })
	gate, m := slowMember()
	k.h, k.gate = actortest.New(t, actortest.Options{Model: m, Store: k.store, Limits: limits}), gate
	k.s, k.w, k.id = talkers(k.h)
	actortest.Ask[*messages.TurnAccepted](k.h, k.s, accepted(k.w[1], "inp_slow", "slow"))
	actortest.Wait(t, "the slow one's request", k.gate.Came)
	return k
}

// What is written down under the id of a turn that waits would keep the journal from being read ever again.
func TestTheIdOfATurnIsItsOwnWhileItWaits(t *testing.T) {
	gate, m := slowMember()
	h := actortest.New(t, actortest.Options{Model: m})
	s, w, _ := talkers(h)
	slow := actortest.Later[*messages.TurnResult](h, s, turnOf(w[1], "inp_slow", "slow"))
	actortest.Wait(t, "the slow one's request", gate.Came)
	waits := actortest.Later[*messages.TurnResult](h, s, turnOf(w[2], "inp_waits", "next"))
	for _, id := range []string{"inp_slow", "inp_waits"} {
		if _, err := actortest.Try[*messages.SharedTurn](h, s, &messages.SubmitTurn{Name: "talk", TurnId: id, Text: "mine", By: "ann"}); actortest.Code(err) != messages.CodeConflict {
			t.Errorf("a word with the id %s: %v", id, err)
		}
		if _, err := actortest.Try[*messages.TurnResult](h, s, turnOf(w[0], id, "third")); actortest.Code(err) != messages.CodeConflict {
			t.Errorf("another one's turn with the id %s: %v", id, err)
		}
	}
	gate.Open()
	for _, end := range []<-chan actortest.Answer[*messages.TurnResult]{slow, waits} {
		if a := actortest.Wait(t, "the end of a turn", end); a.Err != nil || a.Reply.GetText() != "yes" {
			t.Errorf("%v, %v", a.Reply, a.Err)
		}
	}
	actortest.Ask[*messages.SharedTurn](h, s, &messages.SubmitTurn{Name: "talk", TurnId: "inp_word", Text: "mine", By: "ann"})
	if _, err := actortest.Try[*messages.TurnResult](h, s, turnOf(w[0], "inp_word", "third")); actortest.Code(err) != messages.CodeConflict {
		t.Errorf("a turn with the id of a word from outside: %v", err)
	}
	if got := strings.Join(said(readTalk(h, s)), "; "); got != "slow: yes; next: yes; ann: mine" {
		t.Errorf("the transcript is %s", got)
	}
}

func TestATurnWithAnIDOrAPromptThatIsNoneIsRefused(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	s, w, _ := talkers(h)
	for _, id := range []string{strings.Repeat("x", 129), "two\nlines"} {
		if _, err := actortest.Try[*messages.SharedTurn](h, s, &messages.SubmitTurn{Name: "talk", TurnId: id, Text: "mine", By: "ann"}); actortest.Code(err) != messages.CodeBadRequest {
			t.Errorf("a word with the id %.9q: %v", id, err)
		}
		if _, err := actortest.Try[*messages.TurnResult](h, s, turnOf(w[0], id, "first")); actortest.Code(err) != messages.CodeBadRequest {
			t.Errorf("a turn with the id %.9q: %v", id, err)
		}
	}
	long := turnOf(w[0], "inp_long", "first")
	long.Prompt = strings.Repeat("x", 1<<20+1)
	if _, err := actortest.Try[*messages.TurnResult](h, s, long); actortest.Code(err) != messages.CodeTooLarge {
		t.Errorf("a long prompt: %v", err)
	}
	if got := said(readTalk(h, s)); len(got) > 0 {
		t.Errorf("the transcript is %q", got)
	}
}

func TestAMemberThatIsReleasedDoesNotGoOnWithATurnThatWasCutOff(t *testing.T) {
	b := &brittle{One: actortest.One{Model: actortest.Say("yes")}}
	b.panics.Store(1 << 20)
	h := actortest.New(t, actortest.Options{Models: b})
	s, _ := h.Create(&messages.CreateSession{})
	w := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Model: "brittle"}).GetId()
	actortest.Ask[*messages.SharedConversation](h, s, &messages.ShareConversation{Name: "talk"})
	if _, err := actortest.Try[*messages.TurnResult](h, s, turnOf(w, "inp_1", "weak")); actortest.Code(err) != messages.CodeQuarantined {
		t.Fatalf("the turn of one that panics: %v", err)
	}
	b.panics.Store(0)
	actortest.Ask[*messages.WorkerView](h, s, &messages.ReleaseWorker{WorkerId: w, By: "somebody"})
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: w, InputId: "inp_1"}); r.GetOutcome() != messages.TurnCompleted_ABORTED || r.GetText() != "" {
		t.Errorf("what was cut off came to %v", r)
	}
	if r := actortest.Ask[*messages.TurnResult](h, s, turnOf(w, "inp_2", "weak")); r.GetText() != "yes" {
		t.Errorf("its next turn: %v", r)
	}
	if got := strings.Join(said(readTalk(h, s)), "; "); got != "weak cut quarantined; weak: yes" {
		t.Errorf("the transcript is %s", got)
	}
}
