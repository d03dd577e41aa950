package persistence

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Clock tells the time; time.Now is one.
type Clock func() time.Time

// Draft is what a writer wants to append: Journal adds stream, epoch, seq, ids and times.
// It belongs to the store until the append is answered.
type Draft struct {
	Records []*messages.Record // Type, Schema, Body, TurnId and CausationId are the writer's
	Keys    []Key
	Index   []IndexOp
	Timers  []TimerOp
	Blobs   []Blob // for records that carry a BodyBlob; large bodies are moved without it
}

// Releaser is a store that can forget a lease. Without it the store keeps some bytes for every
// stream claimed since it was opened.
type Releaser interface {
	Release(l Lease)
}

// Journal is the mixin by which an actor persists: one stream, its lease and its next seq.
// It belongs to one goroutine, the actor's; only the answers come from the store's.
//
// A journal whose append was refused by the store stays failed: later appends were decided on a
// state that never came to be. Its owner starts again with OpenJournal and Replay.
type Journal struct {
	// Now stamps records that carry no time. nil means time.Now.
	Now Clock

	store   Store
	lease   Lease
	session string
	next    uint64
	failed  atomic.Pointer[error] // set by the committer, read by the owner
}

// OpenJournal claims a stream. session names whose cursor counts its records ("" for none);
// owner is for people. Errors are those of Store.Claim.
func OpenJournal(ctx context.Context, store Store, stream, session, owner string) (*Journal, error) {
	lease, err := store.Claim(ctx, stream, owner)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", stream, err)
	}
	return &Journal{store: store, lease: lease, session: session, next: lease.Next}, nil
}

// Replay calls fn for every record with seq >= from, in order, up to where the journal was
// claimed. It refuses a journal with a gap, or one that ends early (ErrCorrupt).
func (j *Journal) Replay(ctx context.Context, from uint64, fn func(Entry) error) error {
	want := max(from, 1)
	err := j.store.Read(ctx, j.lease.Stream, from, func(e Entry) error {
		if e.Record.Seq != want {
			return fmt.Errorf("seq %d where %d was expected: %w", e.Record.Seq, want, ErrCorrupt)
		}
		want++
		return fn(e)
	})
	if err == nil && want < j.lease.Next {
		err = fmt.Errorf("ends at seq %d, claimed up to %d: %w", want-1, j.lease.Next-1, ErrCorrupt)
	}
	if err != nil {
		return fmt.Errorf("replay journal %s from %d: %w", j.lease.Stream, from, err)
	}
	return nil
}

// Append hands a draft to the store and returns the seq of its first record. done is called
// exactly once, after the append is durable or refused, from the store's committer, and must
// only forward. A draft that no store takes (ErrInvalid, ErrTooLarge) and any draft to a failed
// journal are answered before Append returns; the former leaves the journal usable.
func (j *Journal) Append(done func(Receipt, error), d Draft) uint64 {
	first := j.next
	b, err := j.batch(d)
	if err != nil {
		done(Receipt{}, err)
		return first
	}
	batches := []Batch{b}
	if err := Prepare(batches); err != nil {
		done(Receipt{}, err)
		return first
	}
	j.next += uint64(len(d.Records))
	j.store.Enqueue(func(r Receipt, err error) {
		if err != nil {
			j.fail(err)
		}
		done(r, err)
	}, batches...)
	return first
}

// Part is what one journal gains in an append over several.
type Part struct {
	Journal *Journal
	Draft   Draft
}

// AppendTogether makes drafts of several journals of one store durable in one step, or none of
// them. It is for the creation of what must never be seen in part; see Journal.Append for done.
func AppendTogether(done func(Receipt, error), parts ...Part) {
	batches := make([]Batch, len(parts))
	for i, p := range parts {
		b, err := p.Journal.batch(p.Draft)
		if err != nil {
			done(Receipt{}, err)
			return
		}
		batches[i] = b
	}
	if err := Prepare(batches); err != nil {
		done(Receipt{}, err)
		return
	}
	for _, p := range parts {
		p.Journal.next += uint64(len(p.Draft.Records))
	}
	parts[0].Journal.store.Enqueue(func(r Receipt, err error) {
		if err != nil {
			for _, p := range parts {
				p.Journal.fail(err)
			}
		}
		done(r, err)
	}, batches...)
}

// PutSnapshot keeps a fold of the records up to seq, which must be durable.
func (j *Journal) PutSnapshot(ctx context.Context, seq uint64, schema uint32, state []byte) error {
	s := &messages.Snapshot{Stream: j.lease.Stream, Seq: seq, Schema: schema, State: state}
	return j.store.PutSnapshot(ctx, j.lease, s)
}

// Snapshot returns the newest valid fold of the stream up to a record before below (0: the newest
// of all), ErrNotFound when there is none.
func (j *Journal) Snapshot(ctx context.Context, below uint64) (*messages.Snapshot, error) {
	return j.store.Snapshot(ctx, j.lease.Stream, below)
}

// Release gives the lease back when its owner passivates: later appends of this journal are
// fenced. Appends that were handed in before are still made.
func (j *Journal) Release() {
	if r, ok := j.store.(Releaser); ok {
		r.Release(j.lease)
	}
	j.fail(fmt.Errorf("journal %s was released: %w", j.lease.Stream, ErrFenced))
}

// Trim forgets the records up to a seq, which a kept snapshot holds; see Store.Trim.
func (j *Journal) Trim(ctx context.Context, upto uint64) error {
	return j.store.Trim(ctx, j.lease, upto)
}

// Lease is the claim under which the journal writes.
func (j *Journal) Lease() Lease { return j.lease }

// Stream is the name of the journal's stream.
func (j *Journal) Stream() string { return j.lease.Stream }

// Session is whose cursor counts the records.
func (j *Journal) Session() string { return j.session }

// Next is the seq that the next record will have, counting those that were handed in.
func (j *Journal) Next() uint64 { return j.next }

// Err is why the journal takes no more, nil while it does.
func (j *Journal) Err() error {
	if err := j.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (j *Journal) fail(err error) {
	j.failed.CompareAndSwap(nil, &err)
}

// batch fills in what the writer left to the journal, when that still takes something.
func (j *Journal) batch(d Draft) (Batch, error) {
	if err := j.Err(); err != nil {
		return Batch{}, err
	}
	now := j.Now
	if now == nil {
		now = time.Now
	}
	var at int64
	var ids []byte // of records that have none yet: made together
	for i, r := range d.Records {
		if r == nil {
			return Batch{}, fmt.Errorf("append to %s: record %d is nil: %w", j.lease.Stream, i, ErrInvalid)
		}
		if len(r.RecordId) == 0 {
			if len(ids) == 0 {
				ids = newRecordIDs(len(d.Records) - i)
			}
			r.RecordId, ids = ids[:recordIDSize:recordIDSize], ids[recordIDSize:]
		}
		if r.AtUnixMs == 0 {
			if at == 0 {
				at = now().UnixMilli()
			}
			r.AtUnixMs = at
		}
	}
	return Batch{
		Lease: j.lease, Expect: j.next, Session: j.session,
		Records: d.Records, Keys: d.Keys, Index: d.Index, Timers: d.Timers, Blobs: d.Blobs,
	}, nil
}

// recordIDSize is the length, in bytes, of the id by which a record is found after an ambiguous append.
const recordIDSize = 16

// newRecordIDs makes ids of records that are appended together: the first is random, the others count up from it, so that a store can tell them by it.
func newRecordIDs(n int) []byte {
	ids := make([]byte, n*recordIDSize)
	_, _ = rand.Read(ids[:recordIDSize]) // crypto/rand ends the process rather than fail
	for i := 1; i < n; i++ {
		FollowingID(ids[i*recordIDSize:], ids[:recordIDSize], i)
	}
	return ids
}

// FollowingID writes the id of the n-th record after one in the same append, when the ids of that were made together.
func FollowingID(id, first []byte, n int) {
	at := copy(id, first[:recordIDSize]) - 4
	binary.BigEndian.PutUint32(id[at:], binary.BigEndian.Uint32(first[at:])+uint32(n))
}

// Committed reports whether an append whose outcome was ErrAmbiguous is in the stream: it looks
// for its first record by id. ErrNotFound means that it is not there; with a newer claim held,
// it never will be.
func Committed(ctx context.Context, s Store, stream string, from uint64, recordID []byte) (Entry, error) {
	var found Entry
	stop := errors.New("found")
	err := s.Read(ctx, stream, from, func(e Entry) error {
		if string(e.Record.RecordId) == string(recordID) {
			found = e
			return stop
		}
		return nil
	})
	switch {
	case errors.Is(err, stop):
		return found, nil
	case err != nil:
		return Entry{}, fmt.Errorf("look for record %x in %s: %w", recordID, stream, err)
	}
	return Entry{}, fmt.Errorf("look for record %x in %s: %w", recordID, stream, ErrNotFound)
}
