package workspace_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

const killedWriter = "TROUPE_TEST_KILLED_WRITER"

// TestMain lets the test binary be the process that TestAKilledWriter... kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killedWriter); dir != "" {
		writeForEver(dir)
	}
	goleak.VerifyTestMain(m)
}

// writeForEver replaces one file again and again, each time with another letter, and tells each.
func writeForEver(dir string) {
	w, err := workspace.Open(workspace.Options{Dir: dir, Trust: messages.Trust_FULL})
	for n := 0; err == nil; n++ {
		_, err = w.WriteFile("f", bytes.Repeat([]byte{'a' + byte(n%26)}, 256<<10), workspace.WriteOptions{})
		fmt.Println(n)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestAKilledWriterLeavesTheOldOrTheNewFile(t *testing.T) {
	w, root, _ := open(t)
	for round := range 8 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), killedWriter+"="+root)
		out, err := child.StdoutPipe()
		must(t, err, child.Start())
		lines := bufio.NewScanner(out)
		for range 3 + round {
			if !lines.Scan() {
				t.Fatal("the writer ended by itself")
			}
		}
		must(t, child.Process.Kill())
		_ = child.Wait() // it was killed: an error by design
		data := content(t, root, "f")
		if len(data) != 256<<10 || strings.Trim(data, data[:1]) != "" {
			t.Fatalf("round %d: %d bytes, not all alike: the file is neither old nor new", round, len(data))
		}
	}
	// Whatever was left is recognisable and goes with a sweep.
	later := time.Now().Add(time.Hour)
	if _, err := w.RemoveStale(context.Background(), time.Minute, later); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("%v remain in %s", entries, filepath.Base(root))
	}
}
