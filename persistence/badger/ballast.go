package badger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func (s *Store) ballast() string { return filepath.Join(s.opts.Dir, "db.ballast") }

// releaseBallast gives the room of the ballast back to the disk.
func (s *Store) releaseBallast() error {
	if err := os.Remove(s.ballast()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release ballast: %w", err)
	}
	return nil
}

// makeBallast takes room on the disk that opening gives back first: on a full disk the database
// cannot even be opened to be read.
func makeBallast(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("make ballast: %w", err)
	}
	err = allocate(f, size)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(path) // part of it would be no help
		return fmt.Errorf("make ballast: %w", err)
	}
	return nil
}

// fill writes zeros, where the system cannot allocate without writing.
func fill(f *os.File, size int64) error {
	zeros := make([]byte, 1<<20)
	for size > 0 {
		n, err := f.Write(zeros[:min(size, int64(len(zeros)))])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}
