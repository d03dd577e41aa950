package troupe

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// The cursor that a subscription begins at is read beside the session's mailbox: what is published
// after the reading may reach the subscriber before the answer.
func TestAnEventThatOvertakesTheSubscriptionIsSeen(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	session := sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*messages.ToSession); ok && c.Sender() != nil {
			for at := range uint64(2) {
				c.Respond(&messages.Published{FirstCursor: 9 + at, LastCursor: 9 + at, Events: []*messages.Event{{Type: messages.EventTurnCompleted, Seq: 9 + at}}})
			}
			c.Respond(&messages.Subscribed{Cursor: 9})
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	defer func() {
		if err := sys.Root.StopFuture(session).Wait(); err != nil {
			t.Error(err)
		}
	}()
	svc := &actors.Services{Store: memory.New()}
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
