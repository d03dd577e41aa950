// Package badger keeps streams in an embedded Badger database, for one process at a time.
//
// A directory holds:
//
//	db/            the database
//	db.lock        the lock, with the pid of its holder
//	db.watermark   how many commits were made: the database must not know fewer
//	db.ballast     space that is given back when the disk is full, so that the store can open
//
// Badger syncs once per transaction and does not group commits, so this package does
// (committer.go). What its own recovery passes over in silence, a log cut short by a damaged
// entry and a table with a wrong checksum, refuses to open here, or only to give out what was there (gap.go).
package badger

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// AppendReserve is the free space, in bytes, below which a store takes no appends, unless its options say otherwise.
const AppendReserve = 160 << 20

// Options says where the store is and what it may use. The zero values of all but Dir work.
type Options struct {
	// Dir is the data directory; it is made, with mode 0700, when it does not exist.
	Dir string
	// Logger gets the store's and the database's messages; nil: none.
	Logger *slog.Logger
	// RefuseTurnsBelow is the free space, in bytes, below which Room asks callers to start
	// nothing new; never less than RefuseAppendsBelow. 0: 256 MiB.
	RefuseTurnsBelow uint64
	// RefuseAppendsBelow is the free space, in bytes, below which appends are ErrFull. A write
	// to a full disk kills the process, so this must cover what the database writes behind an
	// append: its log and a table. 0: AppendReserve.
	RefuseAppendsBelow uint64
	// QueueBytes is the most that appends which wait for the disk may weigh together, in bytes; those over it
	// are ErrBusy. 0: 256 MiB.
	QueueBytes int64
	// FreeSpace measures the free bytes of the directory's file system. nil: ask the system;
	// where that is not possible nothing is refused.
	FreeSpace func(dir string) (uint64, error)
	// Ballast is the size, in bytes, of the file that is released for opening. 0: 64 MiB;
	// below 0: none.
	Ballast int64
	// BlockCache is the memory, in bytes, for blocks that were read. 0: 32 MiB; less makes
	// replay ten times slower.
	BlockCache int64
	// CloseTimeout is how long Close waits for a database that does not answer. 0: 10 s.
	CloseTimeout time.Duration
	// EncryptionKey, of 16, 24 or 32 bytes, encrypts everything in db. nil: nothing is encrypted. A
	// store is opened with the key that it was made with; ErrKey otherwise.
	EncryptionKey []byte
	// Brief says that the process does one thing and ends. It then leaves the merging of tables to longer-lived ones, until
	// there are many of the first level: a table is written to its end whatever becomes of the disk, and a full one kills the process.
	Brief bool
	// Failed is told, once, why the store takes nothing any more. It must only forward. nil: nobody is.
	Failed func(error)
	// AcceptLoss opens a database that lacks acknowledged commits (ErrAckedDataMissing) and
	// takes it for complete from now on. Only an explicit repair sets it.
	AcceptLoss bool
}

func (o Options) withDefaults() Options {
	if o.RefuseTurnsBelow == 0 {
		o.RefuseTurnsBelow = 256 << 20
	}
	if o.RefuseAppendsBelow == 0 {
		o.RefuseAppendsBelow = AppendReserve
	}
	o.RefuseTurnsBelow = max(o.RefuseTurnsBelow, o.RefuseAppendsBelow)
	if o.QueueBytes == 0 {
		o.QueueBytes = 256 << 20
	}
	if o.FreeSpace == nil {
		o.FreeSpace = freeSpace
	}
	if o.Ballast == 0 {
		o.Ballast = 64 << 20
	}
	if o.BlockCache == 0 {
		o.BlockCache = 32 << 20
	}
	if o.CloseTimeout == 0 {
		o.CloseTimeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Store is an open data directory. It is safe for concurrent use.
type Store struct {
	opts       Options
	log        *slog.Logger
	db         *engine.DB
	lock       *dirLock
	mark       *watermark
	guard      *guard
	boot       uint64
	firstLevel int                      // tables of the database's first level when it was opened
	id         []byte                   // random, of the store: backups of another one do not go on from its own
	missing    *missing                 // at this opening; nil: nothing
	lost       *gaps                    // then and before; nil: nothing
	relisted   atomic.Pointer[[]string] // of lost.Relisted, as it is now
	floor      uint64                   // the highest opening that wrote a record, when the count of openings may be lost
	commits    *committer
	appends    sync.Pool // of *appendTask
	commit     func(*engine.Txn) error

	looked  atomic.Int64 // records, by Verify
	waiting atomic.Int64 // bytes of appends that are not answered yet
	failed  atomic.Pointer[error]
	flight  atomic.Pointer[group] // being committed

	mu      sync.Mutex // guards closing and every Add of readers
	closing bool
	readers sync.WaitGroup
	close   sync.Once
	closed  error // of Close, set once
}

var _ persistence.Store = (*Store)(nil)

// fail stops the store for good. The first failure counts and is logged here, once.
func (s *Store) fail(err error) {
	err = fmt.Errorf("store in %s failed: %w: %w", s.opts.Dir, persistence.ErrUnavailable, err)
	if s.failed.CompareAndSwap(nil, &err) {
		s.log.Error("store failed", "path", s.opts.Dir, "err", err)
		if s.opts.Failed != nil {
			s.opts.Failed(err)
		}
	}
}

// refusal is why a failed store takes nothing, nil while it has not failed.
func (s *Store) refusal() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Health is nil while appends can succeed. A failed store never recovers: its process must end,
// and the next one finds out what the disk holds.
func (s *Store) Health() error {
	s.mu.Lock()
	closing := s.closing
	s.mu.Unlock()
	if closing {
		return persistence.ErrClosed
	}
	return s.refusal()
}

// Durability is "fsync": what is acknowledged survives a power cut.
func (s *Store) Durability() string { return "fsync" }

// Boot is the number of this opening, from 1.
func (s *Store) Boot() uint64 { return s.boot }

// Space says how much room is left and what callers should still start.
func (s *Store) Space() SpaceState { return s.guard.state() }

var _ persistence.Roomer = (*Store)(nil)

// Room is nil while something new should be begun. It refuses before appends are: at RefuseTurnsBelow, and when
// half of QueueBytes waits.
func (s *Store) Room() error {
	if st := s.guard.state(); st.RefuseTurns {
		return fmt.Errorf("%d MiB free in %s, %d MiB needed to begin something new: %w", st.Free>>20, s.opts.Dir, s.guard.turns>>20, persistence.ErrFull)
	}
	if n := s.waiting.Load(); n > s.opts.QueueBytes/2 {
		return fmt.Errorf("%d MiB wait for the disk of %s: %w", n>>20, s.opts.Dir, persistence.ErrBusy)
	}
	return nil
}

// admit counts bytes that are to wait for the disk, or refuses them. A writer never waits for the queue: it may be an
// actor's mailbox. What is refused was not written, and one append is always taken.
func (s *Store) admit(size int64) error {
	for {
		n := s.waiting.Load()
		if n > 0 && n+size > s.opts.QueueBytes {
			return fmt.Errorf("%d bytes wait for the disk of %s: %w", n, s.opts.Dir, persistence.ErrBusy)
		}
		if s.waiting.CompareAndSwap(n, n+size) {
			return nil
		}
	}
}

// enter lets a reader in until the store closes.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return persistence.ErrClosed
	}
	s.readers.Add(1)
	return nil
}

// Close makes what is queued durable, answers it and closes the database. It returns within
// Options.CloseTimeout also when the disk does not answer: then what is in flight is answered
// with ErrAmbiguous and the database is left to the end of the process. A second Close
// returns the result of the first.
func (s *Store) Close() error {
	s.close.Do(func() { s.closed = s.shut() })
	return s.closed
}

func (s *Store) shut() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	limit := s.opts.CloseTimeout
	if s.refusal() != nil {
		limit = min(limit, failedTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()

	s.commits.queue.close()
	if !wait(ctx, s.commits.ended) {
		s.fail(fmt.Errorf("commits do not end within %s", s.opts.CloseTimeout))
		close(s.commits.abandon)
		if g := s.flight.Load(); g != nil {
			g.answer(fmt.Errorf("append: %w: %w", persistence.ErrAmbiguous, s.refusal()))
		}
		for _, t := range s.commits.queue.drain() { // the stager may be the one that hangs
			t.answer(s.refusal())
		}
		return s.leave(ctx)
	}
	readers := make(chan struct{})
	go func() { s.readers.Wait(); close(readers) }()
	if !wait(ctx, readers) {
		// The database's files must stay mapped under a reader.
		s.fail(fmt.Errorf("readers do not end within %s", s.opts.CloseTimeout))
		return s.leave(ctx)
	}
	if err := s.closeEngine(ctx); err != nil {
		s.fail(err)
	}
	return s.leave(ctx)
}

// closeEngine closes the database within ctx. On a full disk it is left as a crash would leave it, as is one that
// does not close: all that was acknowledged is in its log, and the flush would be the signal that kills the process.
func (s *Store) closeEngine(ctx context.Context) error {
	if s.guard.refuseFlush() != nil {
		if err := s.releaseBallast(); err != nil {
			return err
		}
		if err := s.guard.refuseFlush(); err != nil {
			s.guard.leave()
			s.log.Warn("the database is left open", "path", s.opts.Dir, "err", err)
			return nil
		}
	}
	s.guard.end()
	closed := make(chan error, 1)
	go func() { closed <- s.db.Close() }() // hangs for ever after an I/O error
	select {
	case err := <-closed:
		if err != nil {
			return fmt.Errorf("close database: %w", err)
		}
		return nil
	case <-ctx.Done():
		s.guard.leave()
		return fmt.Errorf("database does not close within %s", s.opts.CloseTimeout)
	}
}

// failedTimeout bounds Close of a store that has failed: its database often hangs.
const failedTimeout = 2 * time.Second

// leave gives the directory back.
func (s *Store) leave(ctx context.Context) error {
	marked := make(chan error, 1)
	go func() { marked <- s.mark.close() }()
	select {
	case err := <-marked:
		if err != nil {
			s.fail(err)
		}
	case <-ctx.Done(): // its last sync hangs with everything else
	}
	if err := s.lock.release(); err != nil {
		s.log.Warn("lock file stays", "path", s.opts.Dir, "err", err)
	}
	return s.refusal()
}

func wait(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
