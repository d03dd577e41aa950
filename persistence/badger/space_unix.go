//go:build linux || darwin || freebsd

package badger

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// freeSpace is what an ordinary user may still write to a folder's file system, in bytes.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	free := int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // the types differ between systems
	return uint64(max(free, 0)), nil           // below zero where the system keeps a reserve
}
