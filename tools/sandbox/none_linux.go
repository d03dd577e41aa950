package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/tools"
)

const hasHelper = true

// dyingWithUs has the kernel end a process with us.
func dyingWithUs(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	a.Pdeathsig = syscall.SIGKILL
	return a
}

func signalName(s syscall.Signal) string { return unix.SignalName(s) }

// helped follows one command below a helper.
type helped struct {
	job     job
	cmd     *exec.Cmd
	control *os.File // closing it ends the command
	end     sync.Once

	mu   sync.Mutex
	seen helperStatus
	late *time.Timer // ends a helper that does not
}

// runBelowHelper runs this program again as the helper of one command.
func (n *none) runBelowHelper(ctx context.Context, c tools.Command, argv []string, dir string, env []string, g *group) (tools.Exit, error) {
	cmd := exec.Command("/proc/self/exe", append([]string{helperArg}, argv...)...)
	cmd.Dir, cmd.Env = dir, env
	return runHelped(ctx, c, n.o.Limits, g, cmd)
}

// runHelped runs a helper; its files are its own to close.
func runHelped(ctx context.Context, c tools.Command, l Limits, g *group, cmd *exec.Cmd, files ...*os.File) (tools.Exit, error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	controlR, controlW, err := os.Pipe()
	if err != nil {
		g.remove()
		return tools.Exit{}, fmt.Errorf("open a pipe to the helper: %w", err)
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		g.remove()
		controlR.Close()
		controlW.Close()
		return tools.Exit{}, fmt.Errorf("open a pipe from the helper: %w", err)
	}
	defer statusR.Close()
	cmd.ExtraFiles = withEntrances(append([]*os.File{nil, nil, nil, controlR, statusW}, files...), g.entrance())[3:]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, no Ctrl-C
	h := &helped{cmd: cmd, control: controlW}
	h.job = job{p: newChild(cmd), out: c.Output, max: c.MaxOutput, kill: h.kill, gone: h.gone, group: g, limits: l}
	h.job.watch = func(stop <-chan struct{}, exceeded func(string)) {
		watchTree(func() int { return cmd.Process.Pid }, l, stop, exceeded)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		h.readStatus(statusR)
	}()
	start := time.Now()
	err = h.job.run(ctx, controlR, statusW)
	controlR.Close()
	statusW.Close()
	h.end.Do(func() { controlW.Close() })
	<-read
	return h.exit(time.Since(start), err)
}

func (h *helped) readStatus(f io.Reader) {
	for lines := bufio.NewScanner(f); lines.Scan(); {
		h.mu.Lock()
		_ = json.Unmarshal(lines.Bytes(), &h.seen) // later lines add to earlier ones
		h.mu.Unlock()
	}
}

// kill asks the helper to end everything, and ends the helper when it does not.
func (h *helped) kill() {
	h.end.Do(func() {
		h.control.Close()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.seen.Child > 0 && h.seen.Code == nil { // its group at one stroke, before the helper gets to run
			_ = unix.Kill(-h.seen.Child, unix.SIGKILL)
		}
		h.late = time.AfterFunc(goneWait, func() { _ = h.cmd.Process.Kill() })
	})
}

// gone ends the command's group if the helper, which a command could kill, left it behind.
func (h *helped) gone() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.late != nil {
		h.late.Stop()
	}
	if !h.cmd.ProcessState.Success() && h.seen.Child > 0 {
		_ = unix.Kill(-h.seen.Child, unix.SIGKILL)
	}
}

func (h *helped) exit(took time.Duration, err error) (tools.Exit, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := tools.Exit{Limit: h.job.exceeded(), Bounds: h.job.bounds(), Duration: took}
	switch {
	case err != nil:
		e.Code, e.Signal = 128+int(unix.SIGKILL), "SIGKILL"
		return e, err
	case h.seen.Error != "":
		return e, fmt.Errorf("run the helper: %w", errors.New(h.seen.Error))
	case h.seen.Code == nil:
		return e, fmt.Errorf("run the helper: %w (%s)", errAborted, h.cmd.ProcessState)
	}
	e.Code, e.Signal = *h.seen.Code, h.seen.Signal
	return e, nil
}
