package main

import "golang.org/x/sys/unix"

// forgetTyped drops what was typed on a terminal and not read.
func forgetTyped(fd uintptr) {
	const input = 1                                             // FREAD
	_ = unix.IoctlSetPointerInt(int(fd), unix.TIOCFLUSH, input) // of no terminal: there is nothing to drop
}
