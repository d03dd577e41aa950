package client

import (
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// checkPeer refuses a server of another user (LOCAL_PEERCRED), who could have put a socket where ours was.
func checkPeer(conn net.Conn) error {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("the connection is %T: %w", conn, fs.ErrInvalid)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("look at the peer: %w", err)
	}
	var peer *unix.Xucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		peer, inner = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	})
	switch {
	case err != nil:
		return fmt.Errorf("look at the peer: %w", err)
	case inner != nil:
		return fmt.Errorf("look at the peer: %w", inner)
	case int(peer.Uid) != os.Geteuid():
		return fmt.Errorf("the peer is user %d, not %d: %w", peer.Uid, os.Geteuid(), fs.ErrPermission)
	}
	return nil
}
