package actors

import (
	"errors"
	"time"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// health is what calls have said of a provider. It asks for pauses, which count for all; or it is overloaded again and again, and then one call at a
// time tries whether it is back, after pauses that grow.
type health struct {
	until   time.Time // nothing is begun before
	limited int       // pauses in a row, without an answer
	strikes int       // overloads in a row
	opened  int       // how often in a row it was found out of order; 0: it is not
}

const (
	mostStrikes  = 5
	shortPause   = time.Second     // is waited for also by who could ask another model
	longestProbe = 4 * time.Second // between two calls that try whether it is back: one is no load, and a turn alone makes all of them
	longestPause = 5 * time.Minute // that a provider is granted: what it says may be wrong
)

// note takes what a call came to. What comes of calls that were begun before a pause says nothing new.
func (h *health) note(now time.Time, m *messages.ReleasePermit) {
	paused := now.Before(h.until)
	switch m.GetOutcome() {
	case messages.ReleasePermit_ANSWERED:
		h.limited, h.strikes, h.opened = 0, 0, 0
	case messages.ReleasePermit_RATE_LIMITED:
		h.strikes = 0
		if !paused {
			h.limited++
		}
		pause := time.Duration(min(max(m.GetRetryAfterMs(), 0), longestPause.Milliseconds())) * time.Millisecond
		if pause == 0 {
			pause = act.Backoff{First: 250 * time.Millisecond, Max: 30 * time.Second}.Pause(h.limited)
		}
		h.pause(now, pause)
	case messages.ReleasePermit_OVERLOADED:
		if paused {
			return
		}
		if h.strikes++; h.strikes >= mostStrikes {
			h.opened++
			h.pause(now, act.Backoff{First: time.Second, Max: longestProbe}.Pause(h.opened))
		}
	case messages.ReleasePermit_UNKNOWN:
	}
}

func (h *health) pause(now time.Time, d time.Duration) {
	if until := now.Add(d); until.After(h.until) {
		h.until = until
	}
}

// wait is how long nothing may be begun. A clock that was set back must not make it longer.
func (h *health) wait(now time.Time) time.Duration {
	return max(0, min(h.until.Sub(now), longestPause))
}

// probing says whether calls go one at a time.
func (h *health) probing() bool { return h.opened > 0 }

// outcomeOf is what a call that has ended tells of its provider. One that says nothing for long, or breaks off before it has said anything, is as one that is overloaded.
func outcomeOf(done *model.Completion, err error) (outcome messages.ReleasePermit_Outcome, retryAfterMs int64) {
	if err == nil {
		return messages.ReleasePermit_ANSWERED, 0
	}
	var me *model.Error
	switch {
	case !errors.As(err, &me):
	case me.Class == model.RateLimited:
		return messages.ReleasePermit_RATE_LIMITED, me.RetryAfter.Milliseconds()
	case me.Class == model.Overloaded || noAnswer(done, err):
		return messages.ReleasePermit_OVERLOADED, 0
	}
	return outcome, 0
}
