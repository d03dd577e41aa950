package actors

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestNewSessionsDoNotKeepOldOnesWaiting lets two sessions that are new arrive before each permit: one that waits is served in its turn.
func TestNewSessionsDoNotKeepOldOnesWaiting(t *testing.T) {
	var turns turns
	arrive := func(session string) { turns.add(&holder{session: session}) }
	serve := func() string {
		h := turns.next()
		turns.serve(h)
		return h.session
	}
	// Somebody waits all the time: when nobody does, all begin anew.
	turns.add(&holder{session: "patient", background: true})
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

// plain are turns as they are meant, looked through from end to end.
type plain struct {
	count uint64
	ahead int
	last  map[string]uint64 // of sessions, and of tenants, which are written large
	queue []*holder
	came  []string
}

func (p *plain) ranks(h *holder) [2]uint64 {
	return [2]uint64{p.last[h.tenant], p.last[h.tenant+h.session]}
}

func (p *plain) add(h *holder) {
	for _, name := range []string{h.tenant, h.tenant + h.session} {
		if _, known := p.last[name]; !known {
			p.last[name] = max(1, 2*p.count) - 1
		}
	}
	if !slices.Contains(p.came, h.tenant) {
		p.came = append(p.came, h.tenant)
	}
	p.queue = append(p.queue, h)
}

func (p *plain) next() *holder {
	best := p.queue[0]
	for _, h := range p.queue {
		a, b := p.ranks(h), p.ranks(best)
		first := a[0] < b[0] || a[0] == b[0] && slices.Index(p.came, h.tenant) < slices.Index(p.came, best.tenant) || h.tenant == best.tenant && a[1] < b[1]
		if h.background != best.background {
			first = h.background == (p.ahead >= mostAhead)
		}
		if first {
			best = h
		}
	}
	return best
}

func (p *plain) drop(h *holder) {
	p.queue = slices.DeleteFunc(p.queue, func(o *holder) bool { return o == h })
	if len(p.queue) == 0 {
		*p = plain{last: map[string]uint64{}}
	}
}

func (p *plain) serve(h *holder) {
	p.count++
	p.last[h.tenant], p.last[h.tenant+h.session] = 2*p.count, 2*p.count
	switch {
	case h.background:
		p.ahead = 0
	case slices.ContainsFunc(p.queue, func(o *holder) bool { return o.background }):
		p.ahead++
	}
	p.drop(h)
}

func TestTurnsAreThoseOfTheWholeQueue(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var got turns
		want := plain{last: map[string]uint64{}}
		for step := range 400 {
			switch n := r.IntN(10); {
			case n < 5 || len(want.queue) == 0:
				h := &holder{tenant: string(rune('A' + r.IntN(3))), session: string(rune('a' + r.IntN(4))), background: r.IntN(3) == 0}
				got.add(h)
				want.add(h)
			case n == 5:
				h := want.queue[r.IntN(len(want.queue))]
				got.drop(h)
				want.drop(h)
			default:
				order := got.inOrder()
				h := want.next()
				if got.next() != h || len(order) != len(want.queue) || order[0].arrival == 0 || order[0].tenant != h.tenant || order[0].session != h.session || order[0].background != h.background {
					t.Fatalf("seed %d, step %d: %+v is next, wanted is %+v", seed, step, got.next(), h)
				}
				got.serve(h)
				want.serve(h)
			}
			if got.waiting != len(want.queue) || len(got.all()) != len(want.queue) {
				t.Fatalf("seed %d, step %d: %d wait, wanted are %d", seed, step, got.waiting, len(want.queue))
			}
		}
	}
}

// TestWhoDoesNotWaitIsForgotten has somebody wait all the time, while sessions come once, or leave before they are served.
func TestWhoDoesNotWaitIsForgotten(t *testing.T) {
	var turns turns
	turns.add(&holder{tenant: "patient", session: "patient", background: true})
	for n := range 20_000 {
		h := &holder{tenant: fmt.Sprint("tenant ", n%3000), session: fmt.Sprint("session ", n)}
		turns.add(h)
		if n%2 == 0 {
			turns.drop(h)
			continue
		}
		turns.serve(h)
	}
	places := 0
	for _, p := range turns.tenants {
		places += len(p.shares)
	}
	if most := mostKnown + 2*turns.waiting; places > most || places != turns.known || len(turns.tenants) > most {
		t.Errorf("%d sessions of %d tenants are known, %d counted, though one waits", places, len(turns.tenants), turns.known)
	}
	if h := turns.next(); h == nil || h.session != "patient" {
		t.Errorf("%+v is next", h)
	}
}
