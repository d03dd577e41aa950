package main

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerPID is the process at the other end of a connection on a unix socket, 0 when that is not known.
func peerPID(c net.Conn) int {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}
