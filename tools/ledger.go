package tools

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Ledger is what an executor remembers of calls that must not run twice, apart from whoever gave them to it: whether a
// call has started, and what it came to. Each attempt of a call is remembered by itself. It is safe for concurrent use.
type Ledger interface {
	// Begin notes that a call starts. It comes before the effect.
	Begin(execID string, attempt uint32) error
	// End notes what a call came to, before anybody is told. The reply may be kept: it is not written to any more.
	End(attempt uint32, done *messages.ToolReply) error
	// Look tells what is known of a call; the reply is nil unless it has Ended.
	Look(execID string, attempt uint32) (Seen, *messages.ToolReply, error)
}

// Seen is how much a ledger knows of a call.
type Seen int

// What a ledger may know.
const (
	NeverSeen Seen = iota // it was never given out here
	Started               // it began, and nobody knows how it ended
	Ended                 // its result is known
)

const (
	// segment is the size from which on a FileLedger begins its other file, in bytes.
	segment = 8 << 20
	// keptLedgers is how many files of earlier processes are kept.
	keptLedgers = 32
	// ledgerHead is the length of an entry and its checksum.
	ledgerHead = 8
)

// FileLedger keeps a ledger in two files of its own, which take turns: one is emptied when it is large and all results in it are
// settled. What earlier processes left in the folder is read, too. Entries survive the death of the process and no
// power cut: nothing waits for the disk.
type FileLedger struct {
	dir, name string
	now       func() time.Time

	mu    sync.Mutex
	files [2]ledgerFile
	at    int                        // which of the files is written
	open  map[attemptID]*ledgerEntry // of this process, not settled
	old   map[attemptID]*messages.LedgerEntry
	known sync.Once // old was read
	left  []string  // files of earlier processes
}

type attemptID struct {
	exec    string
	attempt uint32
}

type ledgerFile struct {
	f    *os.File // nil: not made yet
	size int64
	open int // entries that are not settled
}

type ledgerEntry struct {
	done *messages.ToolReply // nil: it runs
	file int
}

// OpenLedger readies the ledger of this process in a folder, which is made with the first entry. The caller ends it with
// Close.
func OpenLedger(dir string, now func() time.Time) (*FileLedger, error) {
	l := &FileLedger{dir: dir, name: messages.NewID("led_"), now: now, open: make(map[attemptID]*ledgerEntry)}
	all, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	for _, e := range all { // in order of their making
		l.left = append(l.left, filepath.Join(dir, e.Name()))
	}
	for len(l.left) > keptLedgers {
		if err := os.Remove(l.left[0]); err != nil {
			return nil, fmt.Errorf("remove an old ledger: %w", err)
		}
		l.left = l.left[1:]
	}
	return l, nil
}

// Begin implements Ledger.
func (l *FileLedger) Begin(execID string, attempt uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(&messages.LedgerEntry{ExecId: execID, Attempt: attempt}); err != nil {
		return err
	}
	l.open[attemptID{execID, attempt}] = &ledgerEntry{file: l.at}
	l.files[l.at].open++
	return nil
}

// End implements Ledger. An attempt that never began here, or is settled, is passed over: nobody would read it.
func (l *FileLedger) End(attempt uint32, done *messages.ToolReply) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.open[attemptID{done.GetExecId(), attempt}]
	if e == nil {
		return nil
	}
	if err := l.write(&messages.LedgerEntry{ExecId: done.GetExecId(), Attempt: attempt, Done: done}); err != nil {
		return err
	}
	l.files[e.file].open--
	e.done, e.file = done, l.at
	l.files[l.at].open++
	return nil
}

// Settle forgets a call whose result is kept elsewhere by now.
func (l *FileLedger) Settle(execID string, attempt uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := attemptID{execID, attempt}
	if e := l.open[id]; e != nil {
		l.files[e.file].open--
		delete(l.open, id)
	}
}

// Look implements Ledger.
func (l *FileLedger) Look(execID string, attempt uint32) (Seen, *messages.ToolReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := attemptID{execID, attempt}
	if e := l.open[id]; e != nil {
		return seenAs(e.done)
	}
	var err error
	l.known.Do(func() {
		l.old = make(map[attemptID]*messages.LedgerEntry)
		for _, path := range l.left {
			err = errors.Join(err, l.read(path))
		}
	})
	if err != nil {
		return NeverSeen, nil, fmt.Errorf("read ledger: %w", err)
	}
	if e := l.old[id]; e != nil {
		return seenAs(e.GetDone())
	}
	return NeverSeen, nil, nil
}

func seenAs(done *messages.ToolReply) (Seen, *messages.ToolReply, error) {
	if done == nil {
		return Started, nil, nil
	}
	return Ended, done, nil
}

// Close ends the ledger. Its files go, unless they hold what is not settled.
func (l *FileLedger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for i := range l.files {
		f := &l.files[i]
		if f.f == nil {
			continue
		}
		errs = append(errs, f.f.Close())
		if len(l.open) == 0 {
			errs = append(errs, os.Remove(f.f.Name()))
		}
		f.f = nil
	}
	return errors.Join(errs...)
}

// write appends one entry. The file that is due is opened, or emptied, first.
func (l *FileLedger) write(e *messages.LedgerEntry) error {
	e.AtUnixMs = l.now().UnixMilli()
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, ledgerHead, 256), e)
	if err != nil {
		return fmt.Errorf("encode ledger entry of %s: %w", e.GetExecId(), err)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-ledgerHead))
	binary.LittleEndian.PutUint32(b[4:], crc32.ChecksumIEEE(b[ledgerHead:]))
	f, err := l.room(int64(len(b)))
	if err == nil {
		_, err = f.f.Write(b)
		f.size += int64(len(b))
	}
	if err != nil {
		return fmt.Errorf("write ledger entry of %s: %w", e.GetExecId(), err)
	}
	return nil
}

// empty forgets what is in a file, all of which is settled.
func (f *ledgerFile) empty() error {
	if f.f != nil {
		if err := f.f.Truncate(0); err != nil {
			return err
		}
	}
	f.size = 0
	return nil
}

// room is the file for an entry of n bytes.
func (l *FileLedger) room(n int64) (*ledgerFile, error) {
	if f, other := &l.files[l.at], &l.files[1-l.at]; f.size+n > segment {
		switch {
		case other.open == 0:
			if err := other.empty(); err != nil {
				return nil, err
			}
			l.at = 1 - l.at
		case f.open == 0: // what is open in the other one may stay so for ever
			if err := f.empty(); err != nil {
				return nil, err
			}
		case f.size+n > 2*segment:
			return nil, errors.New("the ledger is full")
		}
	}
	f := &l.files[l.at]
	if f.f != nil {
		return f, nil
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	made, err := os.OpenFile(filepath.Join(l.dir, fmt.Sprint(l.name, ".", l.at)), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	f.f = made
	return f, nil
}

// read takes what an earlier process noted. What follows a damaged entry is not believed.
func (l *FileLedger) read(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for {
		e, rest := nextEntry(b)
		if e == nil {
			return nil
		}
		b = rest
		id := attemptID{e.GetExecId(), e.GetAttempt()}
		if l.old[id].GetDone() == nil {
			l.old[id] = e
		}
	}
}

// nextEntry takes the first entry off the front; nil when there is none that is whole.
func nextEntry(b []byte) (*messages.LedgerEntry, []byte) {
	if len(b) < ledgerHead {
		return nil, nil
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if n > uint64(len(b)-ledgerHead) { // cut off while it was written
		return nil, nil
	}
	body, e := b[ledgerHead:ledgerHead+n], &messages.LedgerEntry{}
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(b[4:]) || proto.Unmarshal(body, e) != nil {
		return nil, nil
	}
	return e, b[ledgerHead+n:]
}
