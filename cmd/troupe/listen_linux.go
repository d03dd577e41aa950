package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// portHolder is the process that listens on a TCP port of this machine, 0 if none is seen: those of
// other users are not.
func portHolder(port uint16) int {
	sockets := map[string]bool{}
	for _, list := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line) // 1: 0100007F:1F90, 3: state (0A listens), 9: inode
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return 0
	}
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0
	}
	for _, f := range files {
		if target, err := os.Readlink(f); err == nil && sockets[target] {
			if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil {
				return pid
			}
		}
	}
	return 0
}
