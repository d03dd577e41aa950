//go:build unix && !aix && !solaris

package badger

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// slots is the watermark's file, mapped: a write is a copy and outlives the process like one by
// a system call, but changes no inode, which would ride with every sync of the database.
type slots struct {
	file *os.File
	mem  []byte
}

func openSlots(f *os.File) (*slots, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, fileSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	return &slots{file: f, mem: mem}, nil
}

func (s *slots) put(at int, b []byte) error {
	copy(s.mem[at:], b)
	return nil
}

func (s *slots) sync() error { return unix.Msync(s.mem, unix.MS_SYNC) }

func (s *slots) close() error {
	err := unix.Munmap(s.mem)
	if closeErr := s.file.Close(); err == nil {
		err = closeErr
	}
	return err
}
