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
	if int64(st.Bavail) < 0 { // signed where the system keeps a reserve
		return 0, nil
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
