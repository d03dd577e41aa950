package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/tools"
)

// landlock runs commands that shut themselves in: this program, run again, takes its rights away
// and becomes the command.
type landlock struct {
	o      Options
	tools  toolchains
	system []mount
	masks  *masks
	spaces bool // namespaces can be made here
	why    error
}

// The versions of the kernel's interface that are needed: before abi 3, files that may not be
// written could be truncated; before abi 6, signals reached every process of the same user.
const (
	leastABI     = 3
	leastBareABI = 6
)

const landlockHint = "landlock needs Linux 6.2 or later with landlock among the security modules (`lsm=landlock,...`), " +
	"or Linux 6.12 or later where user namespaces may not be made; or install bubblewrap"

// plan is what the process that becomes the command is told. Its environment is the command's.
type plan struct {
	Argv    []string
	Dir     string
	View    []view
	Spaces  bool  // namespaces of its own
	Network bool  // it may use the network
	Scratch int64 // bytes of /tmp
}

// view is a mount for a plan.
type view struct{ Kind, Path string }

func newLandlock(ctx context.Context, o Options) (tools.Sandbox, error) {
	if !o.Reexec {
		return nil, &Unavailable{
			Landlock, "a process can only shut itself in, and this program did not say that its main calls sandbox.Main",
			"call sandbox.Main first thing in main and set Options.Reexec",
		}
	}
	if !hasFilter {
		return nil, &Unavailable{Landlock, "system calls are filtered on amd64 and arm64 alone", landlockHint}
	}
	abi := landlockABI()
	if abi < leastABI {
		return nil, &Unavailable{Landlock, fmt.Sprintf("the kernel's landlock has version %d, and %d is needed", abi, leastABI), landlockHint}
	}
	ownHandles()
	hide(o)
	if err := o.resolve(); err != nil {
		return nil, err
	}
	l := &landlock{o: o, tools: findToolchains(), masks: newMasks(&o)}
	l.system = systemMounts(&l.o, &l.tools)
	if !o.Bare {
		l.spaces = true
		if l.why = prove(ctx, l, &l.o, Landlock, true, landlockHint); l.why == nil {
			return l, nil
		}
	}
	l.spaces = false
	if abi < leastBareABI {
		err := fmt.Errorf("without namespaces version %d of landlock is needed, and the kernel has %d", leastBareABI, abi)
		return nil, &Unavailable{Landlock, errors.Join(err, l.why).Error(), landlockHint}
	}
	l.masks.aside = true
	if err := prove(ctx, l, &l.o, Landlock, false, landlockHint); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *landlock) Name() string { return "landlock" }

func (l *landlock) options() *Options { return &l.o }

func (l *landlock) Confines() bool { return true }

func (l *landlock) Run(ctx context.Context, c tools.Command) (tools.Exit, error) {
	if err := ctx.Err(); err != nil {
		return tools.Exit{}, err
	}
	if err := checkWorkspace(c.Workspace); err != nil {
		return tools.Exit{}, err
	}
	home, err := l.o.home(c.Workspace)
	if err != nil {
		return tools.Exit{}, err
	}
	temp, err := l.temp(&c, home)
	if err != nil {
		return tools.Exit{}, err
	}
	release, err := l.masks.take(c.Workspace)
	if err != nil {
		return tools.Exit{}, err
	}
	defer release()
	p := plan{
		Dir: c.Dir, Spaces: l.spaces, Network: c.Network, Scratch: l.o.Limits.Scratch,
	}
	if p.Dir == "" {
		p.Dir = c.Workspace
	}
	for _, m := range commandMounts(&l.o, l.system, c.Workspace, home, c.Temp, c.ReadOnly) {
		if m.kind == "mask" && !l.spaces && m.dst != filepath.Join(c.Workspace, troupeFolder) {
			return tools.Exit{}, fmt.Errorf("landlock cannot hide %s, which lies in a folder that the command may see: install bubblewrap, or work in a folder below", m.dst)
		}
		p.View = append(p.View, view{m.kind, m.dst})
	}
	g := l.o.group()
	p.Argv = limited(c.Argv, l.o.Limits, l.spaces, g)
	text, err := json.Marshal(p)
	if err != nil {
		g.remove()
		return tools.Exit{}, fmt.Errorf("write the command's plan: %w", err)
	}
	spec, err := inMemory("plan", string(text))
	if err != nil {
		g.remove()
		return tools.Exit{}, err
	}
	cmd := exec.Command("/proc/self/exe", confineArg, l.o.CacheDir)
	cmd.Dir, cmd.Env = "/", environment(c.Env, home, temp, l.tools.confined(c.Network))
	exit, err := runHelped(ctx, c, l.o.Limits, g, cmd, spec)
	if l.spaces && exit.Signal == "" && exit.Code > 128 && exit.Code < 128+32 { // as a shell tells it
		exit.Signal = unix.SignalName(unix.Signal(exit.Code - 128))
	}
	return exit, err
}

// temp is the folder for temporary files. /tmp is the machine's unless it can be mounted over.
func (l *landlock) temp(c *tools.Command, home string) (string, error) {
	switch {
	case c.Temp != "":
		return c.Temp, nil
	case l.spaces:
		return "/tmp", nil
	}
	dir := filepath.Join(home, ".tmp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create a folder for temporary files: %w", err)
	}
	return dir, nil
}

func (l *landlock) describe() string {
	if l.spaces {
		return "own processes, /tmp and loopback network"
	}
	return "without namespaces: no /tmp, no list of processes, and no sockets unless a command has the network"
}
