package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The ways in which the kernel shuts a file system down. Either way nothing is written any more of
// what was not synced; they differ in what becomes of the file system's own journal.
const (
	shutdownRequest = 0x8004587d // FS_IOC_SHUTDOWN
	logFlushed      = 1          // sizes and names are kept, and the bytes are not
	logDropped      = 2          // neither is kept
)

// cutDisk is a file system of its own from which the power can be taken.
type cutDisk struct {
	t          *testing.T
	image, dir string
	mounted    bool
}

// newCutDisk makes an ext4 in a file. The file lies in memory where that can be had: what counts is what
// the file system hands to its device, and not when that is real.
func newCutDisk(t *testing.T, megabytes int64) *cutDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("power cuts need root: a file system of their own is mounted and shut down")
	}
	for _, program := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("power cuts need %s: %v", program, err)
		}
	}
	memory := "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		memory = ""
	}
	root, err := os.MkdirTemp(memory, "troupe-cut-")
	if err != nil {
		t.Fatal(err)
	}
	d := &cutDisk{t: t, image: root + "/image", dir: root + "/disk"}
	t.Cleanup(func() {
		d.unmount()
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(d.image)
	if err == nil {
		err = errors.Join(f.Truncate(megabytes<<20), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		t.Skipf("power cuts need an ext4 in a file: %v: %s", err, out)
	}
	if out, err := d.mount(""); err != nil {
		t.Skipf("power cuts need a loop device: %v: %s", err, out)
	}
	return d
}

func (d *cutDisk) mount(options string) ([]byte, error) {
	out, err := exec.Command("mount", "-t", "ext4", "-o", "loop"+options, d.image, d.dir).CombinedOutput()
	d.mounted = err == nil
	return out, err
}

func (d *cutDisk) unmount() {
	if !d.mounted {
		return
	}
	err := unix.Unmount(d.dir, 0)
	// The kernel takes away what processes had that have ended, open files and mount namespaces of sandboxes, in its own time.
	for limit := time.After(patience); errors.Is(err, unix.EBUSY); err = unix.Unmount(d.dir, 0) {
		select {
		case <-limit:
		case <-time.After(10 * time.Millisecond):
			continue
		}
		break
	}
	if err != nil {
		d.t.Errorf("unmount %s: %v", d.dir, err)
		_ = unix.Unmount(d.dir, unix.MNT_DETACH) // whoever is still on it must not keep it for ever
	}
	d.mounted = false
}

// cut takes the power away. Everything that is tried afterwards fails, until it is restored.
func (d *cutDisk) cut(how int) {
	d.t.Helper()
	f, err := os.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if err := d.owned(f); err != nil { // the machine's own disk can be shut down in the same way
		d.t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdownRequest, how); err != nil {
		d.t.Fatalf("shut %s down: %v", d.dir, err)
	}
}

// owned tells whether an open folder is the root of a mounted file system of ours.
func (d *cutDisk) owned(f *os.File) error {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var here, above, image unix.Stat_t
	err = errors.Join(unix.Fstat(int(f.Fd()), &here), unix.Stat(filepath.Dir(d.dir), &above), unix.Stat(d.image, &image))
	switch {
	case err != nil:
		return err
	case here.Dev == above.Dev || here.Dev == image.Dev:
		return fmt.Errorf("%s is no file system of its own", d.dir)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); f[1] == d.dir && f[2] == "ext4" && strings.HasPrefix(f[0], "/dev/loop") {
			return nil
		}
	}
	return fmt.Errorf("%s is no ext4 on a loop device", d.dir)
}

// restore starts the machine again: what is read from now on is what the device holds.
func (d *cutDisk) restore(options string) {
	d.t.Helper()
	d.unmount()
	if d.held() {
		// A sandbox of another process has a copy of the mount: while it lives the image is that of a file system that
		// was shut down. It writes nothing any more, so that a copy of it is what the power cut left.
		image := d.image + "+"
		if out, err := exec.Command("cp", "--sparse=always", d.image, image).CombinedOutput(); err != nil {
			d.t.Fatalf("copy the image: %v: %s", err, out)
		}
		if err := os.Remove(d.image); err != nil {
			d.t.Fatal(err)
		}
		d.image = image
	}
	if out, err := d.mount(options); err != nil {
		d.t.Fatalf("mount after a power cut: %v: %s", err, out)
	}
}

// held tells whether a device still has the image.
func (d *cutDisk) held() bool {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // none where it is unknown
	for _, name := range files {
		if file, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(file)) == d.image {
			return true
		}
	}
	return false
}

// writeSome makes the kernel write a few pages of its choosing, as it may at any time: what a cut leaves is not
// only what was synced, but that and any part of the rest.
func (d *cutDisk) writeSome(rng *rand.Rand) {
	d.t.Helper()
	var files []string
	_ = filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error { // files come and go
		if err == nil && e.Type().IsRegular() {
			files = append(files, path)
		}
		return nil
	})
	for range min(len(files), 4) {
		f, err := os.OpenFile(files[rng.IntN(len(files))], os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if info, err := f.Stat(); err == nil && info.Size() > 0 {
			_ = unix.SyncFileRange(int(f.Fd()), rng.Int64N(info.Size())&^4095, 64<<10, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
		}
		_ = f.Close()
	}
}
