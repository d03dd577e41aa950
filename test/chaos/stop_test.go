package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// stopped sends SIGSTOP and waits until every thread has come to rest.
func stopped(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	(&machine{t: t}).eventually(fmt.Sprintf("process %d does not stop", p.Pid), func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("threads of process %d: %v %v", p.Pid, threads, err)
		}
		for _, name := range threads {
			stat, err := os.ReadFile(name)
			_, state, found := bytes.Cut(stat, []byte(") "))
			if err == nil && (!found || state[0] != 'T') {
				return false
			}
		}
		return true
	})
}
