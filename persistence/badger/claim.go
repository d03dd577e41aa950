package badger

import (
	"context"
	"fmt"
	"math"

	"github.com/troupe-dev/troupe/persistence"
)

// claimTask makes a lease. It takes its turn in the queue, so that every append of an older
// lease is either durable when the claim is answered, or fenced.
type claimTask struct {
	stream  string
	lease   persistence.Lease
	answers chan claimed // capacity 1
}

type claimed struct {
	lease persistence.Lease
	err   error
}

// Claim makes the caller the one writer of a stream. The epoch is the boot counter and a count of
// claims, so that a claim writes nothing; a lease does not outlive the process.
func (s *Store) Claim(ctx context.Context, stream, _ string) (persistence.Lease, error) {
	if err := persistence.CheckName(stream); err != nil {
		return persistence.Lease{}, fmt.Errorf("claim: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return persistence.Lease{}, fmt.Errorf("claim %s: %w", stream, err)
	}
	t := &claimTask{stream: stream, answers: make(chan claimed, 1)}
	if !s.commits.queue.add(t) {
		return persistence.Lease{}, fmt.Errorf("claim %s: %w", stream, persistence.ErrClosed)
	}
	select {
	case a := <-t.answers:
		return a.lease, a.err
	case <-ctx.Done():
		return persistence.Lease{}, fmt.Errorf("claim %s: %w", stream, ctx.Err())
	}
}

func (t *claimTask) stage(c *committer) error {
	if c.claims == math.MaxUint32 {
		return fmt.Errorf("claim %s: epochs of this opening are used up: %w", t.stream, persistence.ErrUnavailable)
	}
	if c.gone[t.stream] {
		return fmt.Errorf("claim %s: it is being deleted: %w", t.stream, persistence.ErrUnavailable)
	}
	epoch := c.s.boot<<32 | (c.claims + 1)
	h, known := c.heads[t.stream]
	if !known {
		last, err := lastRecord(c.cur.view, c.s.lost, t.stream)
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		if last.epoch >= epoch {
			return fmt.Errorf("claim %s: epoch %d at seq %d is not below %d: %w", t.stream, last.epoch, last.seq, epoch, persistence.ErrCorrupt)
		}
		h.next = last.seq + 1
	}
	c.claims++
	h.epoch = epoch
	c.heads[t.stream] = h
	t.lease = persistence.Lease{Stream: t.stream, Epoch: epoch, Next: h.next}
	return nil
}

func (t *claimTask) answer(err error) {
	if err != nil {
		t.answers <- claimed{err: fmt.Errorf("claim %s: %w", t.stream, err)}
		return
	}
	t.answers <- claimed{lease: t.lease}
}

// releaseTask voids a lease and lets the committer forget its stream.
type releaseTask persistence.Lease

// Release voids a lease behind every append that was handed in before. An older lease of the
// stream stays void: a stream that nobody holds takes no appends.
func (s *Store) Release(l persistence.Lease) {
	t := releaseTask(l)
	s.commits.queue.add(&t) // a closed store holds no leases
}

func (t *releaseTask) stage(c *committer) error {
	h, known := c.heads[t.Stream]
	if known && h.epoch == t.Epoch {
		h.epoch = 0
		c.heads[t.Stream] = h
		c.released = append(c.released, t.Stream)
	}
	return nil
}

func (t *releaseTask) answer(error) {}
