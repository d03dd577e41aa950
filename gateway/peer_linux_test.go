package gateway_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Another user is refused also where the permissions of the socket would let them in.
func TestAnotherUsersConnectionIsClosedUnread(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can connect as somebody else")
	}
	dir := mkdirTemp(t)
	l, path := listen(t, dir)
	for name, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(filepath.Dir(dir)); err != nil || info.Mode().Perm()&1 == 0 {
		t.Skipf("others cannot enter %s", filepath.Dir(dir))
	}
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept() // the first one that counts is our own
		if err == nil {
			_, err = c.Write([]byte("own"))
			c.Close()
		}
		served <- err
	}()
	if got, err := talk(path, 65534); err != nil || got != "" {
		t.Errorf("a stranger read %q, %v", got, err)
	}
	if got, err := talk(path, 0); err != nil || got != "own" {
		t.Errorf("the owner read %q, %v", got, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// talk connects as a user and reads to the end. Its thread, which alone changes users, ends with it.
func talk(path string, uid uintptr) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: nobody else gets this thread
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			done <- result{err: errno}
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			done <- result{err: err}
			return
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			done <- result{err: err}
			return
		}
		buf := make([]byte, 16)
		n, err := unix.Read(fd, buf)
		done <- result{string(buf[:max(n, 0)]), err}
	}()
	r := <-done
	return r.text, r.err
}
