package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// watchEvery is how often limits are checked. A bomb makes some hundred processes in that time.
const watchEvery = 25 * time.Millisecond

// canWatch says that processes and memory of a command are counted.
const canWatch = true

// watchTree looks after the processes below root (itself included) until stop: root may come
// late, and is 0 until then. RLIMIT_NPROC does not bind root, and no limit of the kernel bounds
// the memory of a tree without control groups; hence a look at /proc.
func watchTree(root func() int, l Limits, stop <-chan struct{}, exceeded func(string)) {
	watch(l, stop, exceeded, func(most int) []string {
		pid := root()
		if pid == 0 {
			return nil
		}
		dirs := []string{procDir(pid)}
		for _, c := range descendants(pid, most) {
			dirs = append(dirs, procDir(c))
		}
		return dirs
	})
}

// watchSpace is watchTree for a first process that has a process table of its own. That table
// is listed in its own /proc at the price of one directory: a bomb that takes all processors
// leaves little time to count it.
func watchSpace(first func() int, l Limits, stop <-chan struct{}, exceeded func(string)) {
	var table *os.File
	defer func() { table.Close() }() // nil is no error here: the table may never have come
	var dir string
	watch(l, stop, exceeded, func(int) []string {
		if pid := first(); table == nil && pid != 0 {
			dir = procDir(pid) + "/root/proc"
			table = openTable(dir)
		}
		if table == nil {
			return nil
		}
		if _, err := table.Seek(0, io.SeekStart); err != nil {
			return nil
		}
		names, err := table.Readdirnames(-1)
		if err != nil {
			return nil // the table went with its first process
		}
		var dirs []string
		for _, n := range names {
			if n[0] >= '1' && n[0] <= '9' {
				dirs = append(dirs, dir+"/"+n)
			}
		}
		return dirs
	})
}

// openTable opens the /proc of another process table; nil while there is none but ours.
func openTable(dir string) *os.File {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	var theirs, ours unix.Stat_t
	if unix.Fstat(int(f.Fd()), &theirs) != nil || unix.Stat("/proc", &ours) != nil || theirs.Dev == ours.Dev {
		f.Close()
		return nil
	}
	return f
}

// watch checks limits until stop. list gives the folders below /proc of all processes; it may
// end early when there are more than most.
func watch(l Limits, stop <-chan struct{}, exceeded func(string), list func(most int) []string) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		dirs := list(l.Processes + 1)
		switch {
		case len(dirs) > l.Processes:
			exceeded("processes")
		case privateMemory(dirs) > l.Memory:
			exceeded("memory")
		}
	}
}

func procDir(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// descendants lists the processes below root, root not among them, at most about most.
func descendants(root, most int) []int {
	var found []int
	for next := []int{root}; len(next) > 0 && len(found) < most; {
		pid := next[0]
		next = next[1:]
		for _, c := range children(pid) {
			found = append(found, c)
			next = append(next, c)
		}
	}
	return found
}

// children lists the direct children of every thread of pid.
func children(pid int) []int {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil // it has ended
	}
	var found []int
	for _, t := range threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue
		}
		for f := range bytes.FieldsSeq(b) {
			if c, err := strconv.Atoi(string(f)); err == nil {
				found = append(found, c)
			}
		}
	}
	return found
}

// privateMemory adds up the resident memory that is not backed by files, in bytes.
func privateMemory(dirs []string) int64 {
	var pages int64
	for _, dir := range dirs {
		b, err := os.ReadFile(dir + "/statm")
		if err != nil {
			continue
		}
		var size, resident, shared int64
		if _, err := fmt.Sscan(string(b), &size, &resident, &shared); err == nil {
			pages += resident - shared
		}
	}
	return pages * int64(os.Getpagesize())
}

// machineMemory is the machine's, in bytes.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 8 << 30
	}
	return int64(info.Totalram) * int64(info.Unit)
}
