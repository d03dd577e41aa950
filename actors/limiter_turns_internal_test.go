package actors

import "testing"

// TestNewSessionsDoNotKeepOldOnesWaiting lets two sessions that are new arrive before each permit: one that waits is served in its turn.
func TestNewSessionsDoNotKeepOldOnesWaiting(t *testing.T) {
	var turns turns
	var queue []*holder
	arrive := func(session string) {
		turns.arrived(session)
		queue = append(queue, &holder{session: session})
	}
	serve := func() string {
		at := turns.next(queue)
		h := queue[at]
		turns.served(h, queue)
		queue = append(queue[:at:at], queue[at+1:]...)
		return h.session
	}
	arrive("old")
	if serve() != "old" {
		t.Fatal("nobody else was there")
	}
	arrive("first")
	arrive("old") // waits from now on
	for n := range 20 {
		arrive("new" + string(rune('a'+2*n)))
		arrive("new" + string(rune('b'+2*n)))
		if serve() == "old" {
			if n < 1 {
				t.Error("it goes before one that came earlier and was never served")
			}
			return
		}
	}
	t.Error("twenty who came later were served before it")
}
