package actors

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Timers wakes the sessions of timers that are due. It keeps nothing that a crash could lose: what is set stands in
// the store, changed by the same appends as the workers' own facts, and whether one fires its worker
// decides, once, by what is written down.
//
// It looks at least every 30 s of the clock that nobody sets, so that a time of day which was set, and a machine that
// slept, are noticed; and it sleeps no longer than to the next timer that it knows of.
//
// Accepts: TimerChanged from workers; its own ticks and the results of its goroutines. Parent: Supervisor.
type Timers struct {
	svc   *Services
	log   *slog.Logger
	timer act.Timer
	due   int64     // earliest that is known and still to come, in ms; 0: none
	wakes time.Time // when it looks next

	looking bool // in the store
	again   bool // something changed meanwhile
	waiting []persistence.Timer
	firing  map[string]bool
	held    map[string]*heldTimer
}

// heldTimer could not be fired: its session or worker refuses. It is tried again, ever more rarely. Where there was only no room for the session just then, that is
// soon: once the session has room for another reason, it stays in memory for what is due.
type heldTimer struct {
	times int // refused
	full  int // in a row, for want of room
	since time.Time
}

// Messages of Timers to itself.
type (
	timersTick struct{ gen uint64 }
	timersSeen struct {
		now    time.Time
		timers []persistence.Timer // due, or due before the next look
		err    error
	}
	timerTold struct {
		id  string
		err error
	}
)

const (
	// timersLook is the longest that nobody looks at the time of day.
	timersLook = 30 * time.Second
	// timersAtOnce is how many sessions are woken at once.
	timersAtOnce = 16
	// timerPatience bounds the waking of one session.
	timerPatience = time.Minute
	timersName    = "timers"
)

func newTimers(svc *Services) *Timers {
	return &Timers{svc: svc, log: svc.Log, firing: make(map[string]bool), held: make(map[string]*heldTimer)}
}

func timersPID(sys *actor.ActorSystem) *actor.PID { return sys.NewLocalPID(root + "/" + timersName) }

// Receive is the dispatch table.
func (t *Timers) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		t.look(c)
	case *messages.TimerChanged:
		t.changed(c, m)
	case *timersTick:
		if t.timer.Fresh(m.gen) {
			t.look(c)
		}
	case *timersSeen:
		t.seen(c, m)
	case *timerTold:
		t.told(c, m)
	case *actor.Stopping:
		t.timer.Stop()
	case *actor.Stopped:
		t.waiting, t.firing, t.held = nil, nil, nil
	default:
		act.Unexpected(c, t.log)
	}
}

// changed looks sooner when what was set comes before what is known.
func (t *Timers) changed(c actor.Context, m *messages.TimerChanged) {
	if left := m.GetDueUnixMs() - t.svc.Clock.Now().UnixMilli(); left < timersLook.Milliseconds() && (t.due == 0 || m.GetDueUnixMs() < t.due) {
		t.look(c)
	}
}

// look reads what is due off the mailbox.
func (t *Timers) look(c actor.Context) {
	if t.svc.Still || t.svc.IgnoreTimers {
		return
	}
	if t.looking {
		t.again = true
		return
	}
	t.looking, t.again = true, false
	t.timer.Stop()
	svc := t.svc
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any { return &timersSeen{err: p} }, func() any {
		seen := &timersSeen{now: svc.Clock.Now()}
		seen.err = svc.Store.Due(context.Background(), seen.now.Add(timersLook), func(one persistence.Timer) error {
			seen.timers = append(seen.timers, one)
			return nil
		})
		return seen
	})
}

// seen tells the workers of what is due, and sleeps until the next.
func (t *Timers) seen(c actor.Context, m *timersSeen) {
	t.looking = false
	if m.err != nil {
		t.log.Error("due timers cannot be read", "err", m.err)
	}
	t.waiting, t.due = nil, 0
	sleep := timersLook
	for _, one := range m.timers {
		if left := one.Due.Sub(m.now); left > 0 {
			sleep, t.due = min(sleep, left), one.Due.UnixMilli()
			break // the others come later
		}
		switch {
		case t.firing[one.ID]:
		case t.holds(one.ID, m.now):
			h := t.held[one.ID]
			sleep = min(sleep, h.since.Add(h.pause()).Sub(m.now))
		default:
			t.waiting = append(t.waiting, one)
		}
	}
	t.forget(m.timers)
	t.fire(c)
	t.sleep(c, sleep)
	if t.again {
		t.look(c)
	}
}

// sleep sets when it looks next, from now on: what it has looked at may be some time ago, on a machine that slept then.
func (t *Timers) sleep(c actor.Context, d time.Duration) {
	t.wakes = t.svc.Clock.Now().Add(d)
	t.timer.SetBy(t.svc.Clock, c, d, func(gen uint64) any { return &timersTick{gen} })
}

// fire tells the next workers, not too many at once. A session is told of one at a time: what is due there is heard in the order
// in which it was.
func (t *Timers) fire(c actor.Context) {
	busy := make(map[string]bool, timersAtOnce)
	for id := range t.firing {
		session, _, _, _ := readTimerKey(id)
		busy[session] = true
	}
	later := t.waiting[:0:0]
	for i, one := range t.waiting {
		if len(t.firing) >= timersAtOnce {
			later = append(later, t.waiting[i:]...)
			break
		}
		session, worker, timer, ok := readTimerKey(one.ID)
		if !ok { // of somebody else
			continue
		}
		if busy[session] {
			later = append(later, one)
			continue
		}
		t.firing[one.ID], busy[session] = true, true
		sys, id := c.ActorSystem(), one.ID
		t.svc.spawn(sys, c.Self(), func(p *act.Panic) any { return &timerTold{id, p} }, func() any {
			ctx, cancel := context.WithTimeout(context.Background(), timerPatience)
			defer cancel()
			_, err := act.Ask[*messages.TimerView](ctx, sys, sys.NewLocalPID(root), &messages.ToSession{
				SessionId: session, Command: &messages.ToSession_FireTimer{FireTimer: &messages.FireTimer{WorkerId: worker, TimerId: timer}},
			})
			return &timerTold{id, err}
		})
	}
	t.waiting = later
}

// told goes on with the next one. A worker that refuses keeps its timer, and is asked again later.
func (t *Timers) told(c actor.Context, m *timerTold) {
	delete(t.firing, m.id)
	if m.err == nil {
		delete(t.held, m.id)
	} else {
		h := t.held[m.id]
		if h == nil {
			h = &heldTimer{}
			t.held[m.id] = h
			t.log.Warn("timer cannot be fired", "timer", m.id, "err", m.err)
		}
		now := t.svc.Clock.Now()
		h.refused(m.err, now)
		if pause := h.pause(); !t.looking && now.Add(pause).Before(t.wakes) {
			t.sleep(c, pause)
		}
	}
	t.fire(c)
}

// refused notes one more refusal. That there was no room just then says nothing of the timer.
func (h *heldTimer) refused(err error, now time.Time) {
	h.since = now
	if errors.Is(err, messages.ErrBusy) {
		h.times, h.full = 1, h.full+1
		return
	}
	h.times, h.full = h.times+1, 0
}

// pause is until when it is not tried again: longer each time, up to an hour, or, for want of room, to the time between two looks.
func (h *heldTimer) pause() time.Duration {
	if h.full > 0 {
		return min(tryAgain<<min(h.full-1, 10), timersLook)
	}
	return min(timersLook<<min(h.times-1, 10), time.Hour)
}

// holds says whether it is too early to try a timer again. A time of day that was set back ends a pause.
func (t *Timers) holds(id string, now time.Time) bool {
	h := t.held[id]
	if h == nil {
		return false
	}
	past := now.Sub(h.since)
	return past >= 0 && past < h.pause()
}

// forget drops what is held of timers that are gone.
func (t *Timers) forget(seen []persistence.Timer) {
	for id := range t.held {
		if !slices.ContainsFunc(seen, func(one persistence.Timer) bool { return one.ID == id }) {
			delete(t.held, id)
		}
	}
}

// timerKey is the id of a worker's timer in the store.
func timerKey(session, worker, timer string) string {
	return "tmr/" + session + "/" + worker + "/" + timer
}

func readTimerKey(key string) (session, worker, timer string, ok bool) {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) != 4 || parts[0] != "tmr" {
		return "", "", "", false
	}
	return parts[1], parts[2], parts[3], cmp.Or(parts[1], parts[2]) != ""
}
