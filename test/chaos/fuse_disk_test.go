package chaos

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// sickDisk shows a folder as a file system of its own, whose answers can be told to fail. No process of these tests
// may map its files in the process that serves it: only what is started does.
type sickDisk struct {
	t            *testing.T
	backing, dir string
	server       *fuse.Server

	writes, syncs atomic.Int32 // the error number that they answer, 0: none
	refused       atomic.Int64 // how many did
	asked, fatal  atomic.Int64 // writes and syncs so far, and the one from which on all fail; 0: none
	hangs         atomic.Pointer[chan struct{}]
	hanging       atomic.Int64
}

func newSickDisk(t *testing.T) *sickDisk {
	t.Helper()
	root, err := os.MkdirTemp("", "tsd")
	if err != nil {
		t.Fatal(err)
	}
	d := &sickDisk{t: t, backing: root + "/real", dir: root + "/disk"}
	t.Cleanup(func() {
		d.heal()
		d.unmount()
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{d.backing, d.dir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.mount(); err != nil {
		t.Skipf("a disk that fails needs FUSE (root on Linux, or fusermount3): %v", err)
	}
	return d
}

func (d *sickDisk) mount() error {
	root, err := fs.NewLoopbackRoot(d.backing)
	if err != nil {
		return err
	}
	node, _ := root.(*fs.LoopbackNode)
	d.server, err = fs.Mount(d.dir, &sickNode{LoopbackNode: node, disk: d}, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMount: true, Name: "sick"},
	})
	return err
}

func (d *sickDisk) unmount() {
	if d.server == nil {
		return
	}
	server, done := d.server, make(chan error, 1)
	d.server = nil
	go func() { done <- server.Unmount() }()
	select {
	case err := <-done:
		if err != nil {
			d.t.Errorf("unmount %s: %v", d.dir, err)
			_ = unix.Unmount(d.dir, unix.MNT_DETACH) // whoever is still on it must not keep it for ever
		}
	case <-time.After(5 * time.Second): // it is gone from here; a sandbox of another process has a copy of the mount
	}
}

// remount forgets what the kernel keeps of the files in memory: pages that could not be written are still there to
// be read.
func (d *sickDisk) remount() {
	d.t.Helper()
	d.unmount()
	if err := d.mount(); err != nil {
		d.t.Fatal(err)
	}
}

// sicken makes writes, syncs or both fail.
func (d *sickDisk) sicken(writes, syncs syscall.Errno) {
	d.writes.Store(int32(writes))
	d.syncs.Store(int32(syncs))
}

// hang makes syncs wait until the disk is healed.
func (d *sickDisk) hang() {
	gate := make(chan struct{})
	d.hangs.Store(&gate)
}

// failFrom makes the n-th write or sync from now on, and all behind it, fail.
func (d *sickDisk) failFrom(n int64) {
	d.fatal.Store(d.asked.Load() + n)
}

func (d *sickDisk) heal() {
	d.sicken(0, 0)
	d.fatal.Store(0)
	if gate := d.hangs.Swap(nil); gate != nil {
		close(*gate)
	}
}

// answer is what a write or a sync gets to hear before it happens.
func (d *sickDisk) answer(number *atomic.Int32) syscall.Errno {
	e, n := syscall.Errno(number.Load()), d.asked.Add(1)
	if fatal := d.fatal.Load(); fatal > 0 && n >= fatal {
		e = syscall.EIO
	}
	if e != 0 {
		d.refused.Add(1)
	}
	return e
}

// sickNode is a file or folder of the disk.
type sickNode struct {
	*fs.LoopbackNode
	disk *sickDisk
}

func (n *sickNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	node, _ := ops.(*fs.LoopbackNode)
	return &sickNode{LoopbackNode: node, disk: n.disk}
}

func (n *sickNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, kept, e := n.LoopbackNode.Open(ctx, flags)
	return n.handle(f), kept, e
}

func (n *sickNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if e := n.disk.answer(&n.disk.writes); e != 0 {
		return nil, nil, 0, e
	}
	child, f, kept, e := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return child, n.handle(f), kept, e
}

func (n *sickNode) handle(f fs.FileHandle) fs.FileHandle {
	if real, ok := f.(*fs.LoopbackFile); ok {
		return &sickFile{LoopbackFile: real, disk: n.disk}
	}
	return f
}

// sickFile is an open file.
type sickFile struct {
	*fs.LoopbackFile
	disk *sickDisk
}

// PassthroughFd keeps the kernel from going past this file.
func (f *sickFile) PassthroughFd() (int, bool) { return 0, false }

func (f *sickFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if e := f.disk.answer(&f.disk.writes); e != 0 {
		return 0, e
	}
	return f.LoopbackFile.Write(ctx, data, off)
}

func (f *sickFile) Writev(ctx context.Context, data [][]byte, off int64) (uint32, syscall.Errno) {
	if e := f.disk.answer(&f.disk.writes); e != 0 {
		return 0, e
	}
	return f.LoopbackFile.Writev(ctx, data, off)
}

func (f *sickFile) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	if e := f.disk.answer(&f.disk.writes); e != 0 {
		return e
	}
	return f.LoopbackFile.Allocate(ctx, off, size, mode)
}

func (f *sickFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	if gate := f.disk.hangs.Load(); gate != nil {
		f.disk.hanging.Add(1)
		<-*gate
	}
	if e := f.disk.answer(&f.disk.syncs); e != 0 {
		return e
	}
	return f.LoopbackFile.Fsync(ctx, flags)
}
