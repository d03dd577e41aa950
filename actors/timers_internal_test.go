package actors

import (
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

func TestATimerThatIsRefusedIsTriedEverMoreRarelyUpToAnHour(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	timers := &Timers{held: make(map[string]*heldTimer)}
	if timers.holds("x", start) {
		t.Error("what was never refused is held")
	}
	for n, pause := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute} {
		timers.held["x"] = &heldTimer{times: n + 1, since: start}
		if !timers.holds("x", start.Add(pause-time.Millisecond)) || timers.holds("x", start.Add(pause)) {
			t.Errorf("after %d refusals the pause is not %v", n+1, pause)
		}
	}
	timers.held["x"] = &heldTimer{times: 1000, since: start}
	if !timers.holds("x", start.Add(time.Hour-time.Second)) || timers.holds("x", start.Add(time.Hour)) {
		t.Error("the longest pause is not an hour")
	}
	if timers.holds("x", start.Add(-time.Hour)) {
		t.Error("a clock that was set back makes the pause longer")
	}
	if _, _, _, ok := readTimerKey("apr/x/y/z"); ok {
		t.Error("a timer of somebody else is taken for a worker's")
	}
	if s, w, id, ok := readTimerKey(timerKey("ses_1", "wrk_1", "a/b")); !ok || s != "ses_1" || w != "wrk_1" || id != "a/b" {
		t.Errorf("%s %s %s %v", s, w, id, ok)
	}
}

func TestATimerForWhichThereIsNoRoomIsTriedAgainSoon(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := &heldTimer{}
	timers := &Timers{held: map[string]*heldTimer{"x": h}}
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, timersLook, timersLook, timersLook} {
		h.refused(messages.Busy("full", "", time.Second), start)
		if !timers.holds("x", start.Add(pause-time.Millisecond)) || timers.holds("x", start.Add(pause)) {
			t.Errorf("the pause is %v, not %v", h.pause(), pause)
		}
	}
	h.refused(messages.Fail(messages.CodeInternal, "broken", ""), start)
	if h.pause() != time.Minute {
		t.Errorf("the pause after another refusal is %v", h.pause())
	}
	h.refused(messages.Busy("full", "", time.Second), start)
	if h.pause() != time.Second {
		t.Errorf("the pause after the first refusal for want of room is %v", h.pause())
	}
}
