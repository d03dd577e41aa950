package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHolderOfADataDirectoryIsFoundByItsLock(t *testing.T) {
	for _, name := range []string{".", "LOCK", "store", "store/LOCK"} {
		dir := filepath.Join(t.TempDir(), "odd [name]*")
		if err := os.MkdirAll(filepath.Join(dir, "store"), 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if filepath.Base(path) == "LOCK" {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if pid := holder(dir); pid != 0 {
			t.Errorf("%s: process %d holds a lock that nobody has taken", name, pid)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		if pid := holder(dir); pid != os.Getpid() {
			t.Errorf("%s: the holder is %d, not this process %d", name, pid, os.Getpid())
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
