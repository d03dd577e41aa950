package actors

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// TestACancelIsNotAnsweredAsDoneWhileTheEndOfATurnIsNotWritten has a conversation that fails until the cancel is out of time, and one that tells of the end.
func TestACancelIsNotAnsweredAsDoneWhileTheEndOfATurnIsNotWritten(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	defer sys.Shutdown()
	for code, done := range map[string]bool{messages.CodeUnavailable: false, messages.CodeQuarantined: true} {
		session := sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
			switch c.Message().(type) {
			case *cancelTalk:
				c.Respond(&talkCancelled{turn: "inp_1", taken: 2})
			case *cancelWorkers:
				c.Respond(&messages.Cancelled{Turns: 1})
			case *messages.AwaitSharedTurn:
				c.Respond(messages.Fail(code, "the conversation failed", ""))
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		if !done {
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		}
		reply := cancelAround(ctx, &Services{}, sys, session, map[string]bool{"cnv_1": true}, &messages.CancelSession{})
		cancel()
		if sum, ok := reply.(*messages.Cancelled); ok != done || ok && (sum.GetTurns() != 1 || sum.GetInputs() != 2) {
			t.Errorf("%s: %v", code, reply)
		}
		_ = sys.Root.PoisonFuture(session).Wait()
	}
}
