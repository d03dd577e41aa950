package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// watchEvery is how often limits are checked. A bomb makes some hundred processes in that time.
const watchEvery = 50 * time.Millisecond

// watchTree looks after the processes below root (itself included) until stop: root may come
// late, and is 0 until then. RLIMIT_NPROC does not bind root, and no limit of the kernel bounds
// the memory of a tree without control groups; hence a look at /proc.
func watchTree(root func() int, l Limits, stop <-chan struct{}, exceeded func(string)) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		pid := root()
		if pid == 0 {
			continue
		}
		pids := descendants(pid, l.Processes+1)
		switch {
		case len(pids) >= l.Processes:
			exceeded("processes")
		case privateMemory(append(pids, pid)) > l.Memory:
			exceeded("memory")
		}
	}
}

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
func privateMemory(pids []int) int64 {
	var pages int64
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
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
