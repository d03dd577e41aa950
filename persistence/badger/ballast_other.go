//go:build !linux

package badger

import "os"

// allocate gives a file real blocks.
func allocate(f *os.File, size int64) error { return fill(f, size) }
