package badger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/messages"
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
	tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if tables = slices.DeleteFunc(tables, saysFormat); err != nil || len(tables) > 0 {
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

// TestWhatWaitsForTheDiskIsBounded: a disk that hangs must not fill the memory, nor hold those who write.
func TestWhatWaitsForTheDiskIsBounded(t *testing.T) {
	ctx := context.Background()
	hang, hangs := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s, l := failing(t, func(txn *engine.Txn) error {
		once.Do(func() { close(hangs) })
		<-hang
		return txn.Commit()
	}, func(o *Options) { o.QueueBytes = 64 << 10 })
	answers := make(chan error, 1000)
	enqueue := func(seq uint64) {
		r := textRecord("wrk/a", seq)
		r.Body = make([]byte, 8<<10)
		s.Enqueue(func(_ persistence.Receipt, err error) { answers <- err }, persistence.Batch{
			Lease: l, Expect: seq, Session: "s", Records: []*messages.Record{r},
		})
	}
	enqueue(2)
	<-hangs
	if err := s.Room(); err != nil {
		t.Errorf("one append waits: %v", err)
	}
	for seq := range uint64(6) {
		enqueue(3 + seq)
	}
	if err := s.Room(); !errors.Is(err, persistence.ErrBusy) {
		t.Errorf("much waits: %v", err)
	}
	for seq := range uint64(30) {
		enqueue(9 + seq)
	}
	if n := s.waiting.Load(); n > 64<<10 {
		t.Errorf("%d bytes wait", n)
	}
	close(hang)
	taken, refused := 0, 0
	for range 37 {
		switch err := <-answers; {
		case err == nil:
			taken++
		case errors.Is(err, persistence.ErrBusy):
			refused++
		case errors.Is(err, persistence.ErrConflict): // behind one that was refused
		default:
			t.Errorf("answer: %v", err)
		}
	}
	if taken < 7 || refused == 0 {
		t.Errorf("%d were taken, %d refused", taken, refused)
	}
	if n := s.waiting.Load(); n != 0 {
		t.Errorf("%d bytes wait when nothing does", n)
	}
	appendTo(t, s, "wrk/b", "s", 1)
	if head, err := s.Head(ctx, "wrk/a"); err != nil || head != uint64(1+taken) || s.Room() != nil {
		t.Errorf("the stream ends at %d after %d appends, %v", head, taken, err)
	}
}
