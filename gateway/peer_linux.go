package gateway

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSocketPath is what fits into a sockaddr_un, in bytes, with its closing zero.
const maxSocketPath = 107

// checkPeer refuses a connection of another user (SO_PEERCRED): also where the mode of a socket does not.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("look at the peer: %w", err)
	}
	var peer *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		peer, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
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

func ownedByUs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
