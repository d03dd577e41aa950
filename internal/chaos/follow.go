package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// follower is a client that watches a session, and resumes by cursor after every kill.
type follower struct {
	*session
	mu    sync.Mutex
	last  uint64
	ended map[string]chan struct{} // turn -> closed when its end was shown
}

// For how long somebody watches, and does not, where there is not room for everybody. A session that is watched when it is asked to make room is not asked again for a second.
const (
	glance   = 40 * time.Millisecond
	lookAway = 200 * time.Millisecond
)

// away is for how long nobody watches after that was interrupted.
func away(lane int) time.Duration {
	if narrow(lane) {
		return lookAway
	}
	return 5 * time.Millisecond
}

// run watches until ctx ends.
func (f *follower) run(ctx context.Context) {
	for {
		now, err := f.lane.alive(ctx)
		if err != nil {
			return
		}
		f.watch(ctx, now)
		pause := time.NewTimer(away(f.lane.n))
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// watch notes what it is shown until the life, or the loop, ends.
func (f *follower) watch(ctx context.Context, now life) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if narrow(f.lane.n) { // who watches keeps the session in memory
		var enough context.CancelFunc
		ctx, enough = context.WithTimeout(ctx, glance)
		defer enough()
	}
	go func() {
		select {
		case <-now.Over():
			cancel()
		case <-ctx.Done():
		}
	}()
	f.mu.Lock()
	after := f.last
	f.mu.Unlock()
	for e, err := range now.Events(ctx, f.id, after) {
		if err != nil {
			return
		}
		f.note(e)
	}
}

func (f *follower) note(e *messages.Event) {
	f.lane.mu.Lock()
	f.lane.seen = append(f.lane.seen, Seen{Session: f.id, Life: f.lane.lives, Event: e})
	f.lane.mu.Unlock()
	if e.GetType() == messages.EventApprovalRequested {
		f.lane.person.call()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.GetSeq() == 0 {
		return
	}
	f.last = e.GetSeq()
	if e.GetType() == messages.EventTurnCompleted {
		close(f.end(e.GetTurn()))
	}
}

// end is the channel of a turn; the caller holds mu. A turn whose end is shown twice has a new one: R8 finds it.
func (f *follower) end(turn string) chan struct{} {
	c := f.ended[turn]
	if c != nil {
		select {
		case <-c:
		default:
			return c
		}
	}
	c = make(chan struct{})
	f.ended[turn] = c
	return c
}

// until waits until the end of a turn was shown.
func (f *follower) until(ctx context.Context, turn string) error {
	f.mu.Lock()
	c := f.ended[turn]
	if c == nil {
		c = make(chan struct{})
		f.ended[turn] = c
	}
	f.mu.Unlock()
	bound := time.NewTimer(f.lane.opts.Patience)
	defer bound.Stop()
	select {
	case <-c:
		return nil
	case <-bound.C:
		return fmt.Errorf("the end of turn %s was not shown to who watches %s after %s", turn, f.id, f.lane.opts.Patience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
