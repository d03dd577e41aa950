package act

import (
	"sync"
	"time"
)

// Pool runs functions in goroutines and keeps those for a while: a call's stack grows to tens of
// kilobytes, and growing it anew for every call costs more than the call's own bookkeeping.
// It never queues: without an idle goroutine it starts another. The one that became idle last works
// next, because its stack is still warm.
type Pool struct {
	mu     sync.Mutex
	idle   []chan func() // one for each idle goroutine, the last to become idle at the end
	spare  int           // the fewest that were idle at once since the last trim: nobody needed those
	trims  *time.Timer   // armed while goroutines are idle
	closed bool
}

// idleFor is how often goroutines that were idle all the time are ended.
const idleFor = time.Second

// NewPool makes a pool. The caller ends it with Close.
func NewPool() *Pool { return &Pool{} }

// Go runs fn in a goroutine. fn must not panic.
func (p *Pool) Go(fn func()) {
	p.mu.Lock()
	n := len(p.idle) - 1
	if n < 0 {
		p.mu.Unlock()
		go p.loop(fn)
		return
	}
	next := p.idle[n]
	p.idle[n] = nil
	p.idle = p.idle[:n]
	p.spare = min(p.spare, n)
	p.mu.Unlock()
	next <- fn
}

// loop runs functions until the pool has had no use for it, or is closed.
func (p *Pool) loop(fn func()) {
	next := make(chan func(), 1)
	for fn != nil {
		fn()
		if !p.rest(next) {
			return
		}
		fn = <-next
	}
}

// rest adds a goroutine to the idle ones; false when the pool is closed.
func (p *Pool) rest(next chan func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.idle = append(p.idle, next)
	if p.trims == nil {
		p.trims = time.AfterFunc(idleFor, p.trim)
	}
	return true
}

// trim ends the goroutines that nobody needed since the last trim.
func (p *Pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(p.spare, len(p.idle))
	for _, next := range p.idle[:n] {
		next <- nil
	}
	p.idle = append(p.idle[:0:0], p.idle[n:]...)
	p.spare = len(p.idle)
	if p.closed || len(p.idle) == 0 {
		p.trims = nil
		return
	}
	p.trims.Reset(idleFor)
}

// Schedule makes a pool the dispatcher of mailboxes: a run of messages, too, grows its stack once.
func (p *Pool) Schedule(fn func()) { p.Go(fn) }

// Throughput is how many messages of one mailbox are handled in a run.
func (p *Pool) Throughput() int { return 300 }

// Close ends idle goroutines at once, and the others when their function returns.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.trims != nil {
		p.trims.Stop()
		p.trims = nil
	}
	for _, next := range p.idle {
		next <- nil
	}
	p.idle = nil
}
