//go:build !linux && !darwin

package client

import "net"

// checkPeer knows nothing here: the folder's permissions decide who may put a socket there.
func checkPeer(net.Conn) error { return nil }
