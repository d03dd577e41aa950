package actortest

import (
	"sync"
	"time"

	"github.com/troupe-dev/troupe/actors/act"
)

// Clock is a clock in the test's hands. Time passes when the test says so (Advance), and the time of day can be set
// without any time passing (Jump).
type Clock struct {
	mu    sync.Mutex
	day   time.Time     // the time of day
	mono  time.Duration // since the start, by a clock that nobody sets
	waits map[*wait]bool
}

type wait struct {
	at time.Duration
	fn func()
}

// NewClock makes a clock that stands at a time of day.
func NewClock(day time.Time) *Clock {
	return &Clock{day: day, waits: make(map[*wait]bool)}
}

// Now implements act.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.day
}

// After implements act.Clock.
func (c *Clock) After(d time.Duration, fn func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &wait{c.mono + d, fn}
	if d <= 0 {
		go fn()
	} else {
		c.waits[w] = true
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, w)
	}
}

// Advance lets time pass, and calls whoever waits until then.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.day, c.mono = c.day.Add(d), c.mono+d
	for w := range c.waits {
		if w.at <= c.mono {
			delete(c.waits, w)
			go w.fn()
		}
	}
}

// Jump sets the time of day. Nobody is told.
func (c *Clock) Jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.day = c.day.Add(d)
}

// Waits counts who waits.
func (c *Clock) Waits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waits)
}

var _ act.Clock = (*Clock)(nil)
