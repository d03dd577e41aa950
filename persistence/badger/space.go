package badger

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/persistence"
)

// SpaceState is how much room the disk has left for the store.
type SpaceState struct {
	Free          uint64 // bytes; 0 with Unknown
	Unknown       bool   // it cannot be measured: nothing is refused
	RefuseTurns   bool   // start no new turn
	RefuseAppends bool   // appends are ErrFull
}

// guard refuses before the disk is full: the database writes through a memory map, and a page
// without a block behind it is a signal that kills the process, not an error.
type guard struct {
	dir     string
	measure func(string) (uint64, error)
	turns   uint64
	appends uint64

	once sync.Once
	warn func(error)
	log  *slog.Logger

	ending chan struct{} // closed when the database is to be closed
	end    func()        // closes it

	left    chan struct{} // closed when the database was not closed and is not to be written any more
	leave   func()        // closes it
	forever chan struct{} // never closed
}

func newGuard(o Options) *guard {
	ending, left := make(chan struct{}), make(chan struct{})
	return &guard{
		left: left, leave: sync.OnceFunc(func() { close(left) }), forever: make(chan struct{}),
		log: o.Logger, ending: ending, end: sync.OnceFunc(func() { close(ending) }),
		dir: o.Dir, measure: o.FreeSpace, turns: o.RefuseTurnsBelow, appends: o.RefuseAppendsBelow,
		warn: func(err error) { o.Logger.Warn("free space cannot be measured", "path", o.Dir, "err", err) },
	}
}

func (g *guard) state() SpaceState {
	free, err := g.measure(g.dir)
	if err != nil {
		g.once.Do(func() { g.warn(err) })
		return SpaceState{Unknown: true}
	}
	return SpaceState{Free: free, RefuseTurns: free < g.turns, RefuseAppends: free < g.appends}
}

// flushReserve is the free space, in bytes, that opening and closing need: what the log holds becomes a table.
const flushReserve = 48 << 20

// refuseFlush is ErrFull when the database can be neither opened nor closed without the risk of that signal.
func (g *guard) refuseFlush() error {
	need := min(g.appends, flushReserve)
	if st := g.state(); !st.Unknown && st.Free < need {
		return fmt.Errorf("%d bytes free in %s, %d needed to open the store or to close it: %w", st.Free, g.dir, need, persistence.ErrFull)
	}
	return nil
}

// mergeReserve is the free space, in bytes, from which on the database may write the tables that a merge makes: about what those that are under way at
// the same time take.
const mergeReserve = 96 << 20

// lookEvery is how often a merge that waits for room looks again.
const lookEvery = 250 * time.Millisecond

// holdMerge waits until there is room for a merged table. The database calls it, through its log, on the goroutine that is about to write one. A database that
// is being closed waits for its merges: then the room that a closing needs is enough. One that was left open merges nothing any more: what it would replace
// may be another one's by then, as a refused opening puts the files back.
func (g *guard) holdMerge() {
	need, ending, held := min(g.appends, mergeReserve), g.ending, false
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-g.left:
			<-g.forever
			return
		default:
		}
		st := g.state()
		if st.Unknown || st.Free >= need {
			break
		}
		if !held {
			held = true
			g.log.Warn("tables are not merged before there is room", "path", g.dir, "message", fmt.Sprintf("%d bytes are free, %d needed", st.Free, need))
		}
		select {
		case <-ending:
			need, ending = min(need, flushReserve), nil
		case <-g.left:
		case <-tick.C:
		}
	}
	if held {
		g.log.Info("there is room to merge tables again", "path", g.dir)
	}
}

// refuseAppends is ErrFull below the second threshold.
func (g *guard) refuseAppends() error {
	if st := g.state(); st.RefuseAppends {
		return fmt.Errorf("%d bytes free in %s, %d needed: %w", st.Free, g.dir, g.appends, persistence.ErrFull)
	}
	return nil
}
