//go:build unix && !aix && !solaris

package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockFile locks a file for this process, however that ends; false: another one has it.
func lockFile(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// lockShared locks a file beside others that do so, too; false: lockFile has it.
func lockShared(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// askToEnd asks a process to end in its own way.
func askToEnd(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
