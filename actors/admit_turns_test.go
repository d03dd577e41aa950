package actors_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// TestOneThatRestsIsFoundBehindManyThatWait has time run so fast that those who said that they stay could be asked again at once.
func TestOneThatRestsIsFoundBehindManyThatWait(t *testing.T) {
	const waiting = 40
	gate := actortest.NewGate()
	var seconds atomic.Int64
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{Sessions: waiting + 1, Wall: 1000 * time.Hour},
		Now:    func() time.Time { return time.Unix(1_700_000_000+seconds.Add(1), 0) },
		Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	for range waiting {
		s, _ := h.Create(&messages.CreateSession{})
		submit(h, s, "hold")
	}
	h.Create(&messages.CreateSession{})
	if _, err := actortest.Try[*messages.SessionView](h, "", &messages.CreateSession{}); err != nil {
		t.Errorf("one more beside one that rests: %v", err)
	}
	gate.Open()
}

func TestAllThatIsAskedOfASessionIsLetInWithIt(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), Limits: actors.Limits{Sessions: 1}})
	asleep, _ := h.Create(&messages.CreateSession{})
	h.Create(&messages.CreateSession{})
	var sent []<-chan actortest.Answer[*messages.InputReply]
	for range 20 {
		sent = append(sent, actortest.Later[*messages.InputReply](h, asleep, &messages.SubmitInput{Parts: actortest.Text("go")}))
	}
	for _, one := range sent {
		if a := actortest.Wait(t, "an answer", one); a.Err != nil {
			t.Error(a.Err)
		}
	}
}

func TestASessionThatWasGivenUpTakesNoRoom(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), Limits: actors.Limits{Sessions: 1}})
	bad, _ := h.Create(&messages.CreateSession{})
	actortest.Until(t, "it is given up", func() bool {
		h.Sys.Root.Send(h.Root, &messages.SessionEnded{SessionId: bad, Failed: true, Reason: "it fails"})
		_, err := actortest.Try[*messages.SessionView](h, bad, &messages.DescribeSession{})
		return actortest.Code(err) == messages.CodeQuarantined
	})
	actortest.Until(t, "it has left, and another one comes in", func() bool {
		_, err := actortest.Try[*messages.SessionView](h, "", &messages.CreateSession{})
		return err == nil
	})
}
