package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hierarchy is one of the trees of control groups, as this process sees it.
type hierarchy struct {
	mount       string
	own         string   // the folder of this process's group
	controllers []string // of an old hierarchy; none: cgroup2
}

// findGroups looks for a place where a control group for each command can be made that bounds processes and memory,
// tries one, and removes what dead processes left there.
func findGroups(l Limits) (*groups, error) {
	all, err := hierarchies("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, fmt.Errorf("name control groups: %w", err)
	}
	space = strings.Trim(strings.TrimPrefix(space, "pid:"), "[]")
	g := &groups{prefix: "troupe-" + strconv.Itoa(os.Getpid()) + "-" + processStart(os.Getpid()) + "-" + space + "-"}
	var problems []error
	found := map[string]bool{}
	alone := len(all) == 1
	for _, h := range all {
		p, has, err := h.site(l, alone)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, c := range has {
			found[c] = true
		}
		sweepGroups(p.dir, space)
		g.sites = append(g.sites, p)
	}
	g.cpus = found["cpu"]
	if !found["pids"] || !found["memory"] {
		return nil, errors.Join(append(problems, errors.New("no hierarchy bounds processes and memory here"))...)
	}
	if len(g.sites) > groupsAtTop {
		return nil, fmt.Errorf("the controllers are spread over %d hierarchies", len(g.sites))
	}
	return g, g.try()
}

// try proves that a process can enter a group.
func (g *groups) try() error {
	one, err := g.make()
	if err != nil {
		return err
	}
	defer one.remove()
	cmd := exec.Command("/bin/sh", "-c", joins(len(one.files))+"exit 0")
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.ExtraFiles = withEntrances([]*os.File{nil, nil, nil}, one.files)[3:]
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("no process can enter a control group: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// site finds the folder nearest to this process's own group, at it or above, that takes groups with the controllers
// that the hierarchy has for us, and says which these are. cgroup2 beside hierarchies that have them is for cgroup.kill.
func (h hierarchy) site(l Limits, alone bool) (site, []string, error) {
	if h.controllers != nil {
		p := site{dir: h.own}
		p.limits, p.wanted = oldLimits(h.controllers, l)
		return p, h.controllers, writable(h.own)
	}
	var problems []error
	for dir := h.own; ; dir = filepath.Dir(dir) {
		has, err := h.enabled(dir)
		if err == nil && alone && !(slices.Contains(has, "pids") && slices.Contains(has, "memory")) {
			err = fmt.Errorf("%s offers no controllers of processes and memory", dir)
		}
		if err == nil {
			err = writable(dir)
		}
		if err == nil {
			p := site{dir: dir}
			p.limits, p.wanted = newLimits(has, l)
			return p, has, nil
		}
		problems = append(problems, err)
		if bound := bounded(dir); bound != "" {
			return site{}, nil, errors.Join(append(problems, fmt.Errorf("%s bounds this process (%s), and commands would leave it", dir, bound))...)
		}
		if dir == h.mount || len(dir) <= 1 {
			return site{}, nil, errors.Join(problems...)
		}
	}
}

// bounded says what bounds the memory or the processor time of all that is in a group of cgroup2: "" is nothing. Processes have bounds of their own in
// each group that we make.
func bounded(dir string) string {
	for _, name := range []string{"memory.max", "cpu.max"} {
		if w, err := words(filepath.Join(dir, name)); err == nil && len(w) > 0 && w[0] != "max" {
			return name + " " + w[0]
		}
	}
	return ""
}

// enabled says which controllers groups below a folder of cgroup2 have; it enables them where it may. There may be no
// process in such a folder, but at the top.
func (h hierarchy) enabled(dir string) ([]string, error) {
	offered, err := words(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	var want []string
	for _, c := range []string{"pids", "memory", "cpu"} {
		if slices.Contains(offered, c) {
			want = append(want, c)
		}
	}
	have, err := words(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return nil, err
	}
	for _, c := range want {
		if slices.Contains(have, c) {
			continue
		}
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
		if err != nil && c != "cpu" {
			return nil, fmt.Errorf("bound %s below a control group: %w", c, err)
		}
		if err != nil {
			want = slices.DeleteFunc(want, func(w string) bool { return w == c })
			break
		}
	}
	return want, nil
}

func words(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("look at control groups: %w", err)
	}
	return strings.Fields(string(b)), nil
}

// probePrefix begins the names of groups that are made to see whether they can be.
const probePrefix = "troupe-probe-"

// writable tries to make a group, and removes those that a kill has left of earlier tries.
func writable(dir string) error {
	probe, err := os.MkdirTemp(dir, probePrefix)
	if err != nil {
		return fmt.Errorf("make a control group: %w", err)
	}
	err = os.Remove(probe)
	if errors.Is(err, fs.ErrNotExist) { // another process tidied up
		err = nil
	}
	all, _ := os.ReadDir(dir) // who cannot look leaves them to the next
	for _, e := range all {
		if e.IsDir() && strings.HasPrefix(e.Name(), probePrefix) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // a group that has processes, or groups in it, is none of ours, and stays
		}
	}
	return err
}

// newLimits are the limits of a group in cgroup2.
func newLimits(controllers []string, l Limits) (limits, wanted map[string]string) {
	limits, wanted = map[string]string{}, map[string]string{}
	for _, c := range controllers {
		switch c {
		case "pids":
			limits["pids.max"] = strconv.Itoa(threadsPerProcess * l.Processes)
		case "memory":
			limits["memory.max"] = strconv.FormatInt(l.Memory, 10)
			wanted["memory.swap.max"] = "0"
		case "cpu":
			if l.CPUs > 0 {
				limits["cpu.max"] = fmt.Sprintf("%d %d", l.CPUs*cpuPeriod, cpuPeriod)
			}
		}
	}
	return limits, wanted
}

// oldLimits are the same in hierarchies of the first kind.
func oldLimits(controllers []string, l Limits) (limits, wanted map[string]string) {
	limits, wanted = map[string]string{}, map[string]string{}
	for _, c := range controllers {
		switch c {
		case "pids":
			limits["pids.max"] = strconv.Itoa(threadsPerProcess * l.Processes)
		case "memory":
			limits["memory.limit_in_bytes"] = strconv.FormatInt(l.Memory, 10)
			wanted["memory.memsw.limit_in_bytes"] = strconv.FormatInt(l.Memory, 10)
		case "cpu":
			if l.CPUs > 0 {
				limits["cpu.cfs_quota_us"] = strconv.FormatInt(int64(l.CPUs)*cpuPeriod, 10)
			}
		}
	}
	return limits, wanted
}

// cpuPeriod is the kernel's own, in microseconds.
const cpuPeriod = 100_000

// hierarchies lists cgroup2 and those of the first kind that hold a controller we want, as two files of /proc tell them.
func hierarchies(mountinfo, cgroup string) ([]hierarchy, error) {
	mounts, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("look for control groups: %w", err)
	}
	own, err := os.ReadFile(cgroup)
	if err != nil {
		return nil, fmt.Errorf("look for control groups: %w", err)
	}
	var all []hierarchy
	for line := range strings.Lines(string(mounts)) {
		// 36 35 0:31 /root /mount options [tags] - type source superoptions
		front, back, ok := strings.Cut(strings.TrimSpace(line), " - ")
		at, kind := strings.Fields(front), strings.Fields(back)
		if !ok || len(at) < 5 || len(kind) < 3 || kind[0] != "cgroup" && kind[0] != "cgroup2" {
			continue
		}
		h := hierarchy{mount: at[4]}
		if kind[0] == "cgroup" {
			for c := range strings.SplitSeq(kind[2], ",") {
				if c == "pids" || c == "memory" || c == "cpu" {
					h.controllers = append(h.controllers, c)
				}
			}
			if h.controllers == nil {
				continue
			}
		}
		path, ok := ownGroup(string(own), h.controllers)
		rel, err := filepath.Rel(at[3], path)
		if !ok || err != nil || strings.HasPrefix(path, "/..") || !filepath.IsLocal(rel) || seen(all, h) {
			continue
		}
		h.own = filepath.Join(h.mount, rel)
		all = append(all, h)
	}
	if len(all) == 0 {
		return nil, errors.New("there are no control groups here")
	}
	return all, nil
}

// seen tells whether a hierarchy is mounted a second time.
func seen(all []hierarchy, h hierarchy) bool {
	return slices.ContainsFunc(all, func(o hierarchy) bool { return slices.Equal(o.controllers, h.controllers) })
}

// ownGroup is the path of this process's group in the hierarchy of controllers, and of none in cgroup2.
func ownGroup(own string, controllers []string) (string, bool) {
	for line := range strings.Lines(own) {
		part := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(part) != 3 {
			continue
		}
		if controllers == nil && part[0] == "0" || controllers != nil && slices.Contains(strings.Split(part[1], ","), controllers[0]) {
			return part[2], true
		}
	}
	return "", false
}

// sweepGroups removes the groups that dead processes of our process table left. Those of another table cannot be told
// from living ones.
func sweepGroups(dir, space string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		part := strings.Split(e.Name(), "-")
		if len(part) == 5 && part[3] == space && abandoned(e.Name()) {
			removeGroups([]string{filepath.Join(dir, e.Name())})
		}
	}
}
