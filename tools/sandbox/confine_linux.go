package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The processes of a command in mode landlock, each this program run again: a helper; below it,
// where there are namespaces, the first process of a process table; below that the one that
// shuts itself in and becomes the command. None is a command for people.
const (
	confineArg = "__sandbox-confine"
	initArg    = "__sandbox-init"
	enterArg   = "__sandbox-enter"
)

// planFD is where each of them finds the plan.
const planFD = 5

// helpConfined is a helper's work for a command in mode landlock.
func helpConfined(args []string, status *os.File) error {
	p, err := readPlan()
	if err != nil {
		return err
	}
	return lookAfter(status, func() (*os.Process, error) {
		sys, next := dyingWithUs(&syscall.SysProcAttr{Setsid: true}), enterArg
		if p.Spaces {
			next = initArg
			sys.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
			if !p.Network {
				sys.Cloneflags |= unix.CLONE_NEWNET
			}
			// Without these a user who is not root would lose them all by becoming this program again.
			sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP}
			sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
			sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		}
		child, err := again(next, args, status, sys)
		if err != nil {
			return nil, fmt.Errorf("start the command's process: %w", err)
		}
		// Not before: who cannot be read by its user cannot give a child its user either.
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			_ = child.Kill()
			return nil, fmt.Errorf("hide the memory: %w", err)
		}
		return child, nil
	})
}

// again runs this program again, with the plan.
func again(arg string, args []string, status *os.File, sys *syscall.SysProcAttr) (*os.Process, error) {
	return os.StartProcess("/proc/self/exe", append([]string{"troupe", arg}, args...), &os.ProcAttr{
		Files: withEntrances([]*os.File{os.Stdin, os.Stdout, os.Stderr, nil, status, os.NewFile(planFD, "plan")}, entrances()),
		Env:   os.Environ(), Sys: sys,
	})
}

func readPlan() (*plan, error) {
	f := os.NewFile(planFD, "plan")
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 16<<20)) // the position is everybody's
	var p plan
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("read the command's plan: %w", err)
	}
	for _, fd := range []int{statusFD, planFD} {
		unix.CloseOnExec(fd)
	}
	runtime.KeepAlive(f)
	return &p, nil
}

// first is the work of the first process of a process table: it builds the command's view of the
// file system, starts it and reaps. With its end everything in the table ends.
func first(args []string, status *os.File) error {
	runtime.LockOSThread()
	p, err := readPlan()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the memory: %w", err)
	}
	if err := mountView(p); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("sandbox")); err != nil {
		return fmt.Errorf("set the host's name: %w", err)
	}
	if !p.Network {
		if err := loopback(); err != nil {
			return fmt.Errorf("start the loopback network: %w", err)
		}
	}
	child, err := again(enterArg, args, status, &syscall.SysProcAttr{Setsid: true})
	if err != nil {
		return fmt.Errorf("start the command's process: %w", err)
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for the command: %w", err)
		case pid == child.Pid && ws.Signaled():
			return exitCode(128 + int(ws.Signal()))
		case pid == child.Pid:
			return exitCode(ws.ExitStatus())
		}
	}
}

// exitCode is what the first process ends with: the command's, as a shell tells it.
type exitCode int

func (c exitCode) Error() string { return "exit code " + strconv.Itoa(int(c)) }

// mountView covers what the command must not see, and gives it a /tmp and a /proc of its own.
// What it may see is landlock's to say.
func mountView(p *plan) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	kept := map[string]int{} // handles on what may be covered by accident
	for _, v := range p.View {
		if v.Kind != "ro" && v.Kind != "rw" {
			continue
		}
		fd, err := unix.Open(v.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", v.Path, err)
		}
		kept[v.Path] = fd
	}
	var covered []string
	for _, v := range p.View {
		under := func(c string) bool { return v.Path != c && isBelow(v.Path, c) }
		var err error
		switch v.Kind {
		case "ro":
			if slices.ContainsFunc(covered, under) {
				err = bind(kept[v.Path], v.Path)
			}
		case "rw":
			err = bind(kept[v.Path], v.Path)
			covered = append(covered, v.Path) // what may only be read in it is a mount of its own, which can be closed
		case "tmpfs":
			if _, missing := os.Stat(v.Path); missing != nil {
				continue
			}
			err = unix.Mount("tmpfs", v.Path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size="+strconv.FormatInt(p.Scratch, 10))
			covered = append(covered, v.Path)
		case "mask":
			err = unix.Mount("tmpfs", v.Path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700,size=65536")
			covered = append(covered, v.Path)
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", v.Path, err)
		}
	}
	if err := closeRest(p); err != nil {
		return err
	}
	for _, v := range p.View {
		if v.Kind == "mask" {
			if err := unix.Mount("", v.Path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
				return fmt.Errorf("close %s: %w", v.Path, err)
			}
		}
	}
	// Where the machine's own is covered in part, as in containers, the kernel allows no other.
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	return nil
}

// closeRest makes all that the command may not write read-only. Landlock has no word about modes, owners, times and
// attributes of files: without this a command could change those of all files of the user. Nor has it a word that forbids: what
// may only be read, and lies below what may be written, such as a folder in /tmp, is kept by its mount alone. A folder comes before what
// lies below it.
func closeRest(p *plan) error {
	closed, open := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &closed); err != nil {
		return fmt.Errorf("make the machine's files read-only: %w", err)
	}
	for _, v := range p.View {
		var err error
		switch v.Kind {
		case "tmpfs":
			if err = unix.MountSetattr(unix.AT_FDCWD, v.Path, 0, &open); errors.Is(err, unix.ENOENT) {
				err = nil
			}
		case "rw":
			err = unix.MountSetattr(unix.AT_FDCWD, v.Path, unix.AT_RECURSIVE, &open)
			if errors.Is(err, unix.EPERM) { // something in it is read-only on the machine, too
				err = unix.MountSetattr(unix.AT_FDCWD, v.Path, 0, &open)
			}
		case "ro":
			if err = unix.MountSetattr(unix.AT_FDCWD, v.Path, unix.AT_RECURSIVE, &closed); errors.Is(err, unix.EINVAL) {
				err = nil // it is no mount: all around it is closed
			}
		}
		if err != nil {
			return fmt.Errorf("make %s writable, or not: %w", v.Path, err)
		}
	}
	_ = unix.MountSetattr(unix.AT_FDCWD, "/proc", 0, &open) // for its own settings; landlock says which
	return nil
}

// bind shows what a handle holds at a place that was covered.
func bind(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	} else {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		f.Close()
	}
	return unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), path, "", unix.MS_BIND|unix.MS_REC, "")
}

// loopback brings up the only network there is.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// enter shuts this process in and becomes the command. All of it is done by one thread, which is
// the only one that is left of this process then.
func enter([]string, *os.File) error {
	runtime.LockOSThread()
	p, err := readPlan()
	if err != nil {
		return err
	}
	if err := os.Chdir(p.Dir); err != nil {
		return err
	}
	// The kernel shall end the command, not the one who runs it, when the machine runs out of memory.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if err := restrict(p); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if err := dropPrivileges(); err != nil {
		return fmt.Errorf("give up privileges: %w", err)
	}
	if err := filter(p.Network, p.Spaces); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	if err := proveFilter(p); err != nil {
		return err
	}
	err = syscall.Exec(p.Argv[0], p.Argv, os.Environ())
	return fmt.Errorf("start %s: %w", p.Argv[0], err)
}

// dropPrivileges gives up all capabilities, those that a program of root's would get included.
func dropPrivileges() error {
	var err error
	for c := uintptr(0); err == nil; c++ {
		err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) { // there are no more; who may not drop is not root
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// proveFilter tries, at each start, what the filter must refuse.
func proveFilter(p *plan) error {
	families := []int{unix.AF_UNIX}
	if !p.Network && !p.Spaces {
		families = append(families, unix.AF_INET, unix.AF_INET6)
	}
	for _, f := range families {
		if fd, err := unix.Socket(f, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			return fmt.Errorf("seccomp: a socket of family %d could be opened", f)
		}
	}
	return nil
}

// ownTable tells whether /proc shows this process's own table and not the machine's.
func ownTable(p *plan) bool {
	self, err := os.Readlink("/proc/self")
	return p.Spaces && err == nil && strings.TrimSpace(self) == strconv.Itoa(os.Getpid())
}
