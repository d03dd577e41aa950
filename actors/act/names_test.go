package act_test

import (
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
)

// TestASystemKeepsFewTablesOfNames: each map of names that was ever used keeps room for eight, and asks use one after the other.
func TestASystemKeepsFewTablesOfNames(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	defer sys.Shutdown()
	if n := len(sys.ProcessRegistry.LocalPIDs.LocalPIDs); n > 8 {
		t.Errorf("%d tables of 32 maps each", n)
	}
	if p, there := sys.ProcessRegistry.GetLocal("eventstream"); !there || p == nil {
		t.Error("what the system itself has registered is not found any more")
	}
	echo := sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if text, is := c.Message().(string); is {
			c.Respond(text)
		}
	}))
	count := func() (n int) {
		for _, table := range sys.ProcessRegistry.LocalPIDs.LocalPIDs {
			n += table.Count()
		}
		return n
	}
	before := count()
	for range 100 {
		if got, err := act.Ask[string](t.Context(), sys, echo, "well"); got != "well" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if now := count(); now != before {
		t.Errorf("%d names, %d after a hundred asks", before, now)
	}
}

// TestAnAskCostsLittle: its address, its channel, its name and its envelope, and what the answer takes to get there.
func TestAnAskCostsLittle(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	defer sys.Shutdown()
	var msg any = "well"
	echo := sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, is := c.Message().(string); is {
			c.Respond(msg)
		}
	}, actor.WithMailbox(act.Mailbox(nil))))
	n := testing.AllocsPerRun(1000, func() { _, _ = act.Ask[string](t.Context(), sys, echo, msg) })
	if n > 7 {
		t.Errorf("an ask costs %v allocations", n)
	}
}
