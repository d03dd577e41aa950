package main

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// spacePoll is how often the free space of the data directory is looked at.
const spacePoll = time.Second

// watchSpace tells a person, once each time, when the disk is too full for anything to be written down: turns wait
// then, and go on by themselves when there is room. It returns at the end of ctx.
func (h *house) watchSpace(ctx context.Context, note func(string, ...any)) {
	tick := time.NewTicker(spacePoll)
	defer tick.Stop()
	dir, full := troupe.StoreDir(h.data), false
	for {
		free, err := freeSpace(dir)
		now := err == nil && uint64(free) < badger.AppendReserve
		switch {
		case now && !full:
			note("troupe: not enough free disk space: %d MiB in %s, %d MiB needed; the turn waits for room; Ctrl-C leaves it, and what was acknowledged is kept",
				free>>20, dir, badger.AppendReserve>>20)
		case full && !now:
			note("troupe: there is room on the disk again")
		}
		full = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
