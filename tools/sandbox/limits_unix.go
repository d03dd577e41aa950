//go:build unix

package sandbox

import (
	"fmt"
)

// limited wraps a program so that it starts with its limits: a shell sets them and becomes the
// program. A limit that the system does not have is passed over. The number of processes is
// limited only in a user namespace, where the kernel counts the command's alone; it counts
// threads, hence the factor. Before anything else the shell enters the command's control group.
func limited(argv []string, l Limits, processes bool, g *group) []string {
	script := fmt.Sprintf("ulimit -c 0; ulimit -f %d; ulimit -n %d; ", l.FileSize/512, l.Files)
	if processes {
		n := threadsPerProcess * l.Processes
		script += fmt.Sprintf("ulimit -p %d || ulimit -u %d; ", n, n)
	}
	// The kernel shall end the command, not this program, when the machine runs out of memory.
	script = "{ " + script + "echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; exec \"$@\""
	return append([]string{"/bin/sh", "-c", joins(len(g.entrance())) + script, "sh"}, argv...)
}
