package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/troupe-dev/troupe/tools"
)

// bwrap runs commands in namespaces that bubblewrap sets up.
type bwrap struct {
	path   string // of the program
	o      Options
	tools  toolchains
	system []mount
	flags  []string // the options that do not depend on the command
	masks  *masks
	guard  *guard // nil: this program cannot be its own guard
}

const bwrapHint = "install bubblewrap, e.g. `apt-get install bubblewrap`; its version must be 0.7 or later"

const namespaceHint = "bwrap must be allowed to make user namespaces: " +
	"`sysctl -w kernel.unprivileged_userns_clone=1` on older Debian, an AppArmor profile for bwrap or " +
	"`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu 24.04 and later, " +
	"`--security-opt seccomp=unconfined` in a container"

func newBwrap(ctx context.Context, o Options) (tools.Sandbox, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, &Unavailable{Bwrap, "the program bwrap is not on PATH", bwrapHint}
	}
	ownHandles() // before anything is started that may hand them on
	var g *guard
	if o.Reexec {
		g = &guard{mark: o.CacheDir}
		if err := g.start(); err != nil {
			return nil, err
		}
	}
	help := exec.CommandContext(ctx, path, "--help")
	help.Env = []string{}
	text, err := help.CombinedOutput()
	if err != nil {
		return nil, &Unavailable{Bwrap, fmt.Sprintf("%s --help: %v", path, err), bwrapHint}
	}
	for _, need := range []string{"--size", "--perms", "--json-status-fd", "--cap-drop", "--remount-ro"} {
		if !strings.Contains(string(text), need+" ") {
			return nil, &Unavailable{Bwrap, path + " is too old: it has no " + need, bwrapHint}
		}
	}
	if err := o.resolve(); err != nil {
		return nil, err
	}
	b := &bwrap{path: path, o: o, tools: findToolchains(), masks: newMasks(&o), guard: g}
	b.system = systemMounts(&b.o, &b.tools)
	b.flags = []string{
		"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox",
	}
	if strings.Contains(string(text), "--disable-userns ") {
		b.flags = append(b.flags, "--disable-userns")
	}
	if err := prove(ctx, b, &b.o, Bwrap, true, namespaceHint); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bwrap) Name() string { return "bwrap" }

func (b *bwrap) describe() string { return "own files, processes, /tmp and loopback network" }

func (b *bwrap) options() *Options { return &b.o }

func (b *bwrap) Confines() bool { return true }

func (b *bwrap) Run(ctx context.Context, c tools.Command) (tools.Exit, error) {
	if err := ctx.Err(); err != nil {
		return tools.Exit{}, err
	}
	if err := checkWorkspace(c.Workspace); err != nil {
		return tools.Exit{}, err
	}
	home, err := b.o.home(c.Workspace)
	if err != nil {
		return tools.Exit{}, err
	}
	release, err := b.masks.take(c.Workspace)
	if err != nil {
		return tools.Exit{}, err
	}
	defer release()
	options, err := sealed(b.arguments(c, home))
	if err != nil {
		return tools.Exit{}, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		options.Close()
		return tools.Exit{}, fmt.Errorf("open a pipe for the status: %w", err)
	}
	defer r.Close()
	run := &bwrapRun{known: make(chan struct{})}
	status := make(chan struct{})
	g := b.o.group()
	argv := append([]string{b.path, "--args", "3", "--"}, limited(c.Argv, b.o.Limits, true, g)...)
	if b.guard != nil {
		one := &ward{g: b.guard, argv: argv, options: options, status: w, group: g.entrance(), ended: status}
		run.guarded, run.outer = true, one.end
		run.job = job{p: one}
	} else {
		cmd := exec.Command(argv[0], argv[1:]...)
		// Empty, not cleared by bwrap: what bwrap itself is started with stays readable in its
		// /proc/1/environ. The command's own variables come by the sealed options, so that other
		// users of the machine do not see them in the list of processes.
		cmd.Env = []string{}
		cmd.Dir = "/"
		cmd.ExtraFiles = withEntrances([]*os.File{nil, nil, nil, options, w}, g.entrance())[3:]
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL} // no Ctrl-C of ours
		run.outer = func() { _ = cmd.Process.Kill() }
		run.job = job{p: newChild(cmd)}
	}
	run.job.group, run.job.limits = g, b.o.Limits
	run.job.out, run.job.max, run.job.kill, run.job.gone = c.Output, c.MaxOutput, run.kill, run.gone
	run.job.watch = func(stop <-chan struct{}, exceeded func(string)) {
		watchSpace(run.pid, b.o.Limits, stop, exceeded)
	}
	go func() {
		defer close(status)
		run.readStatus(r)
	}()
	start := time.Now()
	err = run.job.run(ctx, options, w)
	w.Close() // closed already unless it could not start
	options.Close()
	<-status
	return run.exit(time.Since(start), err)
}

// arguments are bwrap's for one command.
func (b *bwrap) arguments(c tools.Command, home string) []string {
	args := append([]string{"--json-status-fd", "4"}, b.flags...)
	if !c.Network {
		args = append(args, "--unshare-net")
	}
	args = append(args, arguments(commandMounts(&b.o, b.system, c.Workspace, home, c.Temp, c.ReadOnly), b.o.Limits.Scratch)...)
	temp := c.Temp
	if temp == "" {
		temp = "/tmp"
	}
	for _, kv := range environment(c.Env, home, temp, b.tools.confined(c.Network)) {
		name, value, _ := strings.Cut(kv, "=")
		args = append(args, "--setenv", name, value)
	}
	dir := c.Dir
	if dir == "" {
		dir = c.Workspace
	}
	return append(args, "--chdir", dir)
}

// sealed writes options into a file in memory that bwrap reads.
func sealed(args []string) (*os.File, error) {
	f, err := inMemory("options", strings.Join(args, "\x00")+"\x00")
	if err != nil {
		return nil, fmt.Errorf("write the sandbox's options: %w", err)
	}
	return f, nil
}
