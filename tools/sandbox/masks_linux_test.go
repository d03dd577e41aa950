package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/tools"
)

// What a killed process leaves in a workspace is in nobody's way, and does not stay: neither the folder that it lent, nor, where commands
// could write to that, what they wrote.
func TestAKillLeavesNothingInTheWorkspaceThatRefusesTheNextCommand(t *testing.T) {
	for name, script := range map[string]string{
		"empty":   "touch begun; exec sleep 600",
		"written": "echo x > .troupe/config.yaml; touch begun; exec sleep 600",
	} {
		t.Run(name, func(t *testing.T) {
			eachConfined(t, func(t *testing.T, _ tools.Sandbox) { killedWhileItLends(t, script, name == "written") })
		})
	}
}

func killedWhileItLends(t *testing.T, script string, writes bool) {
	mode := modeOf(t)
	ws, cache := folder(t), folder(t)
	end := lender(t, mode, ws, cache, script)
	end(true)
	if _, err := os.Stat(filepath.Join(ws, troupeFolder)); err != nil {
		t.Fatalf("the kill has left no folder: its absence would show nothing: %v", err)
	}
	next := detect(t, mode, func(o *Options) { o.CacheDir = cache })
	if _, err := os.Stat(filepath.Join(ws, troupeFolder)); err == nil {
		t.Error("the next process leaves the folder where it is")
	}
	if out, exit := sh(t, next, ws, "echo again"); out != "again\n" || exit.Code != 0 {
		t.Errorf("the next command: %q %+v", out, exit)
	}
	written, err := filepath.Glob(filepath.Join(ws, troupeFolder+"*", "*"))
	want := 0
	if writes && mode == bareLandlock { // elsewhere the folder is mounted over, and what is written there goes with the command
		want = 1
	}
	if err != nil || len(written) != want || want > 0 && filepath.Base(filepath.Dir(written[0])) == troupeFolder {
		t.Errorf("what the command wrote is in %q: %v", written, err)
	}
	if notes, err := os.ReadDir(filepath.Join(cache, "masks")); err != nil || len(notes) != 0 {
		t.Errorf("noted are %v %v", notes, err)
	}
}

// modeOf is that of a test in eachConfined.
func modeOf(t *testing.T) Mode { return Mode(t.Name()[strings.LastIndex(t.Name(), "/")+1:]) }

// lender is a process that runs a command, which has made the file begun. end waits for it, or kills it first.
func lender(t *testing.T, mode Mode, ws, cache, script string) (end func(kill bool)) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SANDBOX_TEST_PARENT="+string(mode), "SANDBOX_TEST_CACHE="+cache,
		"SANDBOX_TEST_WORKSPACE="+ws, "SANDBOX_TEST_SCRIPT="+script)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end = func(kill bool) {
		once.Do(func() {
			if kill {
				_ = cmd.Process.Kill()
			}
			_ = cmd.Wait()
		})
	}
	t.Cleanup(func() { end(true) })
	await(t, filepath.Join(ws, "begun"))
	return end
}

// While a command runs, another process with the same caches takes nothing from it; and a folder that a person made stays.
func TestAFolderThatIsLentOrAPersonsIsNotGivenBackByOthers(t *testing.T) {
	eachConfined(t, func(t *testing.T, _ tools.Sandbox) {
		mode := modeOf(t)
		ws, cache, own := folder(t), folder(t), folder(t)
		if err := os.Mkdir(filepath.Join(own, troupeFolder), 0o700); err != nil {
			t.Fatal(err)
		}
		first := detect(t, mode, func(o *Options) { o.CacheDir = cache })
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _, _ = try(t.Context(), first, ws, "touch begun; while ! test -e go; do sleep 0.05; done")
		}()
		await(t, filepath.Join(ws, "begun"))
		_ = detect(t, mode, func(o *Options) { o.CacheDir = cache })
		if _, err := os.Stat(filepath.Join(ws, troupeFolder)); err != nil {
			t.Errorf("another process has removed the folder under a command: %v", err)
		}
		if err := os.WriteFile(filepath.Join(ws, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		<-ended
		_, _, _ = try(t.Context(), first, own, "true") // refused without namespaces
		if _, err := os.Stat(filepath.Join(own, troupeFolder)); err != nil {
			t.Errorf("a person's folder is gone: %v", err)
		}
	})
}

// await waits for a file.
func await(t *testing.T, name string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("%s does not appear", name)
		}
	}
}

// touch makes a file.
func touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// persons makes a folder with a person's settings.
func persons(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(dir, "config.yaml"))
}
