package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/tools"
)

// TestKilledAtAnyMomentNothingIsLeft kills a process while it proves its sandbox and starts a
// command in it, at moments close together. TROUPE_TEST_KILLS is how many.
func TestKilledAtAnyMomentNothingIsLeft(t *testing.T) {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("TROUPE_TEST_KILLS"), "40"))
	if err != nil {
		t.Fatal(err)
	}
	eachMode(t, func(t *testing.T, _ tools.Sandbox) {
		mode := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		n, ws, cache := sleeper(t, 7), folder(t), folder(t)
		start := func(script string) *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "SANDBOX_TEST_PARENT="+mode, "SANDBOX_TEST_CACHE="+cache,
				"SANDBOX_TEST_WORKSPACE="+ws, "SANDBOX_TEST_SCRIPT="+script)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return cmd
		}
		began := time.Now()
		_ = start("exit 0").Wait()
		span := time.Since(began) // only the spread of the kills depends on it
		for i := range kills {
			cmd := start("setsid sleep " + n + " & sleep " + n)
			at := time.Now().Add(span * time.Duration(i) / time.Duration(kills))
			<-time.After(time.Until(at))
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			for _, mark := range []string{n, cache} { // the command's, and the probe's
				for _, left := range alive(t, mark) {
					if !ends(t, left) {
						t.Errorf("killed after %s of %s, there is left: %s", span*time.Duration(i)/time.Duration(kills), span, left)
						var pid int
						_, _ = fmt.Sscan(left, &pid)
						if p, err := os.FindProcess(pid); err == nil {
							_ = p.Kill()
						}
					}
				}
			}
		}
	})
}

func TestAGuardThatWasKilledIsReplaced(t *testing.T) {
	cache, n := folder(t), sleeper(t, 8)
	s := detect(t, Bwrap, func(o *Options) { o.CacheDir = cache })
	killGuard := func() {
		for _, g := range alive(t, guardArg+" "+cache) {
			var pid int
			if _, err := fmt.Sscan(g, &pid); err != nil {
				t.Fatal(err)
			}
			_ = unix.Kill(pid, unix.SIGKILL)
			ends(t, g)
		}
	}
	killed := writer(func(p []byte) (int, error) { killGuard(); return len(p), nil })
	_, _, err := try(t.Context(), s, folder(t), "echo started; sleep "+n, func(c *tools.Command) { c.Output = killed })
	if !errors.Is(err, errAborted) {
		t.Errorf("a command whose guard is killed: %v", err)
	}
	for _, left := range alive(t, n) {
		if !ends(t, left) {
			t.Errorf("left behind: %s", left)
		}
	}
	if out, exit := sh(t, s, folder(t), "echo again"); out != "again\n" || exit.Code != 0 {
		t.Errorf("%q %+v", out, exit)
	}
	if guards := alive(t, guardArg+" "+cache); len(guards) != 1 {
		t.Errorf("guards: %q", guards)
	}
}

func TestTheGuardEndsWhenNobodyHoldsItsSandbox(t *testing.T) {
	cache := folder(t)
	func() {
		s := detect(t, Bwrap, func(o *Options) { o.CacheDir = cache })
		if out, exit := sh(t, s, folder(t), "echo once"); out != "once\n" || exit.Code != 0 {
			t.Fatalf("%q %+v", out, exit)
		}
		if guards := alive(t, guardArg+" "+cache); len(guards) != 1 {
			t.Fatalf("while it is held, its guards are %q", guards)
		}
		runtime.KeepAlive(s)
	}()
	left := alive(t, guardArg+" "+cache)
	for range 600 {
		if len(left) == 0 {
			return
		}
		runtime.GC() // the sandbox is found to be held by nobody
		<-time.After(50 * time.Millisecond)
		left = alive(t, guardArg+" "+cache)
	}
	t.Errorf("guards: %q", left)
}
