// Package memory is a store that forgets with the process: for tests, and for runs that ask for
// no persistence. It answers from a goroutine of its own like the stores that write to disk, so
// that code which works on it has the same order of events to cope with.
package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Store keeps everything in maps. It is safe for concurrent use.
type Store struct {
	boot uint64

	mu     sync.Mutex
	closed bool
	queue  []task
	state  *state

	wake chan struct{} // capacity 1: the queue is not empty, or closed
	done chan struct{} // closed when the committer has ended
}

// task is one append on its way to the committer.
type task struct {
	batches []persistence.Batch
	err     error // found before it was queued
	done    func(persistence.Receipt, error)
}

// New opens an empty store. Close ends its goroutine.
func New() *Store {
	return start(newState(), 1)
}

func start(st *state, boot uint64) *Store {
	s := &Store{boot: boot, state: st, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go s.commit()
	return s
}

// Reopen closes the store and returns a new one over the same content, as a process that
// starts again would find it: every earlier lease is void.
func (s *Store) Reopen() *Store {
	_ = s.Close() // never fails
	st := s.state
	st.leases = make(map[string]uint64)
	st.claims = 0
	return start(st, s.boot+1)
}

// Appends is how many appends were made since the first opening.
func (s *Store) Appends() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.state.log)
}

// Cut returns a new store that holds the first n appends and nothing else (no snapshots): what
// a crash right after them would have left. The store itself is not changed.
func (s *Store) Cut(n int) (*Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 0 || n > len(s.state.log) {
		return nil, fmt.Errorf("cut after %d of %d appends: %w", n, len(s.state.log), persistence.ErrInvalid)
	}
	st := newState()
	for h, data := range s.state.blobs {
		st.blobs[h] = data
	}
	for _, b := range s.state.log[:n] {
		st.apply(b)
	}
	return start(st, s.boot+1), nil
}

// Claim makes the caller the one writer of a stream.
func (s *Store) Claim(ctx context.Context, stream, _ string) (persistence.Lease, error) {
	if err := persistence.CheckName(stream); err != nil {
		return persistence.Lease{}, fmt.Errorf("claim: %w", err)
	}
	// The claim waits its turn behind the appends that are queued, so that what it is told to
	// be next is what Read shows.
	if err := s.barrier(ctx); err != nil {
		return persistence.Lease{}, fmt.Errorf("claim %s: %w", stream, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return persistence.Lease{}, fmt.Errorf("claim %s: %w", stream, persistence.ErrClosed)
	}
	s.state.claims++
	epoch := s.boot<<32 | s.state.claims
	s.state.leases[stream] = epoch
	return persistence.Lease{Stream: stream, Epoch: epoch, Next: s.state.next(stream)}, nil
}

// Release voids a lease.
func (s *Store) Release(l persistence.Lease) {
	_ = s.barrier(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && s.state.leases[l.Stream] == l.Epoch { // a closed one holds none, and its content may be another's by now
		delete(s.state.leases, l.Stream)
	}
}

// barrier waits until everything queued before it was answered.
func (s *Store) barrier(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	passed := make(chan error, 1)
	s.push(task{done: func(_ persistence.Receipt, err error) { passed <- err }})
	select {
	case err := <-passed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Append makes the batches visible in one step.
func (s *Store) Append(ctx context.Context, b ...persistence.Batch) (persistence.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return persistence.Receipt{}, fmt.Errorf("append: %w", err)
	}
	type answer struct {
		r   persistence.Receipt
		err error
	}
	answered := make(chan answer, 1)
	s.Enqueue(func(r persistence.Receipt, err error) { answered <- answer{r, err} }, b...)
	select {
	case a := <-answered:
		return a.r, a.err
	case <-ctx.Done():
		return persistence.Receipt{}, fmt.Errorf("append: %w: %w", persistence.ErrAmbiguous, ctx.Err())
	}
}

// Enqueue queues an append. On a closed store done is called before it returns.
func (s *Store) Enqueue(done func(persistence.Receipt, error), b ...persistence.Batch) {
	err := persistence.Prepare(b)
	s.push(task{batches: slices.Clone(b), err: err, done: done})
}

func (s *Store) push(t task) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		t.done(persistence.Receipt{}, fmt.Errorf("append: %w", persistence.ErrClosed))
		return
	}
	s.queue = append(s.queue, t)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// commit answers the queue in order until the store is closed and the queue empty.
func (s *Store) commit() {
	defer close(s.done)
	for {
		s.mu.Lock()
		queue, closed := s.queue, s.closed
		s.queue = nil
		s.mu.Unlock()
		for _, t := range queue {
			r, err := s.make(t)
			t.done(r, err)
		}
		if closed && len(queue) == 0 {
			return
		}
		if len(queue) == 0 {
			<-s.wake
		}
	}
}

func (s *Store) make(t task) (persistence.Receipt, error) {
	if t.err != nil || len(t.batches) == 0 {
		return persistence.Receipt{}, t.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state.check(t.batches); err != nil {
		return persistence.Receipt{}, err
	}
	kept := s.state.keep(t.batches)
	s.state.log = append(s.state.log, kept)
	return s.state.apply(kept), nil
}

// Health is nil until the store is closed.
func (s *Store) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return persistence.ErrClosed
	}
	return nil
}

// Durability says that nothing outlives the process.
func (s *Store) Durability() string { return "memory" }

// Boot counts the openings of the content.
func (s *Store) Boot() uint64 { return s.boot }

// Close makes what is queued, answers it and ends the committer. A second Close does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	<-s.done
	return nil
}

// view runs fn on the state of an open store.
func (s *Store) view(ctx context.Context, doing string, fn func(*state) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: %w", doing, persistence.ErrClosed)
	}
	if err := fn(s.state); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// PutSnapshot keeps a fold, and the one before it.
func (s *Store) PutSnapshot(ctx context.Context, l persistence.Lease, snap *messages.Snapshot) error {
	if err := persistence.CheckSnapshot(l, snap); err != nil {
		return err
	}
	if err := s.barrier(ctx); err != nil {
		return fmt.Errorf("snapshot of %s: %w", l.Stream, err)
	}
	return s.view(ctx, "snapshot of "+l.Stream, func(st *state) error { return st.putSnapshot(l, snap) })
}

var _ persistence.Store = (*Store)(nil)
