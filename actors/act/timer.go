package act

import (
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Timer sends an actor one message after a while. Set again or stopped, an older shot is
// recognised by its generation and must be ignored.
type Timer struct {
	system *time.Timer // of the machine's clock
	stop   func()      // of another's
	gen    uint64
}

// Set arms the timer; make gets the generation to stamp the message with.
func (t *Timer) Set(c actor.Context, d time.Duration, make func(gen uint64) any) {
	t.SetBy(SystemClock(nil), c, d, make)
}

// SetBy is Set by a clock of the caller's.
func (t *Timer) SetBy(clock Clock, c actor.Context, d time.Duration, make func(gen uint64) any) {
	t.Stop()
	gen, sys, self := t.gen, c.ActorSystem(), c.Self()
	send := func() { sys.Root.Send(self, make(gen)) }
	if _, is := clock.(systemClock); is {
		t.system = time.AfterFunc(d, send)
		return
	}
	t.stop = clock.After(d, send)
}

// Stop disarms it; a message under way will be stale.
func (t *Timer) Stop() {
	t.gen++
	if t.system != nil {
		t.system.Stop()
	}
	if t.stop != nil {
		t.stop()
	}
	t.system, t.stop = nil, nil
}

// Armed says whether it is to come.
func (t *Timer) Armed() bool { return t.system != nil || t.stop != nil }

// Fresh says whether a message with this generation is the newest shot.
func (t *Timer) Fresh(gen uint64) bool { return t.Armed() && gen == t.gen }

// Backoff is exponential, capped and jittered: the n-th pause (from 1) lies between half and
// the whole of First * 2^(n-1), at most Max.
type Backoff struct{ First, Max time.Duration }

// Pause returns the n-th pause.
func (b Backoff) Pause(n int) time.Duration {
	d := b.First
	for i := 1; i < n && d < b.Max; i++ {
		d *= 2
	}
	d = min(d, b.Max)
	return d/2 + rand.N(d/2+1)
}
