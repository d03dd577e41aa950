package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/persistence"
)

// watermark is the count of acknowledged commits beside the database. The database's recovery
// stops at the first damaged entry of its log and drops what follows in silence; a count kept
// elsewhere tells. It is written after the commit is durable, so it may lag and never leads.
type watermark struct {
	slots  *slots
	start  uint64           // commits of the database when it was opened
	hashed bool             // names are kept as hashes
	entry  [tableWidth]byte // under way to the table; the syncer's

	dirty chan struct{} // capacity 1: written since the last sync
	stop  chan struct{}
	ended chan struct{}
	once  sync.Once
	fail  func(error)
}

// Two slots are written in turn, so that a torn write leaves the one before.
const (
	slotSize  = 12
	slotSpace = 512
	fileSize  = tableAt + tablePlaces*tableWidth // with its blocks behind it: a write must not find the disk full
)

// syncEvery is how far a watermark on the disk may lag behind one that was written.
const syncEvery = 250 * time.Millisecond

// openWatermark reads the count; 0 when there is no file yet. A file that does not read refuses,
// unless the loss is accepted.
func openWatermark(path string, acceptLoss bool) (*watermark, uint64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open watermark: %w", err)
	}
	count, err := readWatermark(f)
	if err != nil && acceptLoss {
		err = nil
	}
	var s *slots
	if err == nil {
		if err = extend(f); err == nil {
			s, err = openSlots(f)
		}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, 0, fmt.Errorf("open watermark %s: %w", path, err)
	}
	w := &watermark{slots: s, dirty: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	return w, count, nil
}

// extend fills a new or shorter file up to its size.
func extend(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() >= fileSize {
		return nil
	}
	if _, err := f.WriteAt(make([]byte, fileSize-info.Size()), info.Size()); err != nil {
		return err
	}
	return f.Sync()
}

func readWatermark(f io.ReaderAt) (uint64, error) {
	var count uint64
	var valid, blank int
	for slot := range int64(2) {
		b := make([]byte, slotSize)
		n, err := f.ReadAt(b, slot*slotSpace)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("%w: %w", persistence.ErrUnavailable, err)
		}
		value, err := unseal(nil, b)
		switch {
		case n < slotSize || [slotSize]byte(b) == [slotSize]byte{}:
			blank++
		case err == nil:
			valid++
			count = max(count, binary.BigEndian.Uint64(value))
		}
	}
	if valid == 0 && blank < 2 {
		return 0, fmt.Errorf("no slot reads: %w", persistence.ErrCorrupt)
	}
	return count, nil
}

// run starts the goroutine that syncs; close ends it.
func (w *watermark) run(fail func(error)) {
	w.fail = fail
	go w.syncAll()
}

// note writes the count without waiting for the disk. Only the syncer calls it.
func (w *watermark) note(count uint64) {
	if err := w.write(count); err != nil {
		if w.fail != nil {
			w.fail(err)
		}
		return
	}
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

func (w *watermark) write(count uint64) error {
	b := make([]byte, 0, slotSize)
	b = seal(nil, binary.BigEndian.AppendUint64(b, count))
	if err := w.slots.put(int(count%2)*slotSpace, b); err != nil {
		return fmt.Errorf("write watermark: %w", err)
	}
	return nil
}

// reset makes a lower count valid, and forgets whose ends were higher.
func (w *watermark) reset(count uint64) error {
	for n := range tablePlaces {
		if err := w.slots.put(tableAt+n*tableWidth, make([]byte, tableWidth)); err != nil {
			return fmt.Errorf("reset watermark: %w", err)
		}
	}
	if err := w.write(count); err != nil {
		return err
	}
	if err := w.slots.put(int((count+1)%2)*slotSpace, make([]byte, slotSize)); err != nil {
		return fmt.Errorf("reset watermark: %w", err)
	}
	return w.sync()
}

func (w *watermark) sync() error {
	if err := w.slots.sync(); err != nil {
		return fmt.Errorf("sync watermark: %w", err)
	}
	return nil
}

// syncAll syncs syncEvery after the first write since the last sync.
func (w *watermark) syncAll() {
	defer close(w.ended)
	timer := time.NewTimer(syncEvery)
	timer.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-w.dirty:
		}
		timer.Reset(syncEvery)
		select {
		case <-w.stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		if err := w.sync(); err != nil {
			w.fail(err)
			return // a failed sync is not tried again
		}
	}
}

// close ends the goroutine and syncs what it had left.
func (w *watermark) close() (err error) {
	w.once.Do(func() {
		close(w.stop)
		<-w.ended
		err = w.sync()
		if closeErr := w.slots.close(); err == nil && closeErr != nil {
			err = fmt.Errorf("close watermark: %w", closeErr)
		}
	})
	return err
}
