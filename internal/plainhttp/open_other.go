//go:build !unix

package plainhttp

import (
	"net/http"
	"time"
)

// open says whether a connection that has waited can be used. It cannot be looked at here without waiting: one
// that a server is unlikely to have closed yet is taken for open, and the request is tried again if it was not.
func (c *conn) open() bool { return time.Since(c.since) < 2*time.Second }

// ask sends a request.
func (c *conn) ask(head *[]byte, r *http.Request) error {
	if c.used && !c.open() {
		return errStale
	}
	return c.send(head, r)
}

// step is for systems where a connection can be looked at.
func (c *conn) step(uintptr) bool { return true }
