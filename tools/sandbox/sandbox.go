// Package sandbox runs commands for tools.Sandbox: confined by bubblewrap (`bwrap`) or by the
// kernel's landlock and seccomp (`landlock`) or in a container of an image (`container`), or not
// confined but owned to the last process (`none`). A back end is taken only after a probe run has shown that it holds here.
//
// What bwrap gives: the workspace and a private home are the only folders on disk that can be
// written, the system's and the toolchains' are read-only, the rest does not exist; its own
// process table, so that nothing survives the command; no network unless the call may use it;
// no privileges and none to gain; limits on processes, memory, files and output.
// What landlock gives is the same by other means: this program, run again, shuts itself in and
// becomes the command. It has its own process table, /tmp and loopback where namespaces may be
// made; elsewhere it sees no processes, no /tmp and no network of any kind.
// What neither gives: protection from flaws of the kernel, and from what the command writes
// into the workspace itself (a hook below .git runs when its owner next uses git).
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/troupe-dev/troupe/tools"
)

// Mode is which back end is wanted: the values of `sandbox.exec`.
type Mode string

// The modes.
const (
	Auto      Mode = "auto"      // the first that works of bwrap, landlock, none
	Bwrap     Mode = "bwrap"     // bwrap or an error
	Landlock  Mode = "landlock"  // the kernel's landlock and seccomp, or an error
	Container Mode = "container" // podman or docker with Options.Image, or an error
	None      Mode = "none"      // no confinement
)

// Options are what back ends need to know. CacheDir is required.
type Options struct {
	CacheDir string   // absolute; private homes of workspaces are kept below it
	Read     []string // absolute paths that commands may read besides the defaults (`sandbox.read`)
	Hide     []string // absolute folders never shown, not even inside a workspace: the data directory
	Limits   Limits

	// Reexec says that this program's main calls Main first. Then commands run below a process
	// of this program that ends all of them with the call, and when this process is killed, at
	// whatever moment. Without it, bwrap may leave a command behind when this process is killed
	// in the few milliseconds of its start, and none ends the command's process group alone:
	// what left the group by setsid survives. Landlock needs it: there is no other moment to
	// confine a process than in itself, before it becomes the command.
	Reexec bool

	// NoGroups has commands do without control groups of their own even where they can be made.
	NoGroups bool

	// Image is what containers are made of. It must be there: nothing is fetched.
	Image string

	// Bare has landlock do without namespaces even where they can be made, as it must in most
	// containers: no /tmp of its own, no process table, no loopback network.
	Bare bool

	groups  *groups // where control groups are made; nil: nowhere
	without error   // why
}

// threadsPerProcess is how many threads a command may have for each process that it may have: the kernel counts those.
const threadsPerProcess = 4

// Limits bound one command and all that it starts. A zero field stands for its default.
type Limits struct {
	Processes int   // at the same time; default 512
	Memory    int64 // bytes of private memory together; default half of the machine's
	FileSize  int64 // bytes of one written file; default 8 GiB
	Files     int   // open files of one process; default 8192
	CPUs      int   // processors' worth of time; 0: all there is. It needs control groups or a container
	Scratch   int64 // bytes in /tmp, which is memory; default 1 GiB; not where /tmp cannot be mounted
}

func (l Limits) orDefault() Limits {
	if l.Processes == 0 {
		l.Processes = 512
	}
	if l.Memory == 0 {
		l.Memory = machineMemory() / 2
	}
	if l.FileSize == 0 {
		l.FileSize = 8 << 30
	}
	if l.Files == 0 {
		l.Files = 8192
	}
	if l.Scratch == 0 {
		l.Scratch = 1 << 30
	}
	return l
}

// Unavailable is why a back end cannot be used here, and what to do about it.
type Unavailable struct {
	Mode   Mode
	Reason string
	Hint   string
}

func (e *Unavailable) Error() string {
	return fmt.Sprintf("sandbox %s is not available: %s (%s)", e.Mode, e.Reason, e.Hint)
}

// Detect returns the back end of a mode after a probe run has proven it; that takes some 30 ms.
// It marks files that this process has inherited so that commands do not inherit them in turn.
// It fails with *Unavailable, whose Hint says how to get it, and with the context's error when that ends first. Auto never fails because nothing
// confines here: it falls back to none, which refuses Restricted workspaces by Confines.
func Detect(ctx context.Context, mode Mode, o Options) (tools.Sandbox, error) {
	s, err := backEnd(ctx, mode, o)
	if ended := ctx.Err(); err != nil && ended != nil { // what was cut off says nothing about this machine
		return nil, fmt.Errorf("detect sandbox: %w", ended)
	}
	return s, err
}

// backEnd is what a mode stands for here.
func backEnd(ctx context.Context, mode Mode, o Options) (tools.Sandbox, error) {
	if !filepath.IsAbs(o.CacheDir) {
		return nil, fmt.Errorf("detect sandbox: the cache directory %q is not absolute", o.CacheDir)
	}
	for _, p := range append(append([]string(nil), o.Read...), o.Hide...) {
		if !filepath.IsAbs(p) {
			return nil, fmt.Errorf("detect sandbox: the path %q is not absolute", p)
		}
	}
	o.Limits = o.Limits.orDefault()
	if mode != Container {
		o.findGroups()
	}
	switch mode {
	case Bwrap:
		return newBwrap(ctx, o)
	case Landlock:
		return newLandlock(ctx, o)
	case Container:
		return newContainer(ctx, o)
	case None:
		return newNone(ctx, o)
	case Auto, "":
		for _, confined := range []func(context.Context, Options) (tools.Sandbox, error){newBwrap, newLandlock} {
			if s, err := confined(ctx, o); err == nil {
				return s, nil
			} else if ctx.Err() != nil {
				return nil, err
			}
		}
		return newNone(ctx, o)
	}
	return nil, fmt.Errorf("detect sandbox: unknown mode %q; known are auto, bwrap, landlock, container, none", mode)
}

func (o *Options) findGroups() {
	if o.NoGroups {
		o.without = errors.New("the configuration says so")
		return
	}
	if o.groups, o.without = findGroups(o.Limits); o.without != nil {
		o.groups = nil
	}
}

// group makes a command's control group. Where that fails what it does is counted by looking.
func (o *Options) group() *group {
	g, err := o.groups.make()
	if err != nil {
		return nil
	}
	return g
}

// Bounds says what holds the limits of processes, memory and time on processors in a back end of this package; why is
// nil where each command has a control group or a container of its own for that.
func Bounds(s tools.Sandbox) (text string, why error) {
	if s.Name() == string(Container) {
		return "each command has a container with limits", nil
	}
	b, ok := s.(interface{ options() *Options })
	switch {
	case !ok:
		return "nothing is known", errors.New("it is no back end of this package")
	case b.options().groups == nil && canWatch:
		return "memory and processes are counted by looking, without control groups", b.options().without
	case b.options().groups == nil:
		return "memory and processes are not limited", b.options().without
	case b.options().Limits.CPUs > 0 && !b.options().groups.cpus:
		return "each command has a control group, which cannot bound its time on processors", errors.New("there is no controller of that here")
	}
	return "each command has a control group", nil
}

// GroupsHint says how to get control groups.
const GroupsHint = "control groups are made below the group of this process, or a group above it, that it may change and that has the " +
	"controllers of processes and memory: run it as root, or below systemd's user manager, e.g. `systemd-run --user --scope troupe ...`; " +
	"`sandbox.cgroups: none` does without them"

// Describe says in a few words for people what a command finds in a back end of this package.
func Describe(s tools.Sandbox) string {
	if d, ok := s.(interface{ describe() string }); ok {
		return d.describe()
	}
	return "commands are not confined"
}
