package act

import (
	"context"
	"time"
)

// Clock is where actors get the time of day from, and what wakes them after a while. The two are not the same: the
// time of day may be set, forward and back, while a while is measured by a clock that nobody sets. What is
// due at a time of day is therefore looked at again and again, and what takes a while is not counted by it.
type Clock interface {
	// Now is the time of day.
	Now() time.Time
	// After calls fn once, in a goroutine of its own, when d has passed. stop takes it back, as far as it has not begun.
	After(d time.Duration, fn func()) (stop func())
}

// SystemClock is the machine's, with the time of day that now gives; nil is time.Now.
func SystemClock(now func() time.Time) Clock {
	if now == nil {
		now = time.Now
	}
	return systemClock{now}
}

type systemClock struct{ now func() time.Time }

func (c systemClock) Now() time.Time { return c.now() }

func (systemClock) After(d time.Duration, fn func()) func() {
	t := time.AfterFunc(d, fn)
	return func() { t.Stop() }
}

// Within is a context that ends with a cause when time has passed by a clock. By the machine's it has a deadline, too.
func Within(ctx context.Context, c Clock, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if _, ok := c.(systemClock); c == nil || ok {
		return context.WithTimeoutCause(ctx, d, cause)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := c.After(d, func() { cancel(cause) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
