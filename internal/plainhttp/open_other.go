//go:build !unix

package plainhttp

import "time"

// open says whether a connection that has waited can be used. It cannot be looked at here without waiting: one
// that a server is unlikely to have closed yet is taken for open, and the request is tried again if it was not.
func (c *conn) open() bool { return time.Since(c.since) < 2*time.Second }

// lookInto is for systems where a connection can be looked at.
func (c *conn) lookInto(uintptr) bool { return true }
