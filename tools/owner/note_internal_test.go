package owner

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestANoteOfAJobIsOnTheDiskBeforeItCounts looks at the system calls of this very test, which notes a job: a name that counts stands for what was synced, and is synced itself.
func TestANoteOfAJobIsOnTheDiskBeforeItCounts(t *testing.T) {
	const where = "TROUPE_TEST_NOTE"
	if dir := os.Getenv(where); dir != "" {
		if err := (&Owner{o: Options{Jobs: dir}}).note(&messages.OwnedJob{JobId: "job_1", State: "running"}); err != nil {
			t.Fatal(err)
		}
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("system calls are not traced here: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "jobs")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-qq", "-y", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), where+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("system calls cannot be traced here: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	dir = regexp.QuoteMeta(dir)
	if !regexp.MustCompile(`(?s)f(data)?sync\(\d+<` + dir + `/job_1\.new>.*rename[^\n]*job_1\.new.*fsync\(\d+<` + dir + `>`).Match(out) {
		t.Errorf("the calls were:\n%s", out)
	}
}
