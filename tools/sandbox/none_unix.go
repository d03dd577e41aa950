//go:build unix

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/troupe-dev/troupe/tools"
)

// none runs commands with this process's own rights. It owns them all the same: they end with
// the call, all of them where there is a helper.
type none struct {
	o     Options
	tools toolchains
}

func newNone(ctx context.Context, o Options) (tools.Sandbox, error) {
	n := &none{o: o, tools: findToolchains()}
	hide(o)
	ownHandles()
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	var out bytes.Buffer
	exit, err := n.Run(ctx, tools.Command{
		Argv: []string{"/bin/sh", "-c", "echo held"}, Workspace: os.TempDir(), Output: &out, MaxOutput: 64 << 10,
	})
	if err == nil && (exit.Code != 0 || out.String() != "held\n") {
		err = fmt.Errorf("the probe run ended with exit code %d: %s", exit.Code, out.String())
	}
	if err != nil {
		return nil, &Unavailable{None, err.Error(), "/bin/sh must work, and main must call sandbox.Main first where Options.Reexec is set"}
	}
	return n, nil
}

func (n *none) Name() string { return "none" }

func (n *none) options() *Options { return &n.o }

func (n *none) Confines() bool { return false }

func (n *none) Run(ctx context.Context, c tools.Command) (tools.Exit, error) {
	if err := ctx.Err(); err != nil {
		return tools.Exit{}, err
	}
	home, err := n.o.home(c.Workspace)
	if err != nil {
		return tools.Exit{}, err
	}
	temp := c.Temp
	if temp == "" {
		temp = os.TempDir()
	}
	env := environment(c.Env, home, temp, n.tools.unconfined())
	dir := c.Dir
	if dir == "" {
		dir = c.Workspace
	}
	g := n.o.group()
	argv := limited(c.Argv, n.o.Limits, false, g)
	if n.o.Reexec && hasHelper {
		return n.runBelowHelper(ctx, c, argv, dir, env, g)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = dyingWithUs(&syscall.SysProcAttr{Setsid: true})
	cmd.ExtraFiles = withEntrances([]*os.File{nil, nil, nil}, g.entrance())[3:]
	j := &job{p: newChild(cmd), out: c.Output, max: c.MaxOutput, gone: func() {}, group: g, limits: n.o.Limits}
	j.kill = func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	j.watch = func(stop <-chan struct{}, exceeded func(string)) {
		watchTree(func() int { return cmd.Process.Pid }, n.o.Limits, stop, exceeded)
	}
	start := time.Now()
	err = j.run(ctx)
	return groupExit(j, cmd.ProcessState, time.Since(start), err)
}

// groupExit says how a command without a helper ended.
func groupExit(j *job, state *os.ProcessState, took time.Duration, err error) (tools.Exit, error) {
	e := tools.Exit{Limit: j.exceeded(), Bounds: j.bounds(), Duration: took}
	if state == nil {
		return e, fmt.Errorf("start the command: %w", errors.Join(err, errAborted))
	}
	e.Code = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Code, e.Signal = 128+int(ws.Signal()), signalName(ws.Signal())
	}
	return e, err
}
