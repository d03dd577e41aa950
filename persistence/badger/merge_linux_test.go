package badger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// mergeDir names, for a child, the store whose tables it merges on a disk without room.
const mergeDir = "TROUPE_TEST_MERGE"

// mergeReserveOfChild is the room that the child keeps: its disk is small.
const mergeReserveOfChild = 4 << 20

// smallDisk keeps a store on a small file system.
func smallDisk(o *Options) {
	o.RefuseTurnsBelow, o.RefuseAppendsBelow = mergeReserveOfChild, mergeReserveOfChild
}

// blindTo names what a child does that does not see how full its disk is: it stands for a disk that somebody fills between the look at its free space and the
// write that the look was for.
const blindTo = "TROUPE_TEST_BLIND"

// blindChild appends until it dies, or merges on a full disk.
func blindChild(dir, do string) {
	plenty := func(string) (uint64, error) { return 1 << 40, nil }
	s, err := Open(context.Background(), Options{Dir: dir, Ballast: -1, Brief: true, FreeSpace: plenty, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	l, err := s.Claim(context.Background(), "wrk/a", "child")
	fmt.Println("ready", err)
	bufio.NewScanner(os.Stdin).Scan()
	if do == "merge" {
		fmt.Println("merged", s.db.Flatten(1))
		return
	}
	for {
		r := textRecord("wrk/a", l.Next)
		r.Body = make([]byte, 16<<10)
		if _, err := s.Append(context.Background(), persistence.Batch{Lease: l, Expect: l.Next, Session: "s", Records: []*messages.Record{r}}); err != nil {
			fmt.Println("failed", err)
			return
		}
		fmt.Println("acked", l.Next)
		l.Next++
	}
}

// mergeChild opens a store, waits until it is told to and merges its tables.
func mergeChild(dir string) {
	if do := os.Getenv(blindTo); do != "" {
		blindChild(dir, do)
		return
	}
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
	disk := smallFileSystem(t)
	dir := filepath.Join(disk, "store")
	severalTables(t, dir, smallDisk)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), mergeDir+"="+dir)
	in, lines := converse(t, cmd)
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

// TestAProcessThatAFullDiskEndsHasLostNothing has the guard see room that is not there: the process dies by the signal that the kernel sends for a mapped page
// without a block, in the middle of an append, or of a merge.
func TestAProcessThatAFullDiskEndsHasLostNothing(t *testing.T) {
	for _, do := range []string{"append", "merge"} {
		t.Run(do, func(t *testing.T) {
			disk := smallFileSystem(t)
			dir := filepath.Join(disk, "store")
			severalTables(t, dir, smallDisk)
			acked, said := blindLife(t, disk, dir, do)
			if acked == 0 && do == "append" || !strings.Contains(said, "SIGBUS") {
				t.Fatalf("%d appends were acknowledged, and then it said %q", acked, said[:min(len(said), 500)])
			}
			s := openIn(t, dir, smallDisk)
			sum, err := s.Verify(t.Context(), nil, func(f persistence.Finding) { t.Errorf("%+v", f) })
			head, herr := s.Head(t.Context(), "wrk/a")
			if err != nil || herr != nil || head < 10*severalCount+acked || uint64(sum.Records) != head {
				t.Errorf("the stream ends at %d, %d were acknowledged more, %d records are sound; %v, %v", head, acked, sum.Records, err, herr)
			}
			appendTo(t, s, "wrk/b", "s", 3)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// blindLife runs a child until the full disk has ended it, and makes room. acked are the appends that it acknowledged.
func blindLife(t *testing.T, disk, dir, do string) (acked uint64, said string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), mergeDir+"="+dir, blindTo+"="+do, "GOTRACEBACK=none")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, lines := converse(t, cmd)
	for lines.Scan() {
		switch word, _, _ := strings.Cut(lines.Text(), " "); word {
		case "ready":
			leave := int64(0)
			if do == "append" {
				leave = 8 << 20 // for some of them
			}
			fillDisk(t, filepath.Join(disk, "filler"))
			if err := os.Truncate(filepath.Join(disk, "filler"), sizeOf(t, filepath.Join(disk, "filler"))-leave); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
		case "acked":
			acked++
		default:
			t.Errorf("the child said %q", lines.Text())
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the child lives on a full disk")
	}
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
	return acked, stderr.String()
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// smallFileSystem is one of 64 MiB.
func smallFileSystem(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// converse starts a process that is told something and tells lines. It ends with the test at the latest.
func converse(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, lines *bufio.Scanner) {
	t.Helper()
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
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // most have ended by then
	return in, bufio.NewScanner(out)
}
