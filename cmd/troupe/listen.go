package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// listen takes an address; source says where it was written.
func listen(ctx context.Context, source, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	e := &exitError{code: exitIO, what: fmt.Sprintf("%s %s: %v", source, address, err), err: err}
	if errors.Is(err, syscall.EADDRINUSE) {
		_, port, _ := net.SplitHostPort(address)
		e.what = fmt.Sprintf("%s %s: port %s is taken", source, address, port)
		e.hint = "end the process that listens there, or take a free port with port 0"
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			if pid := portHolder(uint16(n)); pid != 0 {
				e.what += fmt.Sprintf(" by process %d", pid)
			}
		}
	}
	return nil, e
}
