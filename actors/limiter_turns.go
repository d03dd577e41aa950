package actors

import (
	"cmp"
	"container/heap"
	"slices"
)

// turns are those who wait, and say whose turn it is. Sessions take turns, whatever each of them asks for; within one it goes by arrival. What nobody waits for himself
// goes behind, but every fourth permit while it waits. Each step costs the logarithm of how many sessions wait.
type turns struct {
	count   uint64
	ahead   int // permits given past what waits in the background
	arrived uint64
	shares  map[string]*share // by session
	heaps   [2]shares         // of the sessions that wait, the next one first: [background]
	waiting int
}

// share is what a session has of the turns.
type share struct {
	last  uint64       // when it was served last, or came
	lines [2][]*holder // its waiters in order of arrival: [background]
	at    [2]int       // its place in the heaps
}

// mostAhead is how many go past what waits in the background.
const mostAhead = 3

func (h *holder) class() int {
	if h.background {
		return 1
	}
	return 0
}

// add puts one in line. A session that is new gets its place before the one that was served last, and behind all that wait longer.
func (t *turns) add(h *holder) {
	if t.shares == nil {
		t.shares = make(map[string]*share)
		t.heaps = [2]shares{{class: 0}, {class: 1}}
	}
	s := t.shares[h.session]
	if s == nil {
		s = &share{last: max(1, 2*t.count) - 1}
		t.shares[h.session] = s
	}
	t.arrived++
	t.waiting++
	h.arrival = t.arrived
	k := h.class()
	s.lines[k] = append(s.lines[k], h)
	if len(s.lines[k]) == 1 {
		heap.Push(&t.heaps[k], s)
	}
}

// next is who is served next, or nil.
func (t *turns) next() *holder {
	k := 0
	if t.heaps[1].Len() > 0 && (t.heaps[0].Len() == 0 || t.ahead >= mostAhead) {
		k = 1
	}
	if t.heaps[k].Len() == 0 {
		return nil
	}
	return t.heaps[k].of[0].lines[k][0]
}

// serve takes one who waits out of the line, as served.
func (t *turns) serve(h *holder) {
	s := t.shares[h.session]
	t.count++
	s.last = 2 * t.count
	if !t.leave(h) {
		return
	}
	for k := range s.lines { // it goes behind the others
		if len(s.lines[k]) > 0 {
			heap.Fix(&t.heaps[k], s.at[k])
		}
	}
	switch {
	case t.waiting == 0:
		*t = turns{}
	case h.background:
		t.ahead = 0
	case t.heaps[1].Len() > 0:
		t.ahead++
	}
}

// drop takes one out of the line who does not wait any more.
func (t *turns) drop(h *holder) {
	if t.leave(h) && t.waiting == 0 {
		*t = turns{}
	}
}

func (t *turns) leave(h *holder) bool {
	s, k := t.shares[h.session], h.class()
	if s == nil {
		return false
	}
	at := slices.Index(s.lines[k], h)
	if at < 0 {
		return false
	}
	t.waiting--
	s.lines[k] = slices.Delete(s.lines[k], at, at+1)
	switch {
	case len(s.lines[k]) == 0:
		s.lines[k] = nil
		heap.Remove(&t.heaps[k], s.at[k])
	case at == 0:
		heap.Fix(&t.heaps[k], s.at[k])
	}
	return true
}

// inOrder are those who wait in the order in which they will be served, if nobody else comes.
func (t *turns) inOrder() []*holder {
	then := &turns{}
	for _, h := range t.all() {
		same := *h
		then.add(&same)
		then.shares[h.session].last = t.shares[h.session].last
	}
	for k := range then.heaps {
		heap.Init(&then.heaps[k])
	}
	then.count, then.ahead = t.count, t.ahead
	out := make([]*holder, 0, then.waiting)
	for h := then.next(); h != nil; h = then.next() {
		out = append(out, h)
		then.serve(h)
	}
	return out
}

// all are those who wait, in order of arrival.
func (t *turns) all() []*holder {
	var out []*holder
	for k := range t.heaps {
		for _, s := range t.heaps[k].of {
			out = append(out, s.lines[k]...)
		}
	}
	slices.SortFunc(out, func(a, b *holder) int { return cmp.Compare(a.arrival, b.arrival) })
	return out
}

// shares is a heap of sessions that wait, for package heap.
type shares struct {
	class int
	of    []*share
}

// Len is how many wait.
func (q *shares) Len() int { return len(q.of) }

// Less says who comes first: who was served longer ago, and then who asked first.
func (q *shares) Less(i, j int) bool {
	a, b := q.of[i], q.of[j]
	if a.last != b.last {
		return a.last < b.last
	}
	return a.lines[q.class][0].arrival < b.lines[q.class][0].arrival
}

// Swap changes two places.
func (q *shares) Swap(i, j int) {
	q.of[i], q.of[j] = q.of[j], q.of[i]
	q.of[i].at[q.class], q.of[j].at[q.class] = i, j
}

// Push adds at the end.
func (q *shares) Push(x any) {
	s := x.(*share)
	s.at[q.class] = len(q.of)
	q.of = append(q.of, s)
}

// Pop takes from the end.
func (q *shares) Pop() any {
	end := len(q.of) - 1
	s := q.of[end]
	q.of[end] = nil
	q.of = q.of[:end]
	return s
}
