package badger

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// heard is a log handler that says when one message comes.
type heard struct {
	slog.Handler
	message string
	came    chan struct{}
}

func (h heard) Enabled(context.Context, slog.Level) bool { return true }

func (h heard) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, h.message) {
		h.came <- struct{}{}
	}
	return nil
}

// severalCount is more tables than the database leaves on its first level.
const severalCount = 7

// severalTables makes a store of some tables that nobody has merged.
func severalTables(t *testing.T, dir string, change ...func(*Options)) {
	t.Helper()
	for range severalCount {
		s := openIn(t, dir, append(change, func(o *Options) { o.Brief = true })...)
		appendTo(t, s, "wrk/a", "s", 10)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTablesAreNotMergedBeforeThereIsRoom has the database in the middle of a merge when the disk is full.
func TestTablesAreNotMergedBeforeThereIsRoom(t *testing.T) {
	dir := t.TempDir()
	severalTables(t, dir)
	held := make(chan struct{}, 1)
	var free atomic.Uint64
	free.Store(1 << 30)
	s := openIn(t, dir, func(o *Options) {
		o.Brief, o.FreeSpace = true, func(string) (uint64, error) { return free.Load(), nil }
		o.Logger = slog.New(heard{slog.DiscardHandler, "not merged", held})
	})
	tables := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
		names = slices.DeleteFunc(names, saysFormat)
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		return names
	}
	before := tables()
	free.Store(mergeReserve - 1)
	merged := make(chan error, 1)
	go func() { merged <- s.db.Flatten(1) }()
	select {
	case <-held:
	case err := <-merged:
		t.Fatalf("merged without room: %v", err)
	}
	if now := tables(); len(now) != len(before) {
		t.Errorf("without room there are %q, before %q", now, before)
	}
	free.Store(mergeReserve)
	if err := <-merged; err != nil || len(tables()) >= len(before) {
		t.Errorf("with room again there are %q, %v", tables(), err)
	}
	if head, err := s.Head(context.Background(), "wrk/a"); err != nil || head != 10*severalCount {
		t.Errorf("the stream ends at %d, %v", head, err)
	}
}

// TestClosingEndsAMergeThatWaitsForRoom has as much room as a closing needs, and less than a merge waits for.
func TestClosingEndsAMergeThatWaitsForRoom(t *testing.T) {
	dir := t.TempDir()
	severalTables(t, dir)
	held := make(chan struct{}, 1)
	var free atomic.Uint64
	free.Store(1 << 30)
	s := openIn(t, dir, func(o *Options) {
		o.Brief, o.FreeSpace = true, func(string) (uint64, error) { return free.Load(), nil }
		o.Logger = slog.New(heard{slog.DiscardHandler, "not merged", held})
	})
	free.Store(flushReserve)
	merged := make(chan error, 1)
	go func() { merged <- s.db.Flatten(1) }()
	<-held
	s.guard.end()
	if err := <-merged; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
