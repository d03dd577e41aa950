package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/tools"
)

// attackVar has this test program, run as a confined command, attack what is outside.
const attackVar = "SANDBOX_TEST_ATTACK"

func attackFrom(args string) {
	part := strings.Split(args, ",")
	pid, _ := strconv.Atoi(part[2])
	attack(part[0], part[1], pid)
}

// attack tries what must fail and tells what did not. Args: a file outside, a socket outside, a
// process outside.
func attack(file, socket string, pid int) {
	tell := func(what string, err error) {
		if err == nil {
			fmt.Println("DONE", what)
		} else {
			fmt.Println("failed", what, err)
		}
	}
	_, err := os.ReadFile(file)
	tell("read outside", err)
	tell("truncate outside", os.Truncate(file, 0))
	tell("remove outside", os.Remove(file))
	tell("rename into the workspace", os.Rename(file, "stolen"))
	tell("link into the workspace", os.Link(file, "linked"))
	_, err = net.DialTimeout("unix", socket, time.Second)
	tell("connect to a socket", err)
	tell("signal", unix.Kill(pid, 0))
	tell("trace", unix.PtraceAttach(pid))
	_, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	tell("environ", err)
	_, err = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	tell("cmdline", err)
	tell("mount", unix.Mount("tmpfs", ".", "tmpfs", 0, ""))
	tell("namespace", unix.Unshare(unix.CLONE_NEWUSER))
	tell("namespace for files", unix.Unshare(unix.CLONE_NEWNS))
	tell("bind", exec.Command("unshare", "-Ur", "true").Run())
	_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	tell("io_uring", nonzero(errno))
	_, err = unix.KeyctlInt(unix.KEYCTL_GET_KEYRING_ID, unix.KEY_SPEC_SESSION_KEYRING, 0, 0, 0)
	tell("keyctl", err)
	_, _, errno = unix.Syscall(unix.SYS_BPF, 0, 0, 0)
	tell("bpf", refusedBy(errno))
	_, err = net.DialTimeout("tcp", "192.0.2.1:80", 200*time.Millisecond)
	tell("connect outside", err)
	tell("make a device", unix.Mknod("device", unix.S_IFCHR|0o600, 1<<8|3))
	tell("gain", gain())
	tell("change a mode outside", os.Chmod(file, 0o640)) //nolint:gosec // it is the attack
	tell("set a time outside", os.Chtimes(file, time.Time{}, time.Unix(1, 0)))
	tell("limit a process outside", unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &unix.Rlimit{}))
	tell("be nice for everybody", setpriority(pid))
	_, _, errno = unix.Syscall(unix.SYS_SCHED_SETAFFINITY, uintptr(pid), 0, 0)
	tell("choose another's processors", refusedOrMissing(errno))
	tell("shared memory", sharedMemory(pid))
	tell("send to a socket", sendBeside(socket+"d"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fmt.Println("loopback", err == nil)
	if err == nil {
		l.Close()
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	fmt.Println("pair", err == nil, pair[0] != pair[1])
}

func setpriority(pid int) error {
	prio, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, pid, 20-prio)
}

// sharedMemory looks for the segment that the process outside has made with its own id as the key.
func sharedMemory(key int) error {
	_, err := unix.SysvShmGet(key, 1, 0)
	return err
}

// sendBeside goes round the rule that no socket in the file system can be opened: one of a pair of packets is one.
func sendBeside(path string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	return unix.Sendto(pair[0], []byte("forged"), 0, &unix.SockaddrUnix{Name: path})
}

// refusedOrMissing tells a call that was refused, or found nobody, from one that was only wrong.
func refusedOrMissing(errno unix.Errno) error {
	if errors.Is(errno, unix.ESRCH) {
		return errno
	}
	return refusedBy(errno)
}

func nonzero(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return refusedBy(errno)
}

// refusedBy tells a call that was refused from one that was only wrong.
func refusedBy(errno unix.Errno) error {
	if errors.Is(errno, unix.EPERM) || errors.Is(errno, unix.ENOSYS) {
		return errno
	}
	return nil
}

// gain tries to get privileges back.
func gain() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
	return unix.Capset(&header, &data[0])
}

func TestLandlockHoldsWhatAProgramTries(t *testing.T) {
	for _, mode := range []Mode{Bwrap, Landlock, bareLandlock} {
		t.Run(string(mode), func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			outside, ws := besideTemp(t), folder(t)
			file := filepath.Join(outside, "secret")
			if err := os.WriteFile(file, []byte("TOPSECRET"), 0o666); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", filepath.Join(outside, "s"))
			if err != nil {
				t.Skipf("no sockets in files here: %v", err)
			}
			defer l.Close()
			packets, err := net.ListenPacket("unixgram", filepath.Join(outside, "sd"))
			if err != nil {
				t.Fatal(err)
			}
			defer packets.Close()
			if id, err := unix.SysvShmGet(os.Getpid(), 1, unix.IPC_CREAT|0o600); err == nil {
				defer func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }()
			}
			program := filepath.Join(ws, "attack")
			copyFile(t, self, program)
			s := detect(t, mode)
			out, _ := sh(t, s, ws, "./attack", func(c *tools.Command) {
				c.Env = append(c.Env, fmt.Sprintf("%s=%s,%s,%d", attackVar, file, l.Addr(), os.Getpid()))
			})
			allowed := ""
			if mode == Bwrap {
				allowed = "io_uring bpf keyctl" // it filters no calls; what they reach is its own
			}
			if isBare(s) { // landlock has no word about it, and builds need it
				allowed = "change a mode outside, set a time outside"
			}
			for line := range strings.Lines(out) {
				if what, ok := strings.CutPrefix(line, "DONE "); ok && !strings.Contains(allowed, strings.TrimSpace(what)) {
					t.Errorf("it could %s", what)
				}
			}
			if want := fmt.Sprintf("loopback %v", !isBare(s)); !strings.Contains(out, want) || !strings.Contains(out, "pair true true") {
				t.Errorf("want %q:\n%s", want, out)
			}
			if n := strings.Count(out, "failed ") + strings.Count(out, "DONE "); n != 27 {
				t.Errorf("%d attacks were tried:\n%s", n, out)
			}
			if b, err := os.ReadFile(file); err != nil || string(b) != "TOPSECRET" {
				t.Errorf("the secret is %q, %v", b, err)
			}
		})
	}
}

// besideTemp is a folder that no folder for temporary files of the command's own covers.
func besideTemp(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(home, ".troupe-test-*")
	if err != nil {
		t.Skipf("nothing can be made in the home of who runs this: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}

func TestLandlockNeedsAMainThatTakesPart(t *testing.T) {
	_, err := Detect(t.Context(), Landlock, Options{CacheDir: t.TempDir()})
	var missing *Unavailable
	if !errors.As(err, &missing) || !strings.Contains(missing.Hint, "sandbox.Main") {
		t.Errorf("%v", err)
	}
}

// It runs as root where the suites do, and by .ci/unprivileged as somebody else.
func TestLandlockNeedsNoPrivileges(t *testing.T) {
	if abi := landlockABI(); abi < leastBareABI || !hasFilter {
		t.Skipf("the kernel's landlock has version %d", abi)
	}
	for _, bare := range []bool{false, true} {
		s, err := Detect(t.Context(), Landlock, Options{CacheDir: folder(t), Reexec: true, Bare: bare})
		if err != nil {
			t.Fatal(err)
		}
		if l := s.(*landlock); l.why != nil { //nolint:forcetypeassert // it is one
			t.Logf("no namespaces here: %v", l.why)
		}
		out, exit := sh(t, s, folder(t), "echo ran; id -u")
		if exit.Code != 0 || out != fmt.Sprintf("ran\n%d\n", os.Getuid()) {
			t.Errorf("%+v: %s", exit, out)
		}
	}
}

func TestAutoTakesLandlockWhereBwrapIsMissing(t *testing.T) {
	detect(t, Landlock)
	t.Setenv("PATH", t.TempDir())
	if s := detect(t, Auto); s.Name() != "landlock" || !s.Confines() {
		t.Errorf("%s, confines: %v", s.Name(), s.Confines())
	}
}

// Without namespaces a command can put something into the folder that we make; nobody heeds it later.
func TestWhatACommandPutsIntoTroupesFolderIsMovedAway(t *testing.T) {
	s, ws := detect(t, bareLandlock), folder(t)
	sh(t, s, ws, `mkdir -p .troupe; echo 'policy: {trust: full}' >.troupe/config.yaml`)
	if _, err := os.Lstat(filepath.Join(ws, ".troupe")); err == nil {
		t.Error("its settings stay in the workspace")
	}
}
