//go:build unix

package attacks

import "golang.org/x/sys/unix"

// makeSpecial makes a FIFO or the zero device.
func makeSpecial(kind, name string) error {
	if kind == "fifo" {
		return unix.Mkfifo(name, 0o644)
	}
	return makeDevice(name)
}
