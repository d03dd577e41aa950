package badger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mergeDir names, for a child, the store whose tables it merges on a disk without room.
const mergeDir = "TROUPE_TEST_MERGE"

// mergeReserveOfChild is the room that the child keeps: its disk is small.
const mergeReserveOfChild = 4 << 20

// smallDisk keeps a store on a small file system.
func smallDisk(o *Options) {
	o.RefuseTurnsBelow, o.RefuseAppendsBelow = mergeReserveOfChild, mergeReserveOfChild
}

// mergeChild opens a store, waits until it is told to and merges its tables.
func mergeChild(dir string) {
	o := Options{Dir: dir, Ballast: -1, Brief: true, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	smallDisk(&o)
	s, err := Open(context.Background(), o)
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()
	fmt.Println("merged", s.db.Flatten(1))
	fmt.Println("closed", s.Close())
}

// fillDisk writes until a disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		n, err := f.Write(make([]byte, size))
		if errors.Is(err, syscall.ENOSPC) {
			size = min(n, size/2)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestAMergeOnADiskThatSomebodyFilledEndsWhenThereIsRoom has no block left when the merged table would be written: the process must
// not end by a signal.
func TestAMergeOnADiskThatSomebodyFilledEndsWhenThereIsRoom(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(disk, "store")
	severalTables(t, dir, smallDisk)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), mergeDir+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	until := func(word string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), word) {
				return
			}
		}
		_ = cmd.Process.Kill()
		t.Fatalf("the child did not say %q: %v", word, cmd.Wait())
	}
	until("ready")
	filler := filepath.Join(disk, "filler")
	fillDisk(t, filler)
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	until("not merged before there is room")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	until("merged <nil>")
	until("closed <nil>")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	s := openIn(t, dir, smallDisk)
	if head, err := s.Head(context.Background(), "wrk/a"); err != nil || head != 10*severalCount {
		t.Errorf("the stream ends at %d, %v", head, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
