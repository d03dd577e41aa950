package badger

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/persistence"
)

// locked says who holds a directory.
func locked(dir string, pid int) error {
	if pid == 0 {
		return fmt.Errorf("%s is in use: %w", dir, persistence.ErrLocked)
	}
	return fmt.Errorf("%s is in use by process %d: %w", dir, pid, persistence.ErrLocked)
}

// readPid reads a file that holds a process id, 0 when it cannot.
func readPid(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
