package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"
)

// drainWait bounds how long output is read after the last process that we know of has ended: a
// process that escaped may hold the pipe for ever.
const drainWait = 2 * time.Second

// probeWait bounds a probe run.
const probeWait = 10 * time.Second

// process is the one that a job runs: it has been started by us, or by somebody for us.
type process interface {
	start(out *os.File) error
	wait() // until it has ended; only after a start
}

// job is one running command, whatever back end runs it.
type job struct {
	p      process
	out    io.Writer
	limits Limits
	max    int64                                                   // bytes of output; 0: unlimited
	kill   func()                                                  // ends every process; safe from several goroutines, more than once
	gone   func()                                                  // returns when every process has ended, called after the first one has
	watch  func(stop <-chan struct{}, exceeded func(limit string)) // looks after limits until stop; may be nil

	group *group // the command's control group; nil: it has none

	limit atomic.Pointer[string] // the first limit that was exceeded
}

// run starts the command, feeds its output to out and waits until all has ended. The error is
// about starting, or ctx's; how the process ended is in j.cmd.ProcessState.
func (j *job) run(ctx context.Context, files ...*os.File) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("open a pipe for the output: %w", err)
	}
	defer r.Close()
	defer j.group.remove()
	err = j.p.start(w)
	j.group.joined()
	w.Close()
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.p.wait()
	}()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		j.drain(r)
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		switch {
		case j.group != nil:
			j.group.watch(j.limits, ended, j.exceed)
		case j.watch != nil:
			j.watch(ended, j.exceed)
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		j.end()
		<-ended
	}
	j.end() // what it left running
	j.gone()
	<-watched
	_ = r.SetReadDeadline(time.Now().Add(drainWait))
	<-drained
	return ctx.Err()
}

// child is a process of our own.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func newChild(cmd *exec.Cmd) *child { return &child{cmd: cmd, ended: make(chan struct{})} }

func (c *child) start(out *os.File) error {
	c.cmd.Stdout, c.cmd.Stderr = out, out
	started := make(chan error, 1)
	go c.hold(started)
	return <-started
}

// hold starts the process and waits for it on one thread that does nothing else: the kernel
// sends the parent-death signal when the thread that forked ends, not the process.
func (c *child) hold(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = c.cmd.Wait() // its outcome is in ProcessState
	close(c.ended)
}

func (c *child) wait() { <-c.ended }

// exceed notes the first limit that was reached and ends the command.
func (j *job) exceed(limit string) {
	if j.limit.CompareAndSwap(nil, &limit) {
		j.end()
	}
}

// end ends the command: what is in its group at one stroke, where it has one.
func (j *job) end() {
	j.group.kill()
	j.kill()
}

// bounds names what holds the limits of processes and memory.
func (j *job) bounds() string {
	switch {
	case j.group != nil:
		return "cgroup"
	case j.watch != nil && canWatch:
		return "watch"
	}
	return ""
}

func (j *job) exceeded() string {
	if l := j.limit.Load(); l != nil {
		return *l
	}
	return ""
}

// drain reads to the end whatever comes, so that no process blocks on a full pipe; what is
// beyond the limit is dropped.
func (j *job) drain(r io.Reader) {
	buf := make([]byte, 32<<10)
	var total int64
	for {
		n, err := r.Read(buf)
		keep := buf[:n]
		if j.max > 0 && total+int64(n) > j.max {
			keep = buf[:max(0, j.max-total)]
			j.exceed("output")
		}
		total += int64(n)
		if len(keep) > 0 {
			if _, werr := j.out.Write(keep); werr != nil {
				j.exceed("output")
			}
		}
		if err != nil {
			return
		}
	}
}

// errAborted tells that the back end ended without saying how the command did.
var errAborted = errors.New("the sandbox ended without a result")
