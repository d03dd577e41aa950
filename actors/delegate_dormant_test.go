package actors_test

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// TestAChildGoesOnWithAPromptOfItsOwnInTheNextProcess though its parent wants nothing of it: it is no part of a call then.
func TestAChildGoesOnWithAPromptOfItsOwnInTheNextProcess(t *testing.T) {
	gate, store, dir := actortest.NewGate(), stored(t), t.TempDir()
	mine := func(ctx context.Context, r *model.Request) actortest.Reply {
		if actortest.Asked(r) == "mine" {
			_ = gate.Pass(ctx)
		}
		return actortest.Reply{Text: "ok"}
	}
	o := actortest.Options{Store: store, DataDir: dir, Model: family(mine, delegate("1", "x"))}
	h := actortest.New(t, o)
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "go")
	child := workers(h, s)[1].GetId()
	actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: child, Parts: actortest.Text("mine")})
	actortest.Wait(t, "the child's own turn", gate.Came)
	h.Stop()
	gate.Open()
	h = actortest.New(t, o)
	actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{WorkerId: w}) // wakes the session
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	orderly(t, store, s)
}
