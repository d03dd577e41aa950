package badger

import (
	"fmt"
	"sync"

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
}

func newGuard(o Options) *guard {
	return &guard{
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

// refuseAppends is ErrFull below the second threshold.
func (g *guard) refuseAppends() error {
	if st := g.state(); st.RefuseAppends {
		return fmt.Errorf("%d bytes free in %s, %d needed: %w", st.Free, g.dir, g.appends, persistence.ErrFull)
	}
	return nil
}
