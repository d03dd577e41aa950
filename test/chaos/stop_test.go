package chaos

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// stopped sends SIGSTOP and waits until every thread has come to rest.
func stopped(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	(&machine{t: t}).eventually(fmt.Sprintf("process %d does not stop", p.Pid), func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("threads of process %d: %v %v", p.Pid, threads, err)
		}
		for _, thread := range threads {
			if s := stateIn(thread); s != 'T' && s != 0 {
				return false
			}
		}
		return true
	})
}

// state is the letter of a process's state, 0 when it is gone.
func state(pid int) byte { return stateIn(fmt.Sprintf("/proc/%d/stat", pid)) }

func stateIn(file string) byte {
	stat, _ := os.ReadFile(file)
	if i := bytes.LastIndex(stat, []byte(") ")); i >= 0 {
		return stat[i+2]
	}
	return 0
}

// ends says whether a process has ended but for those of its threads that wait for a disk, which no process can help: the kernel has told them to end.
func ends(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, thread := range threads {
		if s := stateIn(thread + "/stat"); s == 'Z' || s == 'X' || s == 0 {
			continue
		}
		status, _ := os.ReadFile(thread + "/status")
		_, pending, _ := strings.Cut(string(status), "\nSigPnd:\t")
		pending, _, _ = strings.Cut(pending, "\n")
		if set, err := strconv.ParseUint(pending, 16, 64); err == nil && set&(1<<(syscall.SIGKILL-1)) == 0 {
			return false
		}
	}
	return true
}

// pause is how long a stopped process stays so: longer than what is synced, polled or tried again in a hurry.
func pause() time.Duration {
	if testing.Short() {
		return time.Second
	}
	return 3 * time.Second
}

// TestStoppedHolderGoesOnWhereItWas stops a holder with a turn of its own and one of a client, both in the middle of
// something. A process that comes now is sent away; those that were there go on as if nothing had happened.
func TestStoppedHolderGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	srv := m.serve(gates, script.ServeOptions{})
	m.want(0, prompt("hello")...)
	id := m.session()
	holder := m.blocked("begun-one", "run", "-s", id, "block one")
	if err := os.Mkdir(m.folder+"/../else", 0o755); err != nil {
		t.Fatal(err)
	}
	other := m.blocked("../else/begun-two", prompt("block two", "-C", "../else")...)
	queued := m.start("run", "-s", id, "hello again")
	m.eventually("the queued input is not accepted", func() bool {
		w := list[[]messages.WorkerJSON](m, "ls", "workers", "--session", id)
		return len(w) == 1 && w[0].Staged == 1
	})
	stopped(t, holder.cmd.Process)
	m.write("go", "") // both commands end meanwhile
	m.write("../else/go", "")
	until := time.After(pause())
	if e := m.run("run", "-s", id, "and me"); e.code != 75 || !strings.Contains(e.err, fmt.Sprintf("process %d", holder.cmd.Process.Pid)) {
		t.Errorf("beside a stopped holder: want 75 and its pid: %s", e)
	}
	<-until
	for _, r := range []*running{other, queued} {
		if s := state(r.cmd.Process.Pid); s == 'Z' || s == 0 {
			t.Errorf("a client did not wait for its holder: %s", r.wait())
		}
	}
	holder.signal(syscall.SIGCONT)
	for _, c := range []struct {
		r    *running
		says string
	}{{holder, "I have finished one."}, {other, "I have finished two."}, {queued, "You said hello again"}} {
		if e := c.r.wait(); e.code != 0 || !strings.Contains(e.out, c.says) {
			t.Errorf("want %q: %s", c.says, e)
		}
	}
	if got := m.read("effects.log") + m.read("../else/effects.log"); got != "one\ntwo\n" {
		t.Errorf("the commands ran as %q", got)
	}
	if s := m.stats(srv); s.Refused > 0 {
		t.Errorf("the model refused requests: %+v", s)
	}
	m.sound(id)
}

// TestStoppedClientHearsTheEnd: it is the holder's turn to wait for who does not listen.
func TestStoppedClientHearsTheEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.serve(gates, script.ServeOptions{})
	m.want(0, prompt("hello")...)
	id := m.session()
	holder := m.blocked("begun-one", "run", "-s", id, "block one")
	client := m.start("run", "-s", id, "hello again")
	m.eventually("the client's input is not accepted", func() bool {
		w := list[[]messages.WorkerJSON](m, "ls", "workers", "--session", id)
		return len(w) == 1 && w[0].Staged == 1
	})
	stopped(t, client.cmd.Process)
	m.write("go", "")
	m.eventually("the holder's own turn does not end", func() bool { return strings.Contains(holder.out.String(), "I have finished one.") })
	<-time.After(pause())
	client.signal(syscall.SIGCONT)
	if e := client.wait(); e.code != 0 || !strings.Contains(e.out, "You said hello again") {
		t.Errorf("the client %s", e)
	}
	if e := holder.wait(); e.code != 0 {
		t.Errorf("the holder %s", e)
	}
	m.sound(id)
}

// TestStoppedAtRandomMomentsARunIsTheSame stops a run again and again, for a moment or for longer. Unlike a kill that
// changes nothing at all: no call is in doubt, and nothing happens twice.
func TestStoppedAtRandomMomentsARunIsTheSame(t *testing.T) {
	t.Parallel()
	seed := number(t, "TROUPE_CHAOS_SEED", int(time.Now().UnixNano()))
	t.Logf("TROUPE_CHAOS_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 4))
	o := newOrdeal(t)
	r := o.start(prompt("work", "-o", "ndjson")...)
	ended := make(chan struct{})
	go func() { defer close(ended); o.last = r.wait() }()
	stops := 0
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		case <-time.After(time.Duration(rng.IntN(60)) * time.Millisecond):
			r.signal(syscall.SIGSTOP)
			<-time.After(time.Duration(rng.IntN(400)) * time.Millisecond)
			r.signal(syscall.SIGCONT)
			stops++
		}
	}
	t.Logf("stopped %d times", stops)
	if stops < 3 {
		t.Error("this shows too little")
	}
	o.events(o.last.out)
	o.id = o.session()
	o.check()
	if effects := o.effects(); len(effects) != 8 {
		t.Errorf("the effects are %q", effects)
	}
}
