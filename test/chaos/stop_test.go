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
		for _, thread := range threads {
			if s := stateIn(thread); s != 'T' && s != 0 {
				return false
			}
		}
		return true
	})
}

// state is the letter of a process's state, 0 when it is gone.
func state(pid int) byte { return stateIn(fmt.Sprintf("/proc/%d/stat", pid)) }

func stateIn(file string) byte {
	stat, _ := os.ReadFile(file)
	if i := bytes.LastIndex(stat, []byte(") ")); i >= 0 {
		return stat[i+2]
	}
	return 0
}
