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
// PermitGranted when it is the asker's turn), ReleasePermit, Terminated of a holder or waiter.
// Parent: Supervisor.
type Limiter struct {
	log   *slog.Logger
	now   func() time.Time
	max   int
	rates struct{ requests, tokens rate }
	state health
	turns turns
	wake  act.Timer          // when the next waiter may go on
	held  map[string]*holder // by PID and request
	queue []*holder          // in order of arrival
	watch map[string]bool    // PIDs that are watched: once each, until they end
}

type holder struct {
	who     *actor.PID
	request uint64
	gone    bool

	session    string
	background bool
}

// roomAgain wakes a Limiter whose provider had no room.
type roomAgain struct{ gen uint64 }

// wakeAtMost bounds the sleep of a Limiter: clocks are set.
const wakeAtMost = time.Second

func newLimiter(svc *Services, provider string) *Limiter {
	own := svc.ProviderLimits[provider]
	l := &Limiter{log: svc.Log, now: svc.Now, max: own.Calls, held: make(map[string]*holder), watch: make(map[string]bool)}
	if l.max == 0 {
		l.max = svc.Limits.ModelCalls
	}
	l.rates.requests.most, l.rates.tokens.most = own.Requests, own.Tokens
	return l
}

func permitKey(pid *actor.PID, request uint64) string {
	return pid.GetId() + "#" + itoa(request)
}

// Receive is the dispatch table.
func (l *Limiter) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.AcquirePermit:
		l.acquire(c, m)
	case *messages.ReleasePermit:
		l.release(c, permitKey(c.Sender(), m.GetRequest()), m)
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
		l.held, l.queue, l.watch = nil, nil, nil
	default:
		act.Unexpected(c, l.log)
	}
}

func (l *Limiter) acquire(c actor.Context, m *messages.AcquirePermit) {
	h := &holder{who: c.Sender(), request: m.GetRequest(), session: m.GetSession(), background: m.GetBackground()}
	if h.session == "" {
		h.session = h.who.GetId()
	}
	l.turns.arrived(h.session)
	same := func(x *holder) bool { return x.request == h.request && x.who.GetId() == h.who.GetId() && !x.gone }
	if m.GetAgain() && (l.held[permitKey(h.who, h.request)] != nil || slices.ContainsFunc(l.queue, same)) {
		return
	}
	if !l.watch[h.who.GetId()] {
		l.watch[h.who.GetId()] = true
		c.Watch(h.who)
	}
	l.queue = append(l.queue, h)
	l.grant(c)
}

// view says who waits, in order.
func (l *Limiter) view() *messages.ActorView {
	v := &messages.ActorView{Kind: "limiter", State: running}
	for _, h := range l.turns.inOrder(l.queue) {
		v.Waiting = append(v.Waiting, nameOf(h.who))
	}
	v.Pending = int32(len(v.GetWaiting()))
	return v
}

// grant serves waiters while permits are free. It loops here: a release never calls the next waiter.
func (l *Limiter) grant(c actor.Context) {
	l.queue = slices.DeleteFunc(l.queue, func(h *holder) bool { return h.gone })
	for len(l.queue) > 0 && len(l.held) < l.max {
		at := l.turns.next(l.queue)
		h := l.queue[at]
		if !l.room(c) {
			break
		}
		l.turns.served(h, l.queue)
		l.queue = slices.Delete(l.queue, at, at+1)
		l.held[permitKey(h.who, h.request)] = h
		c.Send(h.who, &messages.PermitGranted{Request: h.request})
	}
	if len(l.queue) == 0 {
		l.queue, l.turns = nil, turns{}
	}
}

// room takes the place of one request, or wakes the Limiter when there may be one.
func (l *Limiter) room(c actor.Context) bool {
	now := l.now()
	if l.state.probing() && len(l.held) > 0 {
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
func (l *Limiter) release(c actor.Context, key string, m *messages.ReleasePermit) {
	if h := l.held[key]; h != nil {
		delete(l.held, key)
		l.rates.requests.spend(l.now(), int64(m.GetRequests())-1)
		l.rates.tokens.spend(l.now(), m.GetTokens())
		l.state.note(l.now(), m)
		l.grant(c)
		return
	}
	for _, h := range l.queue {
		if !h.gone && permitKey(h.who, h.request) == key {
			h.gone = true
		}
	}
}

// refuse answers those who wait: a stopped mailbox says nothing (I10).
func (l *Limiter) refuse(c actor.Context) {
	for _, h := range l.queue {
		if !h.gone {
			c.Send(h.who, messages.Fail(messages.CodeUnavailable, "the limiter is stopping", "try again"))
		}
	}
	l.queue = nil
}

// gone frees what a dead worker held.
func (l *Limiter) gone(c actor.Context, who *actor.PID) {
	delete(l.watch, who.GetId())
	for k, h := range l.held {
		if h.who.GetId() == who.GetId() {
			delete(l.held, k)
		}
	}
	for _, h := range l.queue {
		if h.who.GetId() == who.GetId() {
			h.gone = true
		}
	}
	l.grant(c)
}
