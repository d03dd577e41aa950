package actors

import (
	"log/slog"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// Limiter gives out the permits for model calls of one provider: the sessions that wait take turns, those of people before what agents
// delegated, and nobody while the provider wants a pause or is out of order (ADR 56). A
// waiter is a queue entry and not a goroutine, and a permit is given before the goroutine of its call exists.
// Requests are counted when their permits are given, tokens and repeated requests when they are known: at the
// permit's return. A Limiter that is replaced begins to count anew.
//
// Owns: the count of calls in flight, the queue, and what was spent in the last minute. Accepts: AcquirePermit (answered by
// PermitGranted when it is the asker's turn, or PermitDenied at once), ReleasePermit, Terminated of a holder or waiter.
// Parent: Supervisor.
type Limiter struct {
	log   *slog.Logger
	now   func() time.Time
	max   int
	rates struct{ requests, tokens rate }
	state health
	turns turns
	wake  act.Timer             // when the next waiter may go on
	held  int                   // permits
	asks  map[permitKey]*holder // who has a permit or waits for one
	watch map[string][]*holder  // the same by PID. A PID is watched once, until it ends
}

type holder struct {
	who     *actor.PID
	request uint64
	holds   bool // a permit; else it waits

	tenant     string
	session    string
	background bool
	unless     bool   // it would rather ask another model than wait for one that is out of order, or wants a pause
	arrival    uint64 // its number in the queue
}

// roomAgain wakes a Limiter whose provider had no room.
type roomAgain struct{ gen uint64 }

// wakeAtMost bounds the sleep of a Limiter: clocks are set.
const wakeAtMost = time.Second

func newLimiter(svc *Services, provider string) *Limiter {
	own := svc.ProviderLimits[provider]
	l := &Limiter{log: svc.Log, now: svc.Now, max: own.Calls, asks: make(map[permitKey]*holder), watch: make(map[string][]*holder)}
	if l.max == 0 {
		l.max = svc.Limits.ModelCalls
	}
	l.rates.requests.most, l.rates.tokens.most = own.Requests, own.Tokens
	return l
}

// permitKey tells askers apart: a worker counts its requests.
type permitKey struct {
	who     string
	request uint64
}

// Receive is the dispatch table.
func (l *Limiter) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.AcquirePermit:
		l.acquire(c, m)
	case *messages.ReleasePermit:
		l.release(c, permitKey{c.Sender().GetId(), m.GetRequest()}, m)
	case *messages.DescribeTree:
		c.Respond(l.view())
	case *roomAgain:
		if l.wake.Fresh(m.gen) {
			l.grant(c)
		}
	case *actor.Terminated:
		l.gone(c, m.GetWho())
	case *actor.Stopping:
		l.wake.Stop()
		l.refuse(c)
	case *actor.Stopped:
		l.asks, l.watch, l.turns = nil, nil, turns{}
	default:
		act.Unexpected(c, l.log)
	}
}

func (l *Limiter) acquire(c actor.Context, m *messages.AcquirePermit) {
	h := &holder{who: c.Sender(), request: m.GetRequest(), tenant: m.GetTenant(), session: m.GetSession(), background: m.GetBackground()}
	if h.session == "" {
		h.session = h.who.GetId()
	}
	h.unless = m.GetUnlessOpen()
	id := h.who.GetId()
	key := permitKey{id, h.request}
	if old := l.asks[key]; old != nil {
		if m.GetAgain() {
			return
		}
		l.end(old) // of a worker that began anew and counts from the first again
	}
	if h.unless && l.closed() {
		l.deny(c, h)
		l.grant(c) // what it held before is free
		return
	}
	if _, watched := l.watch[id]; !watched {
		c.Watch(h.who)
	}
	l.watch[id] = append(l.watch[id], h)
	l.asks[key] = h
	if l.turns.waiting == 0 && l.held < l.max && l.room(c) {
		l.give(c, h) // it would leave the line at once
		return
	}
	l.turns.add(h)
	l.grant(c)
}

// closed says whether who can ask another model should: the provider wants a pause that is worth it, or is out of order and another call tries it, or will.
func (l *Limiter) closed() bool {
	wait := l.state.wait(l.now())
	return wait > shortPause || l.state.probing() && (l.held > 0 || wait > 0)
}

func (l *Limiter) deny(c actor.Context, h *holder) {
	c.Send(h.who, &messages.PermitDenied{Request: h.request, ForMs: l.state.wait(l.now()).Milliseconds(), Paused: !l.state.probing()})
}

// denyAll is for those who waited already when the provider closed.
func (l *Limiter) denyAll(c actor.Context) {
	if !l.closed() {
		return
	}
	for _, h := range l.turns.all() {
		if h.unless {
			l.end(h)
			l.deny(c, h)
		}
	}
}

// view says who waits, in order.
func (l *Limiter) view() *messages.ActorView {
	v := &messages.ActorView{Kind: "limiter", State: running}
	for _, h := range l.turns.inOrder() {
		v.Waiting = append(v.Waiting, nameOf(h.who))
	}
	v.Pending = int32(len(v.GetWaiting()))
	return v
}

// grant serves waiters while permits are free. It loops here: a release never calls the next waiter.
func (l *Limiter) grant(c actor.Context) {
	for l.held < l.max {
		h := l.turns.next()
		if h == nil || !l.room(c) {
			return
		}
		l.turns.serve(h)
		l.give(c, h)
	}
}

func (l *Limiter) give(c actor.Context, h *holder) {
	l.held++
	h.holds = true
	c.Send(h.who, &messages.PermitGranted{Request: h.request})
}

// room takes the place of one request, or wakes the Limiter when there may be one.
func (l *Limiter) room(c actor.Context) bool {
	now := l.now()
	if l.state.probing() && l.held > 0 {
		return false // what comes of that says how it goes on
	}
	wait := max(l.rates.requests.wait(now), l.rates.tokens.wait(now), l.state.wait(now))
	if wait > 0 {
		l.wake.Set(c, min(wait, wakeAtMost), func(gen uint64) any { return &roomAgain{gen} })
		return false
	}
	l.rates.requests.spend(now, 1)
	return true
}

// release takes a permit back, or a place in the queue.
func (l *Limiter) release(c actor.Context, key permitKey, m *messages.ReleasePermit) {
	h := l.asks[key]
	if h == nil {
		return
	}
	l.end(h)
	if !h.holds {
		return
	}
	l.rates.requests.spend(l.now(), int64(m.GetRequests())-1)
	l.rates.tokens.spend(l.now(), m.GetTokens())
	l.state.note(l.now(), m)
	if m.GetOutcome() != messages.ReleasePermit_ANSWERED {
		l.denyAll(c)
	}
	l.grant(c)
}

// end forgets one who holds a permit or waits for one.
func (l *Limiter) end(h *holder) {
	id := h.who.GetId()
	l.watch[id] = slices.DeleteFunc(l.watch[id], func(o *holder) bool { return o == h })
	delete(l.asks, permitKey{id, h.request})
	if h.holds {
		l.held--
	} else {
		l.turns.drop(h)
	}
}

// refuse answers those who wait: a stopped mailbox says nothing (I10).
func (l *Limiter) refuse(c actor.Context) {
	for _, h := range l.turns.all() {
		c.Send(h.who, messages.Fail(messages.CodeUnavailable, "the limiter is stopping", "try again"))
	}
	l.turns = turns{}
}

// gone frees what a dead worker held.
func (l *Limiter) gone(c actor.Context, who *actor.PID) {
	for _, h := range slices.Clone(l.watch[who.GetId()]) {
		l.end(h)
	}
	delete(l.watch, who.GetId())
	l.grant(c)
}
