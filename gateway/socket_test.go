package gateway_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/gateway"
)

func listen(t *testing.T, dir string) (net.Listener, string) {
	t.Helper()
	l, path, err := gateway.ListenSocket(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

// abandon leaves a socket behind as a killed process does.
func abandon(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// longDir is a folder whose socket path no kernel takes.
func longDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestTheSocketIsPrivateAndGoesWithItsListener(t *testing.T) {
	dir := t.TempDir()
	l, path := listen(t, dir)
	if want := filepath.Join(dir, "troupe.sock"); path != want {
		t.Errorf("listens on %s, want %s", path, want)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left behind %v, %v", left, err)
	}
}

func TestADeadHoldersSocketIsReplaced(t *testing.T) {
	dir := t.TempDir()
	abandon(t, filepath.Join(dir, "troupe.sock"))
	if err := os.WriteFile(filepath.Join(dir, "socket"), []byte("/nowhere/s.sock"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, path := listen(t, dir)
	if c, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if exists(filepath.Join(dir, "socket")) {
		t.Error("the file still names the socket of the dead one")
	}
}

func TestALiveSocketIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	_, path := listen(t, dir)
	if _, _, err := gateway.ListenSocket(dir); !errors.Is(err, gateway.ErrInUse) {
		t.Errorf("listened beside another: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first no longer answers: %v", err)
	} else {
		c.Close()
	}
}

func TestWhatIsNoSocketIsNotRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "troupe.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := gateway.ListenSocket(dir); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(path); string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

func TestALongPathGetsAShortSocketThatAFileNames(t *testing.T) {
	run := t.TempDir()
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, runtime, below string }{
		{"runtime folder", run, run},
		{"no runtime folder", "", os.TempDir()},
		{"runtime folder that is missing", filepath.Join(run, "missing"), os.TempDir()},
		{"runtime folder that others may enter", open, os.TempDir()},
		{"relative runtime folder", "run", os.TempDir()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", c.runtime)
			dir := longDir(t)
			l, path := listen(t, dir)
			if len(path) > 103 || !strings.HasPrefix(path, c.below+string(filepath.Separator)) {
				t.Errorf("listens on %s", path)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "socket")); string(b) != path {
				t.Errorf("the file names %q, %v", b, err)
			}
			if info, err := os.Lstat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("its folder is %v, %v", info.Mode(), err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if exists(path) || exists(filepath.Join(dir, "socket")) || c.below != run && exists(filepath.Dir(path)) {
				t.Error("something was left behind")
			}
		})
	}
}

func TestADeadHoldersShortSocketIsUsedAgain(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir, old := longDir(t), mkdirTemp(t)
	path := filepath.Join(old, "s.sock")
	abandon(t, path)
	if err := os.WriteFile(filepath.Join(dir, "socket"), []byte(path), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := listen(t, dir); got != path {
		t.Errorf("listens on %s, want %s again", got, path)
	}
}

func TestAFolderThatOthersMayEnterIsNotUsedAgain(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir, old := longDir(t), mkdirTemp(t)
	if err := os.Chmod(old, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "socket"), []byte(filepath.Join(old, "s.sock")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := listen(t, dir); filepath.Dir(got) == old {
		t.Errorf("listens on %s, where others may put things", got)
	}
}

func mkdirTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "troupe-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
