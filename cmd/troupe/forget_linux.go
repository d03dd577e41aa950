package main

import "golang.org/x/sys/unix"

// forgetTyped drops what was typed on a terminal and not read.
func forgetTyped(fd uintptr) { _ = unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH) } // of no terminal: there is nothing to drop
