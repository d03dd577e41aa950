package sandbox

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// hide keeps the environment of this process, where keys may be, from commands of the same
// user, which could otherwise read it below /proc. Root can still read it.
func hide(o Options) {
	if o.Reexec {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
}

// ownHandles marks files that this process inherited as its own: whoever started it may have
// left pipes and sockets open, which a command would otherwise inherit in turn. Go marks what
// it opens itself.
func ownHandles() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
		}
	}
}
