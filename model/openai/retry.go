package openai

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/troupe-dev/troupe/model"
)

const (
	firstPause = 500 * time.Millisecond
	mostPause  = 30 * time.Second
	// mostRetryAfter caps what a provider may ask for: beyond it a person should decide.
	mostRetryAfter = 60 * time.Second
)

// retryable tells whether the same request is sent again, as it may go well the next time. One that the provider refused for the number of requests is
// the caller's to repeat: all calls wait then and not this one alone, nobody holds a place meanwhile, and who has another model asks that.
func retryable(c model.Class) bool {
	switch c {
	case model.Overloaded, model.Timeout, model.Truncated:
		return true
	case model.RateLimited, model.ContextLength, model.Auth, model.BadRequest, model.NotFound, model.Protocol, model.Unmatched:
		return false
	}
	return false
}

// pause is how long to wait after the attempt-th request (from 1) failed: exponential with
// jitter from half to whole, or what the provider asked for and a little more, so that
// many who wait for the same limit do not come back at once.
func pause(attempt int, asked time.Duration, chance float64) time.Duration {
	d := min(firstPause<<min(attempt-1, 10), mostPause)
	d = d/2 + time.Duration(chance*float64(d/2))
	if asked > 0 {
		return min(asked+time.Duration(chance*float64(min(asked, mostPause)/4)), mostRetryAfter)
	}
	return d
}

// retryAfter reads Retry-After as seconds or as an HTTP date, and retry-after-ms; 0 when there
// is none that can be read. It is capped at an hour, so that no sum overflows.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = time.Hour
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && !math.IsInf(ms, 1) {
		return time.Duration(min(ms, float64(most/time.Millisecond)) * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if s > 0 && !math.IsInf(s, 1) { // false for NaN too
			return time.Duration(min(s, most.Seconds()) * float64(time.Second))
		}
		return 0
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), 0), most)
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func chance() float64 { return rand.Float64() } //nolint:gosec // jitter, not a secret
