package chaos

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// smallDisk is a memory file system that other people's files can fill.
type smallDisk struct {
	t   *testing.T
	dir string
}

func newSmallDisk(t *testing.T, size string) *smallDisk {
	t.Helper()
	dir, err := os.MkdirTemp("", "tfd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	mount(t, dir, "size="+size)
	return &smallDisk{t: t, dir: dir}
}

// fill writes until nothing more fits.
func (d *smallDisk) fill() {
	d.t.Helper()
	f, err := os.Create(d.dir + "/fill")
	if err != nil {
		d.t.Fatal(err)
	}
	for piece := make([]byte, 4<<20); err == nil; {
		_, err = f.Write(piece)
		<-time.After(time.Millisecond) // no disk is faster
	}
	if err := f.Close(); err != nil {
		d.t.Error(err)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatalf("the disk does not fill: %v", err)
	}
}

func (d *smallDisk) free() {
	d.t.Helper()
	if err := os.Remove(d.dir + "/fill"); err != nil {
		d.t.Fatal(err)
	}
}

// TestDiskThatFillsUpInATurnIsNamedAndTheTurnGoesOnWithRoom: others fill the disk to the last byte while a command
// runs. The run says so and waits; it goes on by itself when there is room, or in another process when it was left.
func TestDiskThatFillsUpInATurnIsNamedAndTheTurnGoesOnWithRoom(t *testing.T) {
	for _, leave := range []bool{false, true} {
		t.Run(fmt.Sprintf("leave=%v", leave), func(t *testing.T) {
			t.Parallel()
			d := newSmallDisk(t, "500m")
			m := newMachine(t)
			srv := m.serve(gates, script.ServeOptions{})
			m.keepIn(d.dir)
			m.want(0, prompt("hello")...)
			id := m.session()
			r := m.blocked("begun-one", "run", "-s", id, "block one")
			d.fill()
			m.write("go", "")
			m.eventually("nobody is told that the disk is full", func() bool {
				return strings.Contains(r.err.String(), "not enough free disk space") && strings.Contains(r.err.String(), m.data())
			})
			if all := list[[]messages.SessionJSON](m, "ls", "sessions"); len(all) != 1 {
				t.Errorf("on a full disk there are %v", all)
			}
			if leave {
				r.signal(syscall.SIGINT)
				if e := r.wait(); e.code != 130 {
					t.Errorf("interrupted on a full disk: %s", e)
				}
				d.free()
				r = m.start("run", "-s", id)
			} else {
				d.free()
			}
			if e := r.wait(); e.code != 0 || !strings.Contains(e.out, "I have finished one.") {
				t.Errorf("with room again: %s", e)
			}
			m.sound(id)
			if s := m.stats(srv); s.Refused > 0 {
				t.Errorf("the model refused requests: %+v", s)
			}
		})
	}
}

// TestDiskThatFillsUpAgainAndAgainKillsNobody runs turns while somebody fills the disk at full speed, to the last
// byte, and makes room again: a write to a page without a block behind it would be the end of the process.
func TestDiskThatFillsUpAgainAndAgainKillsNobody(t *testing.T) {
	runs := 6
	if testing.Short() {
		runs = 2
	}
	d := newSmallDisk(t, "500m")
	o := newOrdeal(t)
	o.keepIn(d.dir)
	o.want(0, "ls", "sessions")
	for n := range runs {
		o.t.Logf("run %d", n)
		r := o.start(prompt("work", "-o", "ndjson")...)
		o.id, o.seen = "", make(map[uint64]string)
		ended := make(chan struct{})
		go func() { defer close(ended); o.last = r.wait() }()
		for range 4 { // each time the worker waits longer before it tries again
			select {
			case <-ended:
			case <-time.After(200 * time.Millisecond):
				d.fill()
				<-time.After(50 * time.Millisecond)
				d.free()
			}
		}
		<-ended
		refused := (o.last.code == 74 || o.last.code == 75) && strings.Contains(o.last.err, "not enough free disk space")
		if o.last.code != 0 && !refused || strings.Contains(o.last.err, "goroutine ") {
			t.Errorf("on a disk that fills up: %s", o.last)
		}
		o.events(o.last.out)
	}
	for _, s := range list[[]messages.SessionJSON](o.machine, "ls", "sessions") {
		o.want(0, "run", "-s", s.ID)
		o.sound(s.ID)
	}
}
