// Package persistence is the contract between those who remember and those who keep:
// streams of records with one writer each, a cursor per session, secondary indexes,
// idempotency keys, timers and blobs, all changed in the same atomic append.
//
// A nil error from Append means durable: on disk, beyond a power cut. Stores differ in how they
// do it and are held to one suite, persistencetest.Run.
package persistence

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Limits of an append.
const (
	// MaxAppend is the most that the records of one append may weigh, in bytes, after
	// bodies over BlobThreshold were moved to blobs.
	MaxAppend = 8 << 20
	// BlobThreshold is the size of a body above which it is kept as a blob and referenced.
	BlobThreshold = 64 << 10
	// MaxBlob is the largest blob.
	MaxBlob = 64 << 20
)

// Lease is the right to write one stream: the newest epoch wins and fences all older ones.
type Lease struct {
	Stream string
	Epoch  uint64
	Next   uint64 // seq that the stream's next record must have
}

// Entry is one record as it was read back.
type Entry struct {
	Stream  string
	Session string // whose cursor counts it; "" for none
	Cursor  uint64
	Record  *messages.Record // Body is filled in, from the blob when it was kept there
}

// Batch is what one stream gains in an append. All batches of an append become durable
// together or not at all.
type Batch struct {
	Lease   Lease
	Expect  uint64 // seq of the first record; ErrConflict when it is not the stream's next
	Session string // session whose cursor moves; "" for none
	Records []*messages.Record
	Keys    []Key     // refused with ErrDuplicate when one exists
	Index   []IndexOp // secondary entries put or deleted
	Timers  []TimerOp
	Blobs   []Blob // referenced by the records; written first
}

// Key is an idempotency key: the first append that carries it wins.
type Key struct {
	Name  string
	Value []byte
}

// IndexOp puts (or, with Delete, removes) one secondary entry. Keys are ordered bytewise.
type IndexOp struct {
	Key    string
	Value  []byte
	Delete bool
}

// TimerOp sets or removes a due time. ID is unique in the store.
type TimerOp struct {
	ID     string
	Due    time.Time
	Value  []byte
	Delete bool
}

// Timer is a due time that was set.
type Timer struct {
	ID    string
	Due   time.Time
	Value []byte
}

// Blob is content kept under its hash; writing it again is free.
type Blob struct {
	Hash [32]byte // sha-256 of Data
	Data []byte
}

// Receipt tells what an append was given.
type Receipt struct {
	First, Last uint64 // session cursors of the first batch's first and the last batch's last record; 0 without a session
}

// Store keeps streams. It is safe for concurrent use. The number of methods is the one
// exception to the house's rule of three: everything here shares one transaction.
type Store interface {
	// Claim makes the caller the one writer of a stream, with a new and higher epoch.
	// A stream need not exist. owner is for people.
	Claim(ctx context.Context, stream, owner string) (Lease, error)
	// Append makes the batches durable in one step. Several streams only at creation of
	// something that must never be seen in part. Seq and Epoch of the records are filled in from Expect and Lease.
	Append(ctx context.Context, b ...Batch) (Receipt, error)
	// Enqueue is Append without waiting: done is called exactly once, from the committer,
	// and must only forward. Appends enqueued by one goroutine become durable in order.
	Enqueue(done func(Receipt, error), b ...Batch)

	// Read calls fn for every record of a stream with seq >= from, in order. An error of fn ends it and is returned.
	Read(ctx context.Context, stream string, from uint64, fn func(Entry) error) error
	// ReadSession calls fn for every record of a session with a cursor > after, in order of the cursor.
	ReadSession(ctx context.Context, session string, after uint64, fn func(Entry) error) error
	// Head returns the last seq of a stream, 0 when it does not exist.
	Head(ctx context.Context, stream string) (uint64, error)
	// Cursor returns the last cursor of a session, 0 when it has none.
	Cursor(ctx context.Context, session string) (uint64, error)
	// Streams calls fn for the name of every stream with the prefix, in order.
	Streams(ctx context.Context, prefix string, fn func(string) error) error
	// Index calls fn for every secondary entry with the prefix, in order of its key.
	Index(ctx context.Context, prefix string, fn func(key string, value []byte) error) error
	// Lookup returns the value of an idempotency key, ErrNotFound when there is none.
	Lookup(ctx context.Context, key string) ([]byte, error)
	// Due calls fn for the timers due at or before t, earliest first.
	Due(ctx context.Context, t time.Time, fn func(Timer) error) error
	// Blob returns kept content, ErrNotFound when there is none.
	Blob(ctx context.Context, hash [32]byte) ([]byte, error)
	// PutBlob keeps content ahead of an append that refers to it.
	PutBlob(ctx context.Context, b Blob) error

	// PutSnapshot keeps a fold of a stream; the two newest are kept.
	PutSnapshot(ctx context.Context, l Lease, s *messages.Snapshot) error
	// Snapshot returns the newest valid one with a seq under below (0: the newest of all), so that
	// its reader can go back to the one before; ErrNotFound when there is none.
	Snapshot(ctx context.Context, stream string, below uint64) (*messages.Snapshot, error)

	// Trim forgets the records of a stream up to a seq, for good: they stand in a snapshot. Nothing goes that a kept
	// snapshot does not hold (ErrConflict), so that the older one can still be begun from. Read from before what is left is ErrTrimmed; so is
	// ReadSession from before the last cursor that went.
	Trim(ctx context.Context, l Lease, upto uint64) error
	// Delete removes sessions for good: all streams that have records with their cursors, what the deletions name, and
	// blobs that no record refers to any more. Leases of the streams are void. A crash in the middle
	// is finished at the next opening.
	Delete(ctx context.Context, d ...Deletion) error

	// Verify checks every record of the streams (nil: all) for order, epochs, checksums and the
	// commit watermark, and reports what is wrong without changing anything.
	Verify(ctx context.Context, streams []string, report func(Finding)) (Summary, error)
	// Health is nil while appends can succeed; a failed store never recovers.
	Health() error
	// Durability says in a word what a nil error stands for: "fsync" or "memory".
	Durability() string
	// Boot is the durable count of openings, for epochs and ids.
	Boot() uint64
	Close() error
}

// Deletion is a session that is to go, and what belongs to it. Names are exact.
type Deletion struct {
	Session string
	Streams []string // besides those that its cursors lead to
	Index   []string
	Keys    []string
	Timers  []string
}

// Finding is one thing that Verify found wrong.
type Finding struct {
	Stream  string
	Seq     uint64
	Problem string
}

// Summary counts what Verify looked at.
type Summary struct {
	Streams, Records int64
}
