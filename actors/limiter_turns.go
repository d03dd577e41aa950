package actors

import (
	"cmp"
	"container/heap"
	"slices"
)

// turns are those who wait, and say whose turn it is. Tenants take turns, however many sessions each of them has; of one tenant, its sessions do, whatever each of
// them asks for; within one it goes by arrival. What nobody waits for himself goes behind, but every fourth permit while it waits. Each step costs the logarithm of
// how many sessions wait.
type turns struct {
	count   uint64
	ahead   int // permits given past what waits in the background
	arrived uint64
	tenants map[string]*party
	heaps   [2]ranks[*party] // those of whom somebody waits, the next one first: [background]
	waiting int
	known   int // sessions that have a place, also those that do not wait now
}

// mostKnown is how many sessions have a place, beyond twice those that wait, before those that do not wait are forgotten.
const mostKnown = 1024

// party is what a tenant has of the turns.
type party struct {
	last, came uint64            // when it was served last, or came; and its place among those who came then
	shares     map[string]*share // by session
	heaps      [2]ranks[*share]  // of the sessions that wait, the next one first: [background]
	at         [2]int            // its place in the heaps
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

// of gives the places that a waiter has in the turns. Who is new gets a place before the one that was served last, and behind all that wait longer.
func (t *turns) of(h *holder) (*party, *share) {
	if t.tenants == nil {
		t.tenants = make(map[string]*party)
		t.heaps = [2]ranks[*party]{{class: 0}, {class: 1}}
	}
	now := max(1, 2*t.count) - 1
	p := t.tenants[h.tenant]
	if p == nil {
		p = &party{last: now, came: t.arrived, shares: make(map[string]*share), heaps: [2]ranks[*share]{{class: 0}, {class: 1}}}
		t.tenants[h.tenant] = p
	}
	s := p.shares[h.session]
	if s == nil {
		s = &share{last: now}
		p.shares[h.session] = s
		t.known++
	}
	return p, s
}

// forget takes the places of those that do not wait: where somebody waits all the time, there would be one of each session that ever came. Who comes
// again is new. Whoever was served last keeps its place, so that it does not come before one that is new.
func (t *turns) forget() {
	if t.known <= 2*t.waiting+mostKnown {
		return
	}
	for tenant, p := range t.tenants {
		for session, s := range p.shares {
			if len(s.lines[0])+len(s.lines[1]) == 0 && s.last < 2*t.count {
				delete(p.shares, session)
				t.known--
			}
		}
		if len(p.shares) == 0 {
			delete(t.tenants, tenant)
		}
	}
}

// add puts one in line.
func (t *turns) add(h *holder) {
	t.arrived++
	t.waiting++
	h.arrival = t.arrived
	p, s := t.of(h)
	k := h.class()
	s.lines[k] = append(s.lines[k], h)
	if len(s.lines[k]) == 1 {
		heap.Push(&p.heaps[k], s)
	}
	if p.heaps[k].Len() == 1 && len(s.lines[k]) == 1 {
		heap.Push(&t.heaps[k], p)
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
	return t.heaps[k].of[0].heaps[k].of[0].lines[k][0]
}

// serve takes one who waits out of the line, as served.
func (t *turns) serve(h *holder) {
	p, s := t.of(h)
	t.count++
	p.last, s.last = 2*t.count, 2*t.count
	if !t.leave(h) {
		return
	}
	for k := range s.lines { // they go behind the others
		if len(s.lines[k]) > 0 {
			heap.Fix(&p.heaps[k], s.at[k])
		}
		if p.heaps[k].Len() > 0 {
			heap.Fix(&t.heaps[k], p.at[k])
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
	t.forget()
}

// drop takes one out of the line who does not wait any more.
func (t *turns) drop(h *holder) {
	if t.leave(h) && t.waiting == 0 {
		*t = turns{}
	}
	t.forget()
}

func (t *turns) leave(h *holder) bool {
	p, s := t.of(h)
	k := h.class()
	at := slices.Index(s.lines[k], h)
	if at < 0 {
		return false
	}
	t.waiting--
	s.lines[k] = slices.Delete(s.lines[k], at, at+1)
	switch {
	case len(s.lines[k]) == 0: // its memory stays for the next one
		heap.Remove(&p.heaps[k], s.at[k])
	case at == 0:
		heap.Fix(&p.heaps[k], s.at[k])
	}
	if p.heaps[k].Len() == 0 {
		heap.Remove(&t.heaps[k], p.at[k])
	}
	return true
}

// inOrder are those who wait in the order in which they will be served, if nobody else comes.
func (t *turns) inOrder() []*holder {
	then := &turns{}
	for _, h := range t.all() {
		same := *h
		then.add(&same)
		p, s := t.of(h)
		q, r := then.of(&same)
		q.last, q.came, r.last = p.last, p.came, s.last
	}
	for k := range then.heaps {
		for _, p := range then.heaps[k].of {
			heap.Init(&p.heaps[k])
		}
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
		for _, p := range t.heaps[k].of {
			for _, s := range p.heaps[k].of {
				out = append(out, s.lines[k]...)
			}
		}
	}
	slices.SortFunc(out, func(a, b *holder) int { return cmp.Compare(a.arrival, b.arrival) })
	return out
}

// before says who comes first: who was served longer ago, and then who came first.
func (p *party) before(o *party, _ int) bool {
	if p.last != o.last {
		return p.last < o.last
	}
	return p.came < o.came
}

func (p *party) put(class, at int) { p.at[class] = at }

// before says who comes first: who was served longer ago, and then who asked first.
func (s *share) before(o *share, class int) bool {
	if s.last != o.last {
		return s.last < o.last
	}
	return s.lines[class][0].arrival < o.lines[class][0].arrival
}

func (s *share) put(class, at int) { s.at[class] = at }

// ranked is what stands in ranks, and knows its place there.
type ranked[T any] interface {
	before(o T, class int) bool
	put(class, at int)
}

// ranks is a heap of those that wait, for package heap.
type ranks[T ranked[T]] struct {
	class int
	of    []T
}

// Len is how many wait.
func (q *ranks[T]) Len() int { return len(q.of) }

// Less says who comes first.
func (q *ranks[T]) Less(i, j int) bool { return q.of[i].before(q.of[j], q.class) }

// Swap changes two places.
func (q *ranks[T]) Swap(i, j int) {
	q.of[i], q.of[j] = q.of[j], q.of[i]
	q.of[i].put(q.class, i)
	q.of[j].put(q.class, j)
}

// Push adds at the end.
func (q *ranks[T]) Push(x any) {
	one := x.(T)
	one.put(q.class, len(q.of))
	q.of = append(q.of, one)
}

// Pop takes from the end.
func (q *ranks[T]) Pop() any {
	end := len(q.of) - 1
	one := q.of[end]
	var none T
	q.of[end] = none
	q.of = q.of[:end]
	return one
}
