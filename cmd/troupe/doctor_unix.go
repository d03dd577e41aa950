//go:build linux || darwin

package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// freeSpace is what this user may still write to the file system of a folder, in bytes.
func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("ask for the free space of %s: %w", dir, err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // the types differ between systems
}
