//go:build unix

package plainhttp

import (
	"errors"
	"syscall"
)

// open says whether a connection that has waited can be used: the server has neither closed it nor said anything.
func (c *conn) open() bool {
	if c.raw == nil {
		return true
	}
	c.quiet = false
	err := c.raw.Read(c.look)
	return err == nil && c.quiet
}

// lookInto reads without waiting, and waits for nothing.
func (c *conn) lookInto(fd uintptr) bool {
	var one [1]byte
	_, err := syscall.Read(int(fd), one[:])
	c.quiet = errors.Is(err, syscall.EAGAIN)
	return true
}
