//go:build unix && !aix && !solaris

package badger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dirLock is the lock on a data directory. It ends with the process, however that ends; the pid
// in the file is for people.
type dirLock struct {
	file *os.File
}

// takeLock locks a directory or says who holds it.
func takeLock(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "db.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // only read
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, locked(dir, readPid(path))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	pid := fmt.Appendf(nil, "%d\n", os.Getpid())
	_, err = f.WriteAt(pid, 0)
	if err == nil {
		err = f.Truncate(int64(len(pid)))
	}
	if err != nil {
		_ = f.Close() // gives the lock back
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &dirLock{file: f}, nil
}

// release gives the directory back. The file stays: removing it would let two processes lock
// two files of that name.
func (l *dirLock) release() error {
	if err := l.file.Truncate(0); err != nil {
		_ = l.file.Close() // gives the lock back
		return fmt.Errorf("clear lock: %w", err)
	}
	return l.file.Close()
}
