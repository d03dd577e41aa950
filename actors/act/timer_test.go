package act_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
)

// handClock calls nobody by itself.
type handClock struct{ act.Clock }

func (handClock) After(time.Duration, func()) func() { return func() {} }

// TestATimerIsArmedFromItsSettingToItsStop, by whichever clock.
func TestATimerIsArmedFromItsSettingToItsStop(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	defer sys.Shutdown()
	done := make(chan struct{})
	sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, started := c.Message().(*actor.Started); !started {
			return
		}
		defer close(done)
		for name, clock := range map[string]act.Clock{"the machine's": act.SystemClock(nil), "another": handClock{}} {
			var timer act.Timer
			before := timer.Armed()
			timer.SetBy(clock, c, time.Hour, func(uint64) any { return "due" })
			set := timer.Armed()
			timer.Stop()
			if before || !set || timer.Armed() {
				t.Errorf("%s: armed before it is set %v, set %v, stopped %v", name, before, set, timer.Armed())
			}
		}
	}))
	<-done
}
