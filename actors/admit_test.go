package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// busyFor says whether an error is a refusal for want of room, which says when to come again.
func busyFor(err error) bool {
	var f *messages.Failure
	return errors.As(err, &f) && errors.Is(err, messages.ErrBusy) && f.GetRetryAfterMs() > 0
}

func TestASessionThatRestsMakesRoomForAnotherOne(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), Limits: actors.Limits{Sessions: 2}})
	var all []string
	for range 6 {
		s, _ := h.Create(&messages.CreateSession{})
		h.Run(s, "go")
		all = append(all, s)
		if n := children(h)["session"]; n > 2 {
			t.Fatalf("%d sessions in memory", n)
		}
	}
	for _, s := range all { // each comes back for another one
		h.Run(s, "again")
		if got := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{}); len(got.GetTurns()) != 2 {
			t.Errorf("%s has %d turns", s, len(got.GetTurns()))
		}
	}
	root := actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{}).GetRoot()
	if root.GetRoom() != 2 || root.GetMemoryBytes() < 1<<16 {
		t.Errorf("room for %d, %d bytes", root.GetRoom(), root.GetMemoryBytes())
	}
}

// TestAWatcherThatIsNoMoreKeepsNoSessionInMemory: who has looked away before its subscription was handled, as that waited for room, and who looks away without a word.
func TestAWatcherThatIsNoMoreKeepsNoSessionInMemory(t *testing.T) {
	for _, before := range []bool{true, false} {
		h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), Limits: actors.Limits{Sessions: 1}})
		other, _ := h.Create(&messages.CreateSession{})
		watched, _ := h.Create(&messages.CreateSession{})
		h.Run(watched, "go")
		inbox := act.NewInbox(h.Sys, 16)
		h.Sys.Root.Send(inbox.PID(), "an address is resolved when it is first sent to")
		if before {
			inbox.Close()
		}
		h.Sys.Root.RequestWithCustomSender(h.Root, &messages.ToSession{SessionId: watched, Command: &messages.ToSession_Subscribe{Subscribe: &messages.Subscribe{}}}, inbox.PID())
		if !before {
			for heard := false; !heard; {
				all, _, err := inbox.Take(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range all {
					_, is := m.(*messages.Subscribed)
					heard = heard || is
				}
			}
			if _, err := actortest.Try[*messages.History](h, other, &messages.ReadHistory{}); !busyFor(err) {
				t.Errorf("a session that is watched leaves memory: %v", err)
			}
			inbox.Close()
		}
		actortest.Until(t, "there is room", func() bool {
			_, err := actortest.Try[*messages.History](h, other, &messages.ReadHistory{})
			return err == nil
		})
		h.Stop()
	}
}

func TestAHouseWhereAllWorkIsBusyAndSaysWhenToComeAgain(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{Sessions: 2},
		Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	asleep, _ := h.Create(&messages.CreateSession{})
	var at []string
	for range 2 {
		s, _ := h.Create(&messages.CreateSession{})
		submit(h, s, "hold")
		actortest.Wait(t, "the call", gate.Came)
		at = append(at, s)
	}
	if _, err := actortest.Try[*messages.SessionView](h, "", &messages.CreateSession{}); !busyFor(err) {
		t.Errorf("a third session: %v", err)
	}
	if _, err := actortest.Try[*messages.InputReply](h, asleep, &messages.SubmitInput{Parts: actortest.Text("go")}); !busyFor(err) {
		t.Errorf("an input for one that is not in memory: %v", err)
	}
	submit(h, at[0], "one that is in memory takes more")
	gate.Open()
	for _, s := range at {
		actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{})
	}
	actortest.Until(t, "there is room again", func() bool {
		_, err := actortest.Try[*messages.SessionView](h, "", &messages.CreateSession{})
		return err == nil
	})
}

// TestEachInputIsOneTurnOrIsRefused has many send at a time to more sessions than there is room for, with short queues. What was acknowledged
// becomes exactly one turn; what was refused leaves nothing.
func TestEachInputIsOneTurnOrIsRefused(t *testing.T) {
	const sessions, senders, each = 12, 16, 12
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), Limits: actors.Limits{Sessions: 4, Queue: 2}})
	var all, workers []string
	for range sessions {
		s, w := h.Create(&messages.CreateSession{})
		all, workers = append(all, s), append(workers, w)
	}
	var mu sync.Mutex
	taken, refused := map[string]string{}, map[string]bool{}
	var sending sync.WaitGroup
	for i := range senders {
		sending.Go(func() {
			for n := range each {
				id, to := fmt.Sprintf("inp_%d_%d", i, n), all[(i*5+n*7)%sessions]
				_, err := actortest.Try[*messages.InputReply](h, to, &messages.SubmitInput{InputId: id, Parts: actortest.Text(id)})
				mu.Lock()
				switch {
				case err == nil:
					taken[id] = to
				case busyFor(err):
					refused[id] = true
				default:
					t.Errorf("%s: %v", id, err)
				}
				mu.Unlock()
			}
		})
	}
	sending.Wait()
	found := 0
	for i, s := range all {
		actortest.Until(t, "the queue is worked off", func() bool {
			_, err := actortest.Try[*messages.Ack](h, s, &messages.WaitIdle{})
			return !busyFor(err)
		})
		facts := h.Facts(workers[i])
		var began []string
		for _, f := range actortest.Of[*messages.TurnStarted](facts) {
			began = append(began, f.GetInputIds()...)
		}
		for _, f := range actortest.Of[*messages.InputAccepted](facts) {
			id := f.GetInputId()
			if taken[id] != s || refused[id] {
				t.Errorf("%s is written down in %s, acknowledged in %q", id, s, taken[id])
			}
			if n := len(began) - len(slices.DeleteFunc(slices.Clone(began), func(b string) bool { return b == id })); n != 1 {
				t.Errorf("%s became %d turns", id, n)
			}
			found++
		}
		if n := len(actortest.Of[*messages.TurnCompleted](facts)); n != len(began) {
			t.Errorf("%s: %d turns began, %d ended", s, len(began), n)
		}
	}
	if found != len(taken) || len(taken)+len(refused) != senders*each {
		t.Errorf("%d acknowledged, %d found, %d refused", len(taken), found, len(refused))
	}
	t.Logf("%d acknowledged, %d refused", len(taken), len(refused))
}

func TestWhatIsParkedIsAnsweredWhenTheHouseStops(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{Sessions: 1}, Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	s, _ := h.Create(&messages.CreateSession{})
	submit(h, s, "hold")
	actortest.Wait(t, "the call", gate.Came)
	var waits []<-chan actortest.Answer[*messages.SessionView]
	for range 20 {
		waits = append(waits, actortest.Later[*messages.SessionView](h, "", &messages.CreateSession{}))
	}
	h.Stop()
	for _, w := range waits {
		if a := actortest.Wait(t, "an answer", w); a.Err == nil {
			t.Error("a session was made")
		}
	}
}
