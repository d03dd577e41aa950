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

// job is one running command, whatever back end runs it.
type job struct {
	cmd   *exec.Cmd
	out   io.Writer
	max   int64                                                   // bytes of output; 0: unlimited
	kill  func()                                                  // ends every process; safe from several goroutines, more than once
	gone  func()                                                  // returns when every process has ended, called after the first one has
	watch func(stop <-chan struct{}, exceeded func(limit string)) // looks after limits until stop; may be nil

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
	j.cmd.Stdout, j.cmd.Stderr = w, w
	started, ended := make(chan error, 1), make(chan struct{})
	go j.hold(started, ended)
	err = <-started
	w.Close()
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		return err
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		j.drain(r)
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if j.watch != nil {
			j.watch(ended, j.exceed)
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		j.kill()
		<-ended
	}
	j.kill() // what it left running
	j.gone()
	<-watched
	_ = r.SetReadDeadline(time.Now().Add(drainWait))
	<-drained
	return ctx.Err()
}

// hold starts the process and waits for it on one thread that does nothing else: the kernel
// sends the parent-death signal when the thread that forked ends, not the process.
func (j *job) hold(started chan<- error, ended chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := j.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = j.cmd.Wait() // its outcome is in ProcessState
	close(ended)
}

// exceed notes the first limit that was reached and ends the command.
func (j *job) exceed(limit string) {
	if j.limit.CompareAndSwap(nil, &limit) {
		j.kill()
	}
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
