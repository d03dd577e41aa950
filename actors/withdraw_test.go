package actors_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

func TestAnInputThatWaitsForItsWorkspaceIsTakenBackAndTheNextInLineIsServed(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	dir := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	holder, _ := h.Create(&messages.CreateSession{Workspaces: dir})
	waiter, w := h.Create(&messages.CreateSession{Workspaces: dir})
	next, _ := h.Create(&messages.CreateSession{Workspaces: dir})
	first := submit(h, holder, "holds")
	actortest.Wait(t, "the holder's call", gate.Came)
	second := submit(h, waiter, "never mind")
	third := submit(h, next, "wants it, too")
	if got := states(h, waiter); got != "never mind staged" {
		t.Fatalf("inputs: %s", got)
	}
	actortest.Ask[*messages.Ack](h, waiter, &messages.WithdrawInput{InputId: second})
	if _, err := actortest.Try[*messages.Ack](h, waiter, &messages.WithdrawInput{InputId: second}); actortest.Code(err) == "" {
		t.Error("taken back twice")
	}
	gate.Open()
	for session, input := range map[string]string{holder: first, next: third} {
		if r := actortest.Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{InputId: input}); r.GetOutcome() != messages.TurnCompleted_DONE {
			t.Errorf("%v", r)
		}
	}
	works(t, h, waiter)
	if n := len(actortest.Of[*messages.TurnStarted](h.Facts(w))); n != 1 {
		t.Errorf("%d turns of the one who took its input back and then worked once", n)
	}
	works(t, h, holder)
}

func TestAnInputThatWaitsForItsPermitIsTakenBackAndItsPlaceGoesToTheNext(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m, Limits: actors.Limits{ModelCalls: 1}})
	holder, _ := h.Create(&messages.CreateSession{})
	waiter, w := h.Create(&messages.CreateSession{})
	next, _ := h.Create(&messages.CreateSession{})
	first := submit(h, holder, "holds")
	actortest.Wait(t, "the holder's call", gate.Came)
	second := submit(h, waiter, "never mind")
	h.State(waiter, "waiting")
	third := submit(h, next, "wants it, too")
	waits := actortest.Later[*messages.TurnResult](h, waiter, &messages.AwaitTurn{InputId: second})
	actortest.Ask[*messages.Ack](h, waiter, &messages.WithdrawInput{InputId: second})
	if a := actortest.Wait(t, "who waited", waits); a.Err != nil || a.Reply.GetOutcome() != messages.TurnCompleted_ABORTED {
		t.Errorf("who waited was told %v, %v", a.Reply, a.Err)
	}
	gate.Open()
	for session, input := range map[string]string{holder: first, next: third} {
		if r := actortest.Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{InputId: input}); r.GetOutcome() != messages.TurnCompleted_DONE {
			t.Errorf("%v", r)
		}
	}
	works(t, h, waiter) // the one permit is free again
	got := actortest.Ask[*messages.History](h, waiter, &messages.ReadHistory{})
	if strings.Contains(got.String(), "never mind") {
		t.Errorf("the conversation knows it: %v", got)
	}
	if n := len(actortest.Of[*messages.GenerationCompleted](h.Facts(w))); n != 1 {
		t.Errorf("the model answered %d times", n)
	}
}
