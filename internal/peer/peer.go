// Package peer tells who is at the other end of a local socket. Client and gateway, which know nothing of
// each other, both ask: a file's mode alone does not keep another user's process away everywhere.
package peer

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// errUnknown means that the system does not tell.
var errUnknown = errors.New("the system does not tell whose a connection is")

// Check refuses a connection whose other end belongs to another user, with fs.ErrPermission. Where the system
// does not tell, the modes of the socket and its folder decide alone, and it refuses nobody.
func Check(conn net.Conn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("the connection is %T: %w", conn, fs.ErrInvalid)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("look at the peer: %w", err)
	}
	var uid int
	var inner error
	err = raw.Control(func(fd uintptr) { uid, inner = user(int(fd)) })
	switch {
	case errors.Is(inner, errUnknown):
		return nil
	case err != nil || inner != nil:
		return fmt.Errorf("look at the peer: %w", errors.Join(err, inner))
	case uid != os.Geteuid():
		return fmt.Errorf("the peer is user %d, not %d: %w", uid, os.Geteuid(), fs.ErrPermission)
	}
	return nil
}
