package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// groupFD is the first file by which a command joins its control group; those before it are its launcher's own. A
// command has one such file for each hierarchy: a single one where all controllers are in cgroup2.
const (
	groupFD     = 6
	groupsAtTop = 4 // a shell's redirections take one digit
)

// How long a group may take to become empty once all in it is killed, and how often that is looked at.
const (
	emptyWait  = 10 * time.Second
	emptyPause = 2 * time.Millisecond
)

// groups is where control groups of commands are made. It is safe for concurrent use.
type groups struct {
	sites  []site
	cpus   bool // time on processors can be bounded, too
	prefix string
	next   atomic.Int64
}

// site is a folder of a hierarchy that takes groups.
type site struct {
	dir    string
	limits map[string]string // by file: what is written into each group
	wanted map[string]string // the same, of files that need not be there
}

// group is the control group of one command: a folder in each hierarchy that has a controller that it needs.
type group struct {
	dirs  []string
	files []*os.File // by which the command's first process joins; closed by joined

	closed sync.Once
}

// make makes a group for one command; nil where there are none.
func (g *groups) make() (*group, error) {
	if g == nil {
		return nil, nil
	}
	name := g.prefix + strconv.FormatInt(g.next.Add(1), 10)
	made := &group{}
	for _, p := range g.sites {
		if err := made.add(filepath.Join(p.dir, name), p); err != nil {
			made.remove()
			return nil, err
		}
	}
	return made, nil
}

func (g *group) add(dir string, p site) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make a control group: %w", err)
	}
	g.dirs = append(g.dirs, dir)
	for file, text := range p.limits {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			return fmt.Errorf("set a limit of a control group: %w", err)
		}
	}
	for file, text := range p.wanted {
		_ = os.WriteFile(filepath.Join(dir, file), []byte(text), 0) // e.g. there is no swap to be bounded
	}
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a control group: %w", err)
	}
	g.files = append(g.files, f)
	return nil
}

// joined lets go of what only the command's first process needs.
func (g *group) joined() {
	if g == nil {
		return
	}
	g.closed.Do(func() {
		for _, f := range g.files {
			f.Close()
		}
	})
}

// entrance are the files for the command, and how many of them.
func (g *group) entrance() []*os.File {
	if g == nil {
		return nil
	}
	return g.files
}

// joins is a shell's words by which it enters the group whose files it has, or ends.
func joins(files int) string {
	var in, off strings.Builder
	for i := range files {
		fmt.Fprintf(&in, "echo 0 >&%d && ", groupFD+i)
		fmt.Fprintf(&off, " %d>&-", groupFD+i)
	}
	if files == 0 {
		return ""
	}
	return "{ " + in.String() + "exec" + off.String() + "; } || { echo 'this command could not enter its control group' >&2; exit 126; }; "
}

// kill ends all that is in the group, at one stroke where the kernel can. What is left it kills one by one.
func (g *group) kill() {
	if g == nil {
		return
	}
	for _, dir := range g.dirs {
		if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
			return // the folders of a group hold the same processes
		}
	}
	for _, pid := range g.members() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// members are the processes in the group, as this process numbers them.
func (g *group) members() []int {
	if len(g.dirs) == 0 {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(g.dirs[len(g.dirs)-1], "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for f := range bytes.FieldsSeq(b) {
		if pid, err := strconv.Atoi(string(f)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// remove ends what is left and takes the group away. The next start tries again where it could not.
func (g *group) remove() {
	if g == nil {
		return
	}
	g.joined()
	removeGroups(g.dirs)
}

// removeGroups removes folders of groups, after all in them is killed.
func removeGroups(dirs []string) {
	deadline := time.Now().Add(emptyWait)
	for _, dir := range dirs {
		g := &group{dirs: []string{dir}}
		for err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && time.Now().Before(deadline); err = os.Remove(dir) {
			g.kill()
			pause := time.NewTimer(emptyPause)
			<-pause.C
		}
	}
}

// watch looks after the group's limits until stop. The kernel holds them: it refuses processes and ends the one that
// takes memory. The command is ended, then, as it is where there is no group.
func (g *group) watch(l Limits, stop <-chan struct{}, exceeded func(string)) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			g.look(l, exceeded) // what it ended by may be a limit
			return
		case <-tick.C:
			g.look(l, exceeded)
		}
	}
}

func (g *group) look(l Limits, exceeded func(string)) {
	for _, dir := range g.dirs {
		switch {
		case counted(dir, "pids.events", "max") > 0, counted(dir, "pids.current", "") > int64(l.Processes) && len(g.members()) > l.Processes:
			exceeded("processes")
		case counted(dir, "memory.events", "oom_kill") > 0, counted(dir, "memory.oom_control", "oom_kill") > 0:
			exceeded("memory")
		}
	}
}

// counted is a number that the kernel counts in a group; 0 where it does not. No name: the file is the number.
func counted(dir, file, name string) int64 {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if name == "" && len(fields) == 1 || len(fields) == 2 && fields[0] == name {
			n, _ := strconv.ParseInt(fields[len(fields)-1], 10, 64)
			return n
		}
	}
	return 0
}

// entrances are the files of a group that this process was started with. Only Main asks, before anything is opened.
func entrances() []*os.File {
	var found []*os.File
	for fd := groupFD; fd < groupFD+groupsAtTop; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			break
		}
		found = append(found, os.NewFile(uintptr(fd), "group"))
	}
	return found
}

// withEntrances puts the files of a group where a command finds them, behind those of its launcher.
func withEntrances(files, group []*os.File) []*os.File {
	if len(group) == 0 {
		return files
	}
	for len(files) < groupFD {
		files = append(files, nil)
	}
	return append(files, group...)
}
