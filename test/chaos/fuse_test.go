package chaos

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/model/script"
)

// TestFailingDiskEndsTheProgramAndTheNextOneGoesOn: in the middle of a turn the disk begins to fail. The program says
// so and ends; nothing hangs and nothing is retried; when the disk is well the turn goes on.
func TestFailingDiskEndsTheProgramAndTheNextOneGoesOn(t *testing.T) {
	for _, c := range []struct {
		name          string
		writes, syncs syscall.Errno
	}{
		{"writes", syscall.EIO, 0},
		{"syncs", 0, syscall.EIO},
		{"both", syscall.EIO, syscall.EIO},
		{"a quota", syscall.EDQUOT, syscall.EDQUOT}, // free space is reported, and cannot be used
		{"no space", syscall.ENOSPC, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newSickDisk(t)
			m := newMachine(t)
			srv := m.serve(gates, script.ServeOptions{})
			m.keepIn(d.dir)
			m.want(0, prompt("hello")...)
			id := m.session()
			r := m.blocked("begun-one", "run", "-s", id, "block one")
			d.sicken(c.writes, c.syncs)
			m.write("go", "")
			e := r.wait()
			if e.code != 74 || strings.Contains(e.err, "goroutine ") || !strings.Contains(e.err, m.data()) {
				t.Errorf("want 74 and the folder: %s", e)
			}
			if strings.Contains(e.out, "I have finished") {
				t.Errorf("an answer that is not durable was told: %s", e)
			}
			if d.refused.Load() == 0 {
				t.Error("the disk did not fail at anything")
			}
			t.Logf("%d failures: %s", d.refused.Load(), e)
			e = m.run(prompt("hello", "--data", m.data())...)
			t.Logf("started on a failing disk: %s", e)
			if e.code != 74 || strings.Contains(e.err, "goroutine ") {
				t.Errorf("started on a failing disk, want 74: %s", e)
			}
			d.heal()
			d.remount()
			if e := m.run("run", "-s", id); e.code != 0 || !strings.Contains(e.out, "I have finished one.") {
				t.Errorf("on a disk that is well again: %s", e)
			}
			m.sound(id)
			if s := m.stats(srv); s.Refused > 0 {
				t.Errorf("the model refused requests: %+v", s)
			}
		})
	}
}

// TestDiskThatFailsAtAnyMomentLosesNothingThatWasTold lets every write and sync from the n-th on fail, for some n of
// a run: TROUPE_CHAOS_FAULTS says how many (make faults). What was told before is there when the disk is well, and
// the turn is done.
func TestDiskThatFailsAtAnyMomentLosesNothingThatWasTold(t *testing.T) {
	d := newSickDisk(t)
	calm := newOrdeal(t)
	calm.keepIn(d.dir)
	calm.attempt(0)
	calm.check()
	all := d.asked.Load()
	t.Logf("a run writes and syncs %d times", all)
	few := 12
	if testing.Short() {
		few = 4
	}
	faults := int64(number(t, "TROUPE_CHAOS_FAULTS", few))
	for n := int64(1); n <= all; n += max(all/faults, 1) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			d := newSickDisk(t)
			o := newOrdeal(t)
			o.keepIn(d.dir)
			d.failFrom(n)
			e := o.run(prompt("work", "-o", "ndjson")...)
			// The database ends the process itself where it cannot make one of its files, and names it. Who closes a store in which everything is durable may fail at that, and says so.
			done := e.code == 0 && strings.Contains(e.out, "all done") && (d.refused.Load() == 0 || strings.Contains(e.err, "warning: "))
			killed := e.code == 1 && strings.Contains(e.err, "unable to open: ")
			if e.code != 74 && !done && !killed || strings.Contains(e.err, "goroutine ") {
				t.Errorf("want 74 after %d failures: %s", d.refused.Load(), e)
			}
			d.heal()
			d.remount()
			o.events(e.out)
			o.whole()
			o.id = o.session()
			o.attempt(0)
			o.check()
		})
	}
}

// TestDiskThatHangsDelaysAndEndsNothing: while syncs do not return nothing is told that would need them, and who
// does not want to wait can leave; then everything goes on.
func TestDiskThatHangsDelaysAndEndsNothing(t *testing.T) {
	for _, leave := range []bool{false, true} {
		t.Run(fmt.Sprintf("leave=%v", leave), func(t *testing.T) {
			t.Parallel()
			d := newSickDisk(t)
			m := newMachine(t)
			m.serve(gates, script.ServeOptions{})
			m.keepIn(d.dir)
			m.want(0, prompt("hello")...)
			id := m.session()
			r := m.blocked("begun-one", "run", "-s", id, "block one")
			d.hang()
			m.write("go", "")
			m.eventually("nothing waits for the disk", func() bool { return d.hanging.Load() > 0 })
			if leave {
				// The second one leaves. Two that come at once are one, for the kernel and for the program.
				m.eventually("it does not leave", func() bool {
					r.signal(syscall.SIGINT)
					return ends(r.cmd.Process.Pid)
				})
			} else {
				<-time.After(time.Second) // longer than the watermark waits for its own sync
				if strings.Contains(r.out.String(), "I have finished") {
					t.Errorf("an answer that is not durable was told: %q", r.out)
				}
			}
			d.heal()
			e := r.wait()
			status, _ := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
			switch {
			case leave && e.code != 130 && status.Signal() != syscall.SIGINT:
				t.Errorf("interrupted: %s", e)
			case !leave && (e.code != 0 || !strings.Contains(e.out, "I have finished one.")):
				t.Errorf("after a while: %s", e)
			}
			if e := m.run("run", "-s", id); e.code != 0 || !strings.Contains(e.out, "I have finished one.") {
				t.Errorf("on a disk that is well again: %s", e)
			}
			m.sound(id)
		})
	}
}
