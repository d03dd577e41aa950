package act

import "time"

// Pool runs functions in goroutines and keeps those for a while: a call's stack grows to tens of
// kilobytes, and growing it anew for every call costs more than the call's own bookkeeping.
// It never queues: without an idle goroutine it starts another.
type Pool struct {
	idle chan func()
	quit chan struct{}
}

// idleFor is how long a goroutine waits for the next function before it ends.
const idleFor = 2 * time.Second

// NewPool makes a pool. The caller ends it with Close.
func NewPool() *Pool { return &Pool{idle: make(chan func()), quit: make(chan struct{})} }

// Go runs fn in a goroutine. fn must not panic.
func (p *Pool) Go(fn func()) {
	select {
	case p.idle <- fn:
	default:
		go p.loop(fn)
	}
}

func (p *Pool) loop(fn func()) {
	t := time.NewTimer(idleFor)
	defer t.Stop()
	for {
		fn()
		t.Reset(idleFor)
		select {
		case fn = <-p.idle:
		case <-t.C:
			return
		case <-p.quit:
			return
		}
	}
}

// Close ends idle goroutines at once, and the others when their function returns.
func (p *Pool) Close() { close(p.quit) }
