package badger

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestNothingIsMergedBehindAStoreThatWasLeftOpen has room again after it was left.
func TestNothingIsMergedBehindAStoreThatWasLeftOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Uint64
		o := Options{FreeSpace: func(string) (uint64, error) { return free.Load(), nil }, Logger: slog.New(slog.DiscardHandler)}
		g := newGuard(o.withDefaults())
		merged := make(chan struct{})
		go func() { g.holdMerge(); close(merged) }()
		synctest.Wait()
		s := &Store{guard: g, log: o.Logger, opts: o}
		if err := s.closeEngine(t.Context()); err != nil {
			t.Error(err)
		}
		free.Store(1 << 30)
		select {
		case <-merged:
			t.Error("it merges tables that may be another one's")
		case <-time.After(time.Hour):
		}
		close(g.forever)
		<-merged
	})
}
