package owner

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestANoteOfAJobIsOnTheDiskBeforeItCounts looks at the system calls of this very test, which notes a job: a name that counts stands for what was synced, and is synced itself.
func TestANoteOfAJobIsOnTheDiskBeforeItCounts(t *testing.T) {
	dir, out, err := noted(t)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir = regexp.QuoteMeta(dir)
	if !regexp.MustCompile(`(?s)f(data)?sync\(\d+<` + dir + `/job_1\.new>.*rename[^\n]*job_1\.new.*fsync\(\d+<` + dir + `>`).Match(out) {
		t.Errorf("the calls were:\n%s", out)
	}
}

// TestAJobThatCannotBeNotedLeavesNothing has the disk refuse what a note has, and then its name.
func TestAJobThatCannotBeNotedLeavesNothing(t *testing.T) {
	for _, at := range []string{"1", "2"} {
		dir, out, err := noted(t, "-e", "inject=fsync,fdatasync:error=EIO:when="+at)
		if err == nil || !bytes.Contains(out, []byte("input/output error")) {
			t.Fatalf("at %s: %v: %s", at, err, out)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("at %s there are %v, %v", at, left, err)
		}
	}
}

// noted has this very test note a job in a program of its own, whose system calls are traced.
func noted(t *testing.T, more ...string) (dir string, out []byte, err error) {
	t.Helper()
	const where = "TROUPE_TEST_NOTE"
	if dir := os.Getenv(where); dir != "" {
		runtime.LockOSThread() // strace counts the calls of each thread by themselves
		if err := (&Owner{o: Options{Jobs: dir}}).note(&messages.OwnedJob{JobId: "job_1", State: "running"}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("system calls are not traced here: %v", err)
	}
	dir = filepath.Join(t.TempDir(), "jobs")
	args := append([]string{"-f", "-qq", "-y", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2"}, more...)
	cmd := exec.CommandContext(t.Context(), strace, append(args, os.Args[0], "-test.run", "^"+t.Name()+"$")...)
	cmd.Env = append(os.Environ(), where+"="+dir)
	out, err = cmd.CombinedOutput()
	if bytes.Contains(out, []byte("ptrace")) {
		t.Skipf("system calls cannot be traced here: %s", out)
	}
	return dir, out, err
}
