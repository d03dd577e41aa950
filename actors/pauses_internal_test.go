package actors

import (
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// TestATurnAloneIsToldOfADeadProviderWithinAMinute adds up the longest pauses of a turn whose provider is gone: its own, and those of the Limiter.
func TestATurnAloneIsToldOfADeadProviderWithinAMinute(t *testing.T) {
	now := time.Unix(1, 0)
	begun, h := now, health{}
	const each, most = 5, 3
	for n := 1; attempts(n, n, each) < most; n++ {
		h.note(now, &messages.ReleasePermit{Outcome: messages.ReleasePermit_OVERLOADED})
		own := pauseAfter(&model.Error{Class: model.Overloaded}, pauses(n, n, each, true))
		if own > 4*time.Second {
			t.Errorf("after %d requests the turn waits %v: longer than a model's client", n, own)
		}
		now = now.Add(max(own, h.wait(now)))
	}
	if took := now.Sub(begun); took > time.Minute {
		t.Errorf("it is told after %v", took)
	}
}

func TestPausesOfOneAttemptAreThoseOfAClient(t *testing.T) {
	for _, c := range []struct {
		failures, unanswered, each int
		newest                     bool
		want                       int
	}{
		{1, 1, 5, true, 1},
		{4, 4, 5, true, 4},
		{5, 5, 5, true, 1}, // the pause between attempts
		{6, 6, 5, true, 1},
		{10, 10, 5, true, 2},
		{3, 0, 5, false, 3}, // refusals: pauses grow
		{4, 3, 5, false, 1}, // one after three requests
		{7, 5, 5, false, 3},
		{1, 1, 1, true, 1}, // a model that says nothing
		{3, 3, 1, true, 3},
	} {
		if got := pauses(c.failures, c.unanswered, c.each, c.newest); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
