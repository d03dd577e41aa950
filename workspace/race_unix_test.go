//go:build unix

package workspace_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/messages"
)

// A name is a file, a FIFO, a directory, a link out, a hard link to something outside and a link
// to a protected file in turn: a read gives the file's content or fails, and never waits.
func TestANameThatChangesItsKindIsReadAsAFileOrNotAtAll(t *testing.T) {
	full, root, out := open(t)
	w := full.Under(messages.Trust_RESTRICTED)
	put(t, root, "kinds/file", "safe")
	put(t, root, ".troupe/key", "TOPSECRET")
	kind := func(name string) string { return filepath.Join(root, "kinds", name) }
	must(t, unix.Mkfifo(kind("fifo"), 0o644), os.Mkdir(kind("dir"), 0o755), os.Symlink(filepath.Join(out, "secret"), kind("link")),
		os.Symlink("../.troupe/key", kind("key")), os.Symlink(".troupe", filepath.Join(root, "kinds", "up")), os.Link(filepath.Join(out, "secret"), kind("hard")))
	stop := make(chan struct{})
	var changer sync.WaitGroup
	changer.Go(func() {
		for {
			for _, name := range []string{"file", "fifo", "dir", "link", "key", "hard"} {
				select {
				case <-stop:
					return
				default:
					_ = os.Rename(kind(name), kind("x")) // single-threaded: it fails only when the test is over
					_ = os.Rename(kind("x"), kind(name))
				}
			}
		}
	})
	read, refused, end := 0, 0, time.Now().Add(30*time.Second)
	for read+refused < 5_000 || read == 0 || refused == 0 { // on a machine with much to do the other one may not have begun
		if time.Now().After(end) {
			break
		}
		f, err := w.ReadFile("kinds/x", 0)
		if err != nil {
			refused++
			continue
		}
		read++
		if string(f.Data) != "safe" {
			t.Errorf("read %q", f.Data)
		}
		if _, err := w.ReadFile("kinds/x/y", 0); err == nil {
			t.Error("read below what is no directory of ours")
		}
	}
	close(stop)
	changer.Wait()
	if read == 0 || refused == 0 {
		t.Errorf("%d reads and %d refusals: the race was not run", read, refused)
	}
}
