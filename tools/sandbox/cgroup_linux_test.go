package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/tools"
)

// eachGrouped runs a claim against every back end whose commands have control groups of their own here.
func eachGrouped(t *testing.T, claim func(t *testing.T, s tools.Sandbox)) {
	t.Helper()
	if _, err := findGroups(Limits{}.orDefault()); err != nil {
		t.Skipf("no control groups can be made here: %v", err)
	}
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		if _, err := Bounds(s); err != nil {
			t.Fatalf("they can be made, and the back end has none: %v", err)
		}
		claim(t, s)
	})
}

// left lists the control groups of this process's commands.
func left(t *testing.T) []string {
	t.Helper()
	g, err := findGroups(Limits{}.orDefault())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, s := range g.sites {
		dirs, err := filepath.Glob(filepath.Join(s.dir, g.prefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

func TestACommandHasAControlGroupOfItsOwnWhichGoesWithIt(t *testing.T) {
	eachGrouped(t, func(t *testing.T, s tools.Sandbox) {
		var during []string
		look := `echo started; cat /proc/self/cgroup; ls -l /proc/self/fd`
		if isBare(s) {
			look = `echo started` // there is no /proc/self to be seen
		}
		out, exit := sh(t, s, folder(t), look, func(c *tools.Command) {
			kept := c.Output
			c.Output = writer(func(p []byte) (int, error) {
				during = append(during, left(t)...)
				return kept.Write(p)
			})
		})
		if exit.Code != 0 || exit.Bounds != "cgroup" || len(during) == 0 {
			t.Errorf("%+v, groups %q: %s", exit, during, out)
		}
		if strings.Contains(out, "cgroup.procs") {
			t.Errorf("the command can write into its group's list:\n%s", out)
		}
		if !isBare(s) && !strings.Contains(out, fmt.Sprintf("/troupe-%d-", os.Getpid())) {
			t.Errorf("the command is not in its group:\n%s", out)
		}
		if after := left(t); len(after) > 0 {
			t.Errorf("left behind: %q", after)
		}
	})
}

// The claims about bombs and memory of processes_linux_test.go hold with groups and without; here it is the kernel that bounds.
func TestTheKernelBoundsAForkBomb(t *testing.T) {
	eachGrouped(t, func(t *testing.T, s tools.Sandbox) {
		n := sleeper(t, 4)
		_, exit := sh(t, s, folder(t), `bomb() { bomb `+n+` | bomb `+n+` & }; bomb; sleep `+n)
		if exit.Limit != "processes" || exit.Bounds != "cgroup" {
			t.Errorf("%+v", exit)
		}
		if some := alive(t, n); len(some) > 0 {
			t.Errorf("left behind: %d processes", len(some))
		}
		if after := left(t); len(after) > 0 {
			t.Errorf("left behind: %q", after)
		}
	})
}

func TestTheKernelBoundsMemoryThatNobodySees(t *testing.T) {
	eachGrouped(t, func(t *testing.T, s tools.Sandbox) {
		script := `for i in 1 2 3 4 5 6 7 8; do head -c 128m /dev/zero >/tmp/$i || exit 1; done; sleep 600`
		if isBare(s) || s.Name() == "none" { // without a /tmp of its own, in memory, that could be filled
			script = `tail /dev/zero`
		}
		_, exit := sh(t, s, folder(t), script)
		if exit.Limit != "memory" || exit.Bounds != "cgroup" {
			t.Errorf("%+v", exit)
		}
	})
}

func TestWithoutGroupsWhatACommandTakesIsCountedByLooking(t *testing.T) {
	each := func(mode Mode) {
		s := detect(t, mode, func(o *Options) { o.NoGroups = true })
		if _, err := Bounds(s); err == nil {
			t.Errorf("%s: groups that were not wanted", mode)
		}
		for script, want := range map[string]string{
			`tail /dev/zero`: "memory", `i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i+1)); done; wait`: "processes",
		} {
			if _, exit := sh(t, s, folder(t), script); exit.Limit != want || exit.Bounds != "watch" {
				t.Errorf("%s: %s: %+v", mode, script, exit)
			}
		}
	}
	each(None)
	each(Bwrap)
}

func TestAGroupHasTheLimitsThatWereAskedFor(t *testing.T) {
	g, err := findGroups(Limits{Processes: 10, Memory: 64 << 20, CPUs: 1})
	if err != nil {
		t.Skipf("no control groups can be made here: %v", err)
	}
	one, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	defer one.remove()
	said := map[string]string{}
	for _, dir := range one.dirs {
		for _, file := range []string{"pids.max", "memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us"} {
			if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				said[file] = strings.TrimSpace(string(b))
			}
		}
	}
	if said["pids.max"] != "40" || said["memory.max"]+said["memory.limit_in_bytes"] != "67108864" {
		t.Errorf("%q", said)
	}
	if cpu := said["cpu.max"] + said["cpu.cfs_quota_us"]; g.cpus && cpu != "100000 100000" && cpu != "100000" {
		t.Errorf("%q", said)
	}
}

func TestGroupsOfDeadProcessesAreRemovedAtTheNextStart(t *testing.T) {
	g, err := findGroups(Limits{}.orDefault())
	if err != nil {
		t.Skipf("no control groups can be made here: %v", err)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	part := strings.Split(g.prefix, "-")
	ours := g.prefix
	g.prefix = fmt.Sprintf("troupe-%d-1-%s-", dead.Process.Pid, part[3])
	old, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	old.joined()
	g.prefix = fmt.Sprintf("troupe-%d-1-another-", dead.Process.Pid)
	foreign, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.remove()
	g.prefix = ours
	living, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	defer living.remove()
	if _, err := findGroups(Limits{}.orDefault()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range old.dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("left of a dead process: %s", dir)
		}
	}
	for _, dir := range slices.Concat(foreign.dirs, living.dirs) {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("somebody else's was removed: %v", err)
		}
	}
}

// tree makes a cgroup2 of plain files and folders, for what cannot be had on each machine.
func tree(t *testing.T, own string, files map[string]string) (mountinfo, cgroup, mount string) {
	t.Helper()
	mount = filepath.Join(folder(t), "mount")
	if err := os.MkdirAll(filepath.Join(mount, own), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(mount, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mountinfo, cgroup = filepath.Join(folder(t), "mountinfo"), filepath.Join(folder(t), "cgroup")
	line := "36 35 0:31 / " + mount + " rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	if err := errors.Join(os.WriteFile(mountinfo, []byte("22 1 0:21 / /proc rw - proc proc rw\n"+line), 0o600),
		os.WriteFile(cgroup, []byte("0::"+own+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return mountinfo, cgroup, mount
}

func TestGroupsAreMadeWhereControllersAreDelegated(t *testing.T) {
	mountinfo, cgroup, mount := tree(t, "/user.slice/app.slice/term.scope", map[string]string{
		// Of a scope that has processes in it the kernel takes no cgroup.subtree_control: here there is none.
		"user.slice/app.slice/term.scope/cgroup.controllers": "memory pids\n",
		"user.slice/app.slice/cgroup.controllers":            "cpu memory pids\n",
		"user.slice/app.slice/cgroup.subtree_control":        "memory pids cpu\n",
		"user.slice/cgroup.controllers":                      "cpu memory pids\n",
		"user.slice/cgroup.subtree_control":                  "cpu memory pids\n",
	})
	all, err := hierarchies(mountinfo, cgroup)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	s, has, err := all[0].site(Limits{Processes: 10, Memory: 1 << 20, CPUs: 2}, true)
	if err != nil || s.dir != filepath.Join(mount, "user.slice/app.slice") || !slices.Equal(has, []string{"pids", "memory", "cpu"}) {
		t.Fatalf("%+v %v %v", s, has, err)
	}
	want := map[string]string{"pids.max": "40", "memory.max": "1048576", "cpu.max": "200000 100000"}
	for file, text := range want {
		if s.limits[file] != text {
			t.Errorf("%s is %q, want %q", file, s.limits[file], text)
		}
	}
	if len(s.limits) != len(want) || s.wanted["memory.swap.max"] != "0" {
		t.Errorf("%+v", s)
	}
}

func TestNoCommandLeavesTheBoundsOfTheProcess(t *testing.T) {
	for file, text := range map[string]string{"memory.max": "209715200\n", "cpu.max": "50000 100000\n"} {
		mountinfo, cgroup, _ := tree(t, "/app.slice/term.scope", map[string]string{
			"app.slice/term.scope/cgroup.controllers": "memory pids\n",
			"app.slice/term.scope/" + file:            text,
			"app.slice/cgroup.controllers":            "cpu memory pids\n",
			"app.slice/cgroup.subtree_control":        "memory pids cpu\n",
		})
		all, err := hierarchies(mountinfo, cgroup)
		if err != nil {
			t.Fatal(err)
		}
		if s, _, err := all[0].site(Limits{Processes: 10}, true); err == nil || !strings.Contains(err.Error(), "commands would leave it") {
			t.Errorf("%s: %+v %v", file, s, err)
		}
	}
}

func TestWhyNoGroupsCanBeMadeIsSaid(t *testing.T) {
	mountinfo, cgroup, _ := tree(t, "/", map[string]string{"cgroup.controllers": "hugetlb\n", "cgroup.subtree_control": ""})
	all, err := hierarchies(mountinfo, cgroup)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := all[0].site(Limits{}, true); err == nil || !strings.Contains(err.Error(), "offers no controllers of processes and memory") {
		t.Error(err)
	}
	empty := filepath.Join(folder(t), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := hierarchies(empty, cgroup); err == nil {
		t.Error("control groups where none are mounted")
	}
	if _, err := hierarchies(filepath.Join(empty, "none"), cgroup); err == nil {
		t.Error("control groups without a list of mounts")
	}
}

func TestGroupsOutsideOfWhatIsMountedAreLeftAlone(t *testing.T) {
	mountinfo, _, mount := tree(t, "/", nil)
	cgroup := filepath.Join(mount, "own")
	if err := os.WriteFile(cgroup, []byte("0::/../elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := hierarchies(mountinfo, cgroup); err == nil {
		t.Errorf("%+v", all)
	}
}
