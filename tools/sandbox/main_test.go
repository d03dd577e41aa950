package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/tools"
)

func TestMain(m *testing.M) {
	if Main() {
		return
	}
	if args := os.Getenv("SANDBOX_TEST_ATTACK"); args != "" {
		attackFrom(args)
		return
	}
	if os.Getenv("SANDBOX_TEST_PARENT") != "" {
		os.Exit(parent())
	}
	goleak.VerifyTestMain(m)
}

// bareLandlock is landlock without namespaces, for tests.
const bareLandlock = "landlock-bare"

func (m Mode) bare() (Mode, bool) {
	if m == bareLandlock {
		return Landlock, true
	}
	return m, false
}

// detect returns a back end, or skips the test where this machine has none such.
func detect(t testing.TB, mode Mode, change ...func(*Options)) tools.Sandbox {
	t.Helper()
	o := Options{CacheDir: t.TempDir(), Reexec: true, Limits: Limits{Processes: 200, Memory: 512 << 20}}
	for _, c := range change {
		c(&o)
	}
	mode, o.Bare = mode.bare()
	s, err := Detect(context.Background(), mode, o)
	var missing *Unavailable
	if errors.As(err, &missing) {
		if missing.Hint == "" {
			t.Error("an unavailable sandbox gives no hint")
		}
		t.Skipf("no sandbox %s here: %v", mode, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sh runs a shell command in a workspace.
func sh(t testing.TB, s tools.Sandbox, workspace, script string, change ...func(*tools.Command)) (string, tools.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // a cold build on a busy machine
	defer cancel()
	out, exit, err := try(ctx, s, workspace, script, change...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out, exit
}

func try(ctx context.Context, s tools.Sandbox, workspace, script string, change ...func(*tools.Command)) (string, tools.Exit, error) {
	var out bytes.Buffer
	c := tools.Command{
		Argv: []string{"/bin/sh", "-c", script}, Workspace: workspace, Output: &out, MaxOutput: 4 << 20,
		Env: []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"},
	}
	for _, f := range change {
		f(&c)
	}
	exit, err := s.Run(ctx, c)
	return out.String(), exit, err
}

// folder is a workspace whose path has no links in it.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// alive lists the processes of the machine whose command line has a word in it.
func alive(t testing.TB, word string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		line := strings.ReplaceAll(string(b), "\x00", " ")
		if err == nil && strings.Contains(line, word) {
			found = append(found, e.Name()+" "+line)
		}
	}
	return found
}

// parent is the main function of a process that runs a command and is killed meanwhile.
func parent() int {
	mode, bare := Mode(os.Getenv("SANDBOX_TEST_PARENT")).bare()
	s, err := Detect(context.Background(), mode, Options{CacheDir: os.Getenv("SANDBOX_TEST_CACHE"), Reexec: true, Bare: bare})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, err = s.Run(context.Background(), tools.Command{
		Argv: []string{"/bin/sh", "-c", os.Getenv("SANDBOX_TEST_SCRIPT")}, Workspace: os.Getenv("SANDBOX_TEST_WORKSPACE"),
		Env: []string{"PATH=" + os.Getenv("PATH")}, Output: os.Stdout,
	})
	fmt.Println("ended", err)
	return 1
}
