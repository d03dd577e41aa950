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

// Schedule makes a pool the dispatcher of mailboxes: a run of messages, too, grows its stack once.
func (p *Pool) Schedule(fn func()) { p.Go(fn) }

// Throughput is how many messages of one mailbox are handled in a run.
func (p *Pool) Throughput() int { return 300 }

// Close ends idle goroutines at once, and the others when their function returns.
func (p *Pool) Close() { close(p.quit) }
