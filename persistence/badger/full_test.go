package badger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe/persistence"
)

// TestFullDiskIsNeitherOpenedNorFlushedTo: the table that a flush makes is written through a memory map, which
// on a full disk is a signal that ends the process.
func TestFullDiskIsNeitherOpenedNorFlushedTo(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	var free atomic.Uint64
	free.Store(1 << 30)
	onDisk := func(o *Options) {
		o.FreeSpace = func(string) (uint64, error) { return free.Load(), nil }
		o.Ballast = 1 << 20
	}
	s := openIn(t, dir, onDisk)
	appendTo(t, s, "wrk/a", "s", 3)
	free.Store(0)
	if err := s.Close(); err != nil {
		t.Errorf("close on a full disk: %v", err)
	}
	if tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst")); err != nil || len(tables) > 0 {
		t.Errorf("closing on a full disk made %q, %v", tables, err)
	}
	if _, err := os.Stat(s.ballast()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("closing on a full disk kept the ballast: %v", err)
	}
	if err := s.db.Close(); err != nil { // left to the end of the process
		t.Fatal(err)
	}
	if _, err := Open(ctx, Options{Dir: dir, FreeSpace: func(string) (uint64, error) { return flushReserve - 1, nil }}); !errors.Is(err, persistence.ErrFull) {
		t.Errorf("opening on a full disk: %v", err)
	}
	free.Store(1 << 30)
	if head, err := openIn(t, dir, onDisk).Head(ctx, "wrk/a"); err != nil || head != 3 {
		t.Errorf("with room again the stream ends at %d, %v", head, err)
	}
}
