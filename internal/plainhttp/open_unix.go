//go:build unix

package plainhttp

import (
	"errors"
	"net/http"
	"syscall"
)

// open says whether a connection that has waited can be used: the server has neither closed it nor said anything.
func (c *conn) open() bool {
	if c.raw == nil {
		return true
	}
	quiet := false
	err := c.raw.Read(func(fd uintptr) bool {
		quiet = silent(fd)
		return true
	})
	return err == nil && quiet
}

// silent reads without waiting: nothing may be there. What was there is lost, and with it the connection.
func silent(fd uintptr) bool {
	var one [1]byte
	_, err := syscall.Read(int(fd), one[:])
	return errors.Is(err, syscall.EAGAIN)
}

// ask looks whether a connection is open, sends a request and waits until something of the answer is there, in one wait of the runtime's
// poller: what arrives after it was begun ends it. So who waits reads only when there is something to read, and holds no buffer until then.
func (c *conn) ask(head *[]byte, r *http.Request) error {
	if c.raw == nil {
		return c.send(head, r)
	}
	c.asking.r, c.asking.head, c.asking.err = r, head, nil
	err := c.raw.Read(c.asking.step)
	if c.asking.r != nil { // nothing was sent
		c.asking.r, c.asking.head = nil, nil
		return err
	}
	c.asking.head = nil
	return c.asking.err // that of the wait shows again when the answer is read
}

// step is asked before each wait; false: one waits.
func (c *conn) step(fd uintptr) bool {
	a := &c.asking
	if a.r == nil {
		return true
	}
	r := a.r
	a.r = nil
	if c.used && !silent(fd) {
		a.err = errStale
		return true
	}
	a.err = c.send(a.head, r)
	return !c.used || a.err != nil // what a new connection has brought along is not waited for
}
