package troupe

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// The cursor that a subscription begins at is read beside the session's mailbox: what is published
// after the reading may reach the subscriber before the answer.
func TestAnEventThatOvertakesTheSubscriptionIsSeen(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	session := sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*messages.ToSession); ok && c.Sender() != nil {
			for at := range uint64(2) {
				c.Respond(&messages.Published{FirstCursor: 9 + at, LastCursor: 9 + at, Events: []*messages.Event{{Type: messages.EventTurnCompleted, Seq: 9 + at}}})
			}
			c.Respond(&messages.Subscribed{Cursor: 9, Request: m.GetSubscribe().GetRequest()})
		}
	}))
	ctx := t.Context()
	defer func() {
		if err := sys.Root.StopFuture(session).Wait(); err != nil {
			t.Error(err)
		}
	}()
	store := memory.New()
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	svc := &actors.Services{Store: store}
	svc.Limits.SubscriberWait = 16
	f, err := (&Runtime{sys: sys, svc: svc, root: session}).subscribe(ctx, "ses_1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for e, err := range f.events(ctx) {
		if err != nil {
			t.Fatalf("the event was lost: %v", err)
		}
		if e.GetSeq() != 10 {
			t.Errorf("event %d, want 10: the cursor covers what is before it", e.GetSeq())
		}
		return
	}
}

// A session that is stopped from outside, at any moment, takes its watchers' subscriptions and the questions in its
// mailbox with it.
func TestEventsGoOnWhenTheirSessionIsStoppedAgainAndAgain(t *testing.T) {
	rt, err := New(t.Context(), Options{Model: actortest.Say("ok")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	s, err := rt.Session(t.Context(), SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const turns = 8
	runner := make(chan error, 1)
	go func() {
		for i := 0; i <= turns; {
			prompt := "go"
			if i == turns {
				prompt = "the end"
			}
			try, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := s.Run(try, prompt)
			cancel()
			var refused *messages.Failure
			switch {
			case err == nil, i < turns && errors.Is(err, context.DeadlineExceeded): // the prompt was in a mailbox that ended
				i++
			case !errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &refused) || refused.GetCode() != messages.CodeUnavailable):
				runner <- err
				return
			}
			if i < turns {
				rt.sys.Root.Stop(rt.sys.NewLocalPID("troupe/" + s.ID()))
			}
		}
		runner <- nil
	}()
	ctx := t.Context()
	begun, last := map[string]bool{}, uint64(0)
	for e, err := range rt.Events(ctx, s.ID(), 0) {
		if err != nil {
			t.Fatalf("after event %d: %v", last, err)
		}
		if e.GetSeq() != 0 && e.GetSeq() <= last {
			t.Errorf("event %d after %d", e.GetSeq(), last)
		}
		last = max(last, e.GetSeq())
		switch e.GetType() {
		case messages.EventTurnStarted:
			begun[e.GetTurn()] = true
		case messages.EventTurnCompleted:
			if !begun[e.GetTurn()] {
				t.Errorf("the beginning of turn %s was not seen", e.GetTurn())
			}
			delete(begun, e.GetTurn())
		}
		if e.GetType() == messages.EventInputAccepted && e.GetText() == "the end" {
			break
		}
	}
	if err := <-runner; err != nil {
		t.Error(err)
	}
}
