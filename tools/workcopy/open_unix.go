//go:build unix

package workcopy

import "syscall"

// openFlags: what has become a pipe holds nobody up.
const openFlags = syscall.O_NONBLOCK
