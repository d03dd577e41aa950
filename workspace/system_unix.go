//go:build unix

package workspace

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFlags: a FIFO without a peer must not hold the call (W3). Close-on-exec is always set by
// package os.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

// hostSlashes: a backslash is an ordinary character here.
func hostSlashes(path string) string { return path }

// hostName: every name without a slash is a name here.
func hostName(string) bool { return true }

// links counts the names of an opened file.
func links(_ *os.File, info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // its width differs between systems
	}
	return 0
}

// syncDir makes a rename in dir durable.
func syncDir(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// othersMayWrite tells that a file could have been changed by other users.
func othersMayWrite(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }

// renameBetween renames from one directory handle to another. The names are single components:
// nothing is followed.
func renameBetween(_ *os.Root, src, dst *place) error {
	from, err := src.dir.Open(".")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := dst.dir.Open(".")
	if err != nil {
		return err
	}
	defer to.Close()
	return unix.Renameat(int(from.Fd()), src.base, int(to.Fd()), dst.base)
}
