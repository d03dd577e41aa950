package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/tools"
)

// eachMode runs a claim against every back end: what a command leaves behind is theirs to end.
func eachMode(t *testing.T, claim func(t *testing.T, s tools.Sandbox)) {
	t.Helper()
	each(t, claim, Bwrap, Landlock, bareLandlock, None)
}

// eachConfined runs a claim against every back end that confines.
func eachConfined(t *testing.T, claim func(t *testing.T, s tools.Sandbox)) {
	t.Helper()
	each(t, claim, Bwrap, Landlock, bareLandlock)
}

// isBare tells a landlock without namespaces.
func isBare(s tools.Sandbox) bool {
	l, ok := s.(*landlock)
	return ok && !l.spaces
}

func each(t *testing.T, claim func(t *testing.T, s tools.Sandbox), modes ...Mode) {
	t.Helper()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			s := detect(t, mode)
			if want, _ := mode.bare(); s.Name() != string(want) {
				t.Fatalf("detected %s", s.Name())
			}
			if l, ok := s.(*landlock); ok && mode == Landlock && !l.spaces {
				t.Skipf("no namespaces here: %v", l.why)
			}
			claim(t, s)
			// The guard of another test's sandbox, which nobody holds any more, may be on its way out: TestTheGuardEndsWhenNobodyHoldsItsSandbox looks at that.
			goleak.VerifyNone(t, goleak.IgnoreAnyFunction("github.com/troupe-dev/troupe/tools/sandbox.(*guardProcess).end"))
		})
	}
}

// sleeper is a number of seconds that tells this test's processes from all others.
func sleeper(t testing.TB, n int) string {
	t.Helper()
	return fmt.Sprintf("%d%05d%d", 9+n, os.Getpid()%100000, n)
}

func TestNothingIsLeftAfterTheEnd(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		n := sleeper(t, 1)
		out, exit := sh(t, s, folder(t), `sleep `+n+` & setsid sleep `+n+` & (setsid sh -c 'sleep `+n+` & exec sleep `+n+`' &) ; echo started`)
		if out != "started\n" || exit.Code != 0 || exit.Signal != "" {
			t.Errorf("%q %+v", out, exit)
		}
		if left := alive(t, n); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
	})
}

func TestACancelledCommandIsDeadWhenRunReturns(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		n := sleeper(t, 2)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		said := writer(func(p []byte) (int, error) { cancel(); return len(p), nil })
		_, exit, err := try(ctx, s, folder(t), `trap '' TERM INT HUP; setsid sleep `+n+` & echo started; sleep `+n, func(c *tools.Command) { c.Output = said })
		if !errors.Is(err, context.Canceled) || exit.Signal != "SIGKILL" {
			t.Errorf("%+v %v", exit, err)
		}
		if left := alive(t, n); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestADeadlineEndsACommand(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		n := sleeper(t, 3)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, _, err := try(ctx, s, folder(t), `sleep `+n)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if left := alive(t, n); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
		done, cancel := context.WithCancel(context.Background())
		cancel()
		if _, _, err := try(done, s, folder(t), `true`); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestEndlessOutputIsCutAndTheCommandKilled(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, exit := sh(t, s, folder(t), `yes`, func(c *tools.Command) { c.MaxOutput = 1 << 20 })
		runtime.ReadMemStats(&after)
		if len(out) != 1<<20 || exit.Limit != "output" {
			t.Errorf("%d bytes, %+v", len(out), exit)
		}
		if grown := int64(after.Sys) - int64(before.Sys); grown > 64<<20 {
			t.Errorf("memory grew by %d bytes", grown)
		}
	})
}

func TestAForkBombIsEnded(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		n := sleeper(t, 4)
		_, exit := sh(t, s, folder(t), `bomb() { bomb `+n+` | bomb `+n+` & }; bomb; sleep `+n)
		if exit.Limit != "processes" {
			t.Errorf("%+v", exit)
		}
		if left := alive(t, n); len(left) > 0 {
			t.Errorf("left behind: %d processes", len(left))
		}
	})
}

func TestACommandThatEatsTheMemoryIsEnded(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		_, exit := sh(t, s, folder(t), `tail /dev/zero`)
		if exit.Limit != "memory" {
			t.Errorf("%+v", exit)
		}
	})
}

func TestExitCodesAndSignalsAreTold(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		for script, want := range map[string]tools.Exit{
			"exit 0":                {},
			"exit 7":                {Code: 7},
			"kill -9 $$":            {Code: 137, Signal: "SIGKILL"},
			"kill -TERM $$":         {Code: 143, Signal: "SIGTERM"},
			"echo to >&2; exit 255": {Code: 255},
			"no-such-program":       {Code: 127},
		} {
			_, exit := sh(t, s, folder(t), script)
			if exit.Duration <= 0 {
				t.Errorf("%s took no time", script)
			}
			exit.Duration, exit.Bounds = 0, ""
			if exit != want {
				t.Errorf("%s: %+v, want %+v", script, exit, want)
			}
		}
		_, exit := sh(t, s, folder(t), "", func(c *tools.Command) { c.Argv = []string{"no-such-program"} })
		if exit.Code != 127 {
			t.Errorf("a missing program: %+v", exit)
		}
	})
}

func TestACommandStartsWhereItShallWithNoInput(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		ws := folder(t)
		sub, temp := filepath.Join(ws, "sub"), folder(t)
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		out, _ := sh(t, s, ws, `pwd; cat; echo $TMPDIR $HOME; echo x >$TMPDIR/x; ulimit -c`, func(c *tools.Command) {
			c.Dir, c.Temp = sub, temp
			c.Env = append(c.Env, "HOME=/elsewhere", "TMPDIR=/elsewhere")
		})
		lines := strings.Split(out, "\n")
		if lines[0] != sub || !strings.HasPrefix(lines[1], temp+" ") || strings.Contains(out, "elsewhere") || lines[2] != "0" {
			t.Errorf("%q", lines)
		}
		if _, err := os.Stat(filepath.Join(temp, "x")); err != nil {
			t.Error(err)
		}
	})
}

func TestOutputComesInOrderAndWhole(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		out, _ := sh(t, s, folder(t), `i=0; while [ $i -lt 5000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done`)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != 10000 || lines[9998] != "out 4999" || lines[9999] != "err 4999" {
			t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
		}
	})
}

func TestManyCommandsRunSideBySide(t *testing.T) {
	eachMode(t, func(t *testing.T, s tools.Sandbox) {
		ws, errs := folder(t), make(chan error)
		for i := range 16 {
			go func() {
				out, _, err := try(context.Background(), s, ws, fmt.Sprintf("echo %d; ls .troupe", i))
				if err == nil && !strings.HasPrefix(out, fmt.Sprintln(i)) {
					err = fmt.Errorf("run %d said %q", i, out)
				}
				errs <- err
			}()
		}
		for range 16 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Lstat(filepath.Join(ws, ".troupe")); err == nil {
			t.Error("a folder .troupe is left behind")
		}
	})
}

// Every process of the command holds a named pipe open. Its end is their end.
func TestKillingTheServerKillsItsCommands(t *testing.T) {
	eachMode(t, func(t *testing.T, _ tools.Sandbox) {
		n, ws := sleeper(t, 5), folder(t)
		pipe := filepath.Join(ws, "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		held, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		mode := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SANDBOX_TEST_PARENT="+mode, "SANDBOX_TEST_CACHE="+t.TempDir(), "SANDBOX_TEST_WORKSPACE="+ws,
			"SANDBOX_TEST_SCRIPT=trap '' HUP TERM; exec 9>pipe; sleep "+n+" & setsid sleep "+n+" & (setsid sh -c 'sleep "+n+" & exec sleep "+n+"' &); echo held >&9; echo started; sleep "+n)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		running := alive(t, n)
		for since := time.Now(); err == nil && len(running) < 4 && time.Since(since) < 30*time.Second; <-look.C {
			running = alive(t, n) // one that is becoming another program has no name
		}
		if err != nil || line != "started\n" || len(running) < 4 {
			t.Errorf("%q %v: %s", line, err, running)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if err := held.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(held); err != nil || string(b) != "held\n" {
			t.Errorf("processes hold on: %q %v: %s", b, err, alive(t, n))
		}
		for _, left := range alive(t, n) {
			if !strings.Contains(left, helperArg) || !ends(t, left) {
				t.Errorf("left behind: %s", left)
			}
		}
	})
}

// ends waits for the end of a process that alive listed: the helper ends last of all.
func ends(t *testing.T, listed string) bool {
	t.Helper()
	var pid int
	if _, err := fmt.Sscan(listed, &pid); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000)
		if !errors.Is(err, unix.EINTR) { // the runtime's own signals interrupt it
			return n == 1 && err == nil
		}
	}
}

func TestWithoutAHelperTheProcessGroupEnds(t *testing.T) {
	s := detect(t, None, func(o *Options) { o.Reexec = false })
	n := sleeper(t, 6)
	out, exit := sh(t, s, folder(t), `sleep `+n+` & echo started; exit 3`)
	if out != "started\n" || exit.Code != 3 {
		t.Errorf("%q %+v", out, exit)
	}
	if left := alive(t, n); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	_, exit = sh(t, s, folder(t), "yes", func(c *tools.Command) { c.MaxOutput = 1000 })
	if exit.Limit != "output" || exit.Signal != "SIGKILL" {
		t.Errorf("%+v", exit)
	}
}

func TestInheritedFilesAreNotHandedOn(t *testing.T) {
	eachMode(t, func(t *testing.T, _ tools.Sandbox) {
		secret, err := os.Create(filepath.Join(t.TempDir(), "inherited-by-mistake"))
		if err != nil {
			t.Fatal(err)
		}
		defer secret.Close()
		if _, err := unix.FcntlInt(secret.Fd(), unix.F_SETFD, 0); err != nil { // as if a parent had left it open
			t.Fatal(err)
		}
		s := detect(t, Mode(t.Name()[strings.LastIndex(t.Name(), "/")+1:]))
		if out, _ := sh(t, s, folder(t), `ls -l /proc/self/fd`); strings.Contains(out, "inherited-by-mistake") {
			t.Errorf("a command has a file of ours:\n%s", out)
		}
	})
}

func TestTheServersMemoryIsClosedToItsUser(t *testing.T) {
	s := detect(t, None)
	if os.Getuid() == 0 {
		t.Skip("root reads every process's environment: nothing but bwrap keeps it from that")
	}
	out, _ := sh(t, s, folder(t), fmt.Sprintf(`cat /proc/%d/environ /proc/$PPID/environ && echo read`, os.Getpid()))
	if strings.Contains(out, "read\n") {
		t.Errorf("the environment was read:\n%s", out)
	}
}
