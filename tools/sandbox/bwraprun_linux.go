package sandbox

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/tools"
)

// Waits for what happens at once unless the machine is in trouble.
const (
	knowWait  = time.Second      // for bwrap to tell its child's pid before it is killed without it
	outerWait = 30 * time.Second // for bwrap to notice that its child was killed
	goneWait  = time.Minute      // for the kernel to end a whole process table, a bomb's on a busy machine
)

// bwrapRun follows one command. bwrap's child is the first process of a process table of its
// own: when it dies, the kernel ends everything in there, whatever its group or session.
type bwrapRun struct {
	job     job
	guarded bool
	outer   func()        // ends bwrap itself; below a guard, and what it may leave, too
	known   chan struct{} // closed when first is known, or never will be

	mu    sync.Mutex
	first int         // pid of bwrap's child as we see it; 0: unknown or gone
	pidfd int         // a handle on it that outlives the number; 0: none
	code  *int        // the command's exit code
	said  bwrapStatus // what the guard told
	late  *time.Timer // ends bwrap itself when it does not end with its child
}

// bwrapStatus is one line of status: bwrap writes the first two, the guard the others.
type bwrapStatus struct {
	Child int    `json:"child-pid,omitempty"`
	Code  *int   `json:"exit-code,omitempty"`
	Error string `json:"error,omitempty"` // why bwrap was not started
	Ended string `json:"ended,omitempty"` // how bwrap itself ended
}

// readStatus reads the lines that bwrap writes about the command.
func (r *bwrapRun) readStatus(f io.Reader) {
	var once sync.Once
	know := func() { once.Do(func() { close(r.known) }) }
	defer know()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s bwrapStatus
		if json.Unmarshal(lines.Bytes(), &s) != nil {
			continue
		}
		r.mu.Lock()
		if s.Code != nil {
			r.code = s.Code
		}
		if s.Error != "" || s.Ended != "" {
			r.said = s
		}
		if s.Child > 0 && r.first == 0 {
			r.first = s.Child
			if fd, err := unix.PidfdOpen(s.Child, 0); err == nil {
				r.pidfd = fd
			}
		}
		r.mu.Unlock()
		if s.Child > 0 {
			know()
		}
	}
}

func (r *bwrapRun) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// kill ends the command's process table, and bwrap if it has none yet. bwrap then ends by
// itself and reaps its child. Without a guard it waits for the child's pid: a bwrap killed between
// making its child and binding it to its own life would leave it behind.
func (r *bwrapRun) kill() {
	if r.guarded {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.first != 0 {
			r.signalFirst()
		}
		r.outer()
		return
	}
	wait := time.NewTimer(knowWait)
	defer wait.Stop()
	select {
	case <-r.known:
	case <-wait.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == 0 {
		r.outer()
		return
	}
	r.signalFirst()
	if r.late == nil {
		r.late = time.AfterFunc(outerWait, r.outer)
	}
}

// signalFirst kills the first process, and before it, at one stroke, its group: the kernel ends
// the rest of the table only when the first process gets to run, and a bomb leaves it waiting.
func (r *bwrapRun) signalFirst() {
	if r.pidfd == 0 {
		_ = unix.Kill(r.first, unix.SIGKILL)
		return
	}
	if group, err := unix.Getpgid(r.first); err == nil && group == r.first {
		_ = unix.Kill(-group, unix.SIGKILL)
	}
	_ = unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
}

// gone waits until the first process, and with it all others, has ended.
func (r *bwrapRun) gone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late != nil {
		r.late.Stop()
	}
	if r.pidfd != 0 {
		deadline := time.Now().Add(goneWait)
		for {
			left := time.Until(deadline).Milliseconds()
			fds := []unix.PollFd{{Fd: int32(r.pidfd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, int(max(0, left)))
			if n > 0 || left <= 0 || err != nil && err != unix.EINTR {
				break
			}
		}
		unix.Close(r.pidfd)
	}
	if r.first != 0 {
		// When bwrap ended before its child and this process is the first of a container, the
		// child became ours to reap.
		_, _ = unix.Wait4(r.first, nil, unix.WNOHANG, nil)
	}
	r.first, r.pidfd = 0, 0
}

// how says how bwrap itself ended.
func (r *bwrapRun) how() string {
	if c, ours := r.job.p.(*child); ours {
		return c.cmd.ProcessState.String()
	}
	return cmp.Or(r.said.Ended, "its guard was killed")
}

// exit says how the command ended; err is the job's.
func (r *bwrapRun) exit(took time.Duration, err error) (tools.Exit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := tools.Exit{Limit: r.job.exceeded(), Bounds: r.job.bounds(), Duration: took}
	switch {
	case err != nil || e.Limit != "":
		e.Code, e.Signal = 128+int(unix.SIGKILL), "SIGKILL"
		return e, err
	case r.said.Error != "":
		return e, fmt.Errorf("run bwrap: %w", errors.New(r.said.Error))
	case r.code == nil:
		return e, fmt.Errorf("run bwrap: %w (%s)", errAborted, r.how())
	}
	e.Code = *r.code
	if e.Code > 128 && e.Code < 128+32 { // bwrap, like a shell, adds 128 to the signal
		e.Signal = unix.SignalName(unix.Signal(e.Code - 128))
	}
	return e, nil
}
