package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holder is the process that holds a lock on the data directory or on something directly in it
// or in its folders, 0 if none is seen. It reads the kernel's list: trying the lock itself could
// get into the way of a process that is just starting.
func holder(dir string) int {
	list, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	locked := map[string]int{}
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line) // 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF
		if len(f) < 6 || f[1] == "->" {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			locked[f[5]] = pid
		}
	}
	names := []string{dir}
	for _, pattern := range []string{"*", "*/*"} {
		found, _ := filepath.Glob(filepath.Join(globQuote(dir), pattern)) // the pattern is well-formed
		names = append(names, found...)
	}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Lstat(name, &st) != nil {
			continue
		}
		if pid := locked[fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)]; pid != 0 {
			return pid
		}
	}
	return 0
}

// globQuote takes the meaning from what filepath.Glob would read as a pattern.
func globQuote(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
