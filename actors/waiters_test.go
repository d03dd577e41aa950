package actors_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

// TestWhoStopsWaitingLeavesNothingBehind: a client that asks again and again, and hears nothing because a turn waits, costs what one costs that waits.
func TestWhoStopsWaitingLeavesNothingBehind(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	s, _ := h.Create(&messages.CreateSession{})
	in := submit(h, s, "one")
	actortest.Wait(t, "the call", gate.Came)
	stays := actortest.Later[*messages.Ack](h, s, &messages.WaitIdle{})
	before := runtime.NumGoroutine()
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		wait := act.Asked[*messages.Ack](h.Sys, h.Root, actortest.Command(s, &messages.WaitIdle{}))
		turn := act.Asked[*messages.TurnResult](h.Sys, h.Root, actortest.Command(s, &messages.AwaitTurn{InputId: in}))
		cancel()
		if _, err := wait(ctx); err == nil {
			t.Fatal("it rests")
		}
		if _, err := turn(ctx); err == nil {
			t.Fatal("it is over")
		}
	}
	states(h, s) // the session and its worker have heard all of them
	if n := runtime.NumGoroutine() - before; n > 50 {
		t.Errorf("%d goroutines are left of 500 who went away", n)
	}
	late := actortest.Later[*messages.Ack](h, s, &messages.WaitIdle{})
	gate.Open()
	for _, who := range []<-chan actortest.Answer[*messages.Ack]{stays, late} {
		if a := actortest.Wait(t, "who stayed", who); a.Err != nil {
			t.Error(a.Err)
		}
	}
}
