package act_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
)

func TestAListOfThoseWhoWaitHoldsNobodyWhoStopped(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	defer sys.Shutdown()
	asked := make(chan *actor.PID, 1)
	silent := sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, is := c.Message().(string); is {
			asked <- c.Sender()
		}
	}))
	var list []*actor.PID
	stays := act.Asked[string](sys, silent, "stays")
	first := <-asked
	list = act.Await(sys, list, first)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10_000 {
		wait := act.Asked[string](sys, silent, "goes")
		list = act.Await(sys, list, <-asked)
		_, _ = wait(gone) // it is not answered
		if len(list) > 4 {
			t.Fatalf("%d wait, and one does", len(list))
		}
	}
	if list[0] != first || !act.Waits(sys, first) {
		t.Error("who waits was forgotten")
	}
	sys.Root.Send(first, "well")
	if got, err := stays(t.Context()); got != "well" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if act.Waits(sys, first) || act.Waits(sys, nil) {
		t.Error("nobody waits there")
	}
}
