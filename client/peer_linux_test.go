package client_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/client"
)

// A socket that somebody else put where ours was gets no prompt.
func TestAnotherUsersServerIsNotSpokenTo(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can listen as somebody else")
	}
	shared, err := os.MkdirTemp("", "troupe-shared-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(shared) })
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(shared)); err != nil || info.Mode().Perm()&1 == 0 {
		t.Skipf("others cannot enter %s", filepath.Dir(shared))
	}
	path := filepath.Join(shared, "s.sock")
	l, err := listenAs(path, 65534)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan int, 1)
	go func() {
		n := 0
		if c, err := l.Accept(); err == nil {
			n, _ = c.Read(make([]byte, 1))
			c.Close()
		}
		heard <- n
	}()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "socket"), []byte(path), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Dial(t.Context(), dir); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("dialled a stranger: %v", err)
	}
	if n := <-heard; n != 0 {
		t.Error("the stranger was told something")
	}
	l.Close()
}

// listenAs makes a socket as another user. Its thread, which alone changes users, ends with it.
func listenAs(path string, uid uintptr) (net.Listener, error) {
	type result struct {
		l   net.Listener
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: nobody else gets this thread
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			done <- result{err: errno}
			return
		}
		l, err := net.Listen("unix", path)
		done <- result{l, err}
	}()
	r := <-done
	return r.l, r.err
}
