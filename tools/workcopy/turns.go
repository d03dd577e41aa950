package workcopy

import (
	"context"
	"fmt"
	"sync"

	"github.com/troupe-dev/troupe/messages"
)

// maxWaiting is how many may wait to look at one copy, or to apply it, before others are refused.
const maxWaiting = 16

// turns lets one at a time look at a copy or apply it: who looks first finishes what a kill has cut off, and takes an apply that is under
// way for one.
type turns struct {
	mu  sync.Mutex
	all map[string]*turn // by the folder of the copy; those that somebody has or waits for
}

type turn struct {
	free chan struct{} // holds a value while nobody has it
	n    int           // who has it or waits for it
}

// take waits for the turn at a copy; it is given back by the function. Waiting ends with the context.
func (t *turns) take(ctx context.Context, dir string) (done func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = make(map[string]*turn)
	}
	at := t.all[dir]
	if at == nil {
		at = &turn{free: make(chan struct{}, 1)}
		at.free <- struct{}{}
		t.all[dir] = at
	}
	if at.n > maxWaiting {
		t.mu.Unlock()
		return nil, messages.Fail(messages.CodeBusy, fmt.Sprintf("%d others wait to compare or apply this copy", maxWaiting), "try again")
	}
	at.n++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if at.n--; at.n == 0 {
			delete(t.all, dir)
		}
	}
	select {
	case <-at.free:
		return func() { at.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, messages.Fail(messages.CodeBusy, "others compare or apply this copy, and it was not waited for them to end: "+context.Cause(ctx).Error(), "try again")
	}
}
