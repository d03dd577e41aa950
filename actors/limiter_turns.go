package actors

import (
	"maps"
	"slices"
)

// turns says whose turn it is. Sessions take turns, whatever each of them asks for; within one it goes by arrival. What nobody waits for himself goes behind, but every
// fourth permit while it waits.
type turns struct {
	count uint64
	last  map[string]uint64 // by session: when it was served last, or came
	ahead int               // permits given past what waits in the background
}

// mostAhead is how many go past what waits in the background.
const mostAhead = 3

// next is the place in the queue of who is served next. It is not empty, and nobody in it is gone.
func (t *turns) next(queue []*holder) int {
	best := 0
	for i, h := range queue {
		if t.before(h, queue[best]) {
			best = i
		}
	}
	return best
}

func (t *turns) before(a, b *holder) bool {
	if a.background != b.background {
		return a.background == (t.ahead >= mostAhead)
	}
	return t.last[a.session] < t.last[b.session]
}

// arrived gives a session that is new its place: before the one that was served last, and behind all that wait longer.
func (t *turns) arrived(session string) {
	if _, known := t.last[session]; known {
		return
	}
	if t.last == nil {
		t.last = make(map[string]uint64)
	}
	t.last[session] = max(1, 2*t.count) - 1
}

// served notes that a waiter of a queue is served.
func (t *turns) served(h *holder, queue []*holder) {
	if t.last == nil {
		t.last = make(map[string]uint64)
	}
	t.count++
	t.last[h.session] = 2 * t.count
	switch {
	case h.background:
		t.ahead = 0
	case slices.ContainsFunc(queue, func(o *holder) bool { return o.background }):
		t.ahead++
	}
}

// inOrder are those who wait in the order in which they will be served, if nobody else comes.
func (t *turns) inOrder(queue []*holder) []*holder {
	left := slices.DeleteFunc(slices.Clone(queue), func(h *holder) bool { return h.gone })
	then := &turns{count: t.count, last: maps.Clone(t.last), ahead: t.ahead}
	out := make([]*holder, 0, len(left))
	for len(left) > 0 {
		at := then.next(left)
		out = append(out, left[at])
		then.served(left[at], left)
		left = slices.Delete(left, at, at+1)
	}
	return out
}
