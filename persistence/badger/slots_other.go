//go:build !unix || aix || solaris

package badger

import "os"

// slots is the watermark's file.
type slots struct {
	file *os.File
}

func openSlots(f *os.File) (*slots, error) { return &slots{file: f}, nil }

func (s *slots) put(at int, b []byte) error {
	_, err := s.file.WriteAt(b, int64(at))
	return err
}

func (s *slots) sync() error { return s.file.Sync() }

func (s *slots) close() error { return s.file.Close() }
