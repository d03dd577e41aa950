package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/model/script"
)

// lasting is a turn all of whose effects are files: what a tool has said to be written must be on the disk. What
// commands write is their own affair, so there are none.
const lasting = `
name: lasting
rules:
  - match: '^work'
    steps:
      - text: I write.
        tool_calls:
          - {name: write_file, arguments: {path: notes.md, content: "# Notes\n"}}
          - {name: read_file, arguments: {path: a.txt, limit: 5}}
      - text: I edit.
        tool_calls:
          - {name: edit_file, arguments: {path: a.txt, edits: [{old_string: 'head one', new_string: 'head two'}, {old_string: 'tail one', new_string: 'tail two'}]}}
          - {name: write_file, arguments: {path: deep/er/more.md, content: "more\n"}}
      - text: I edit again.
        tool_calls:
          - {name: edit_file, arguments: {path: a.txt, edits: [{old_string: 'head two', new_string: 'head three'}, {old_string: 'tail two', new_string: 'tail three'}]}}
      - text: all done
`

// TestPowerCutsLeaveWhatTheProgramHasToldAndWritten: data directory and workspace lie on a disk that loses power
// while a run is under way, some times in a row; then the run ends. What it told has happened, what its tools wrote
// is there, and nobody is told something else later.
func TestPowerCutsLeaveWhatTheProgramHasToldAndWritten(t *testing.T) {
	cuts := number(t, "TROUPE_CHAOS_CUTS", 4)
	seed := number(t, "TROUPE_CHAOS_SEED", int(time.Now().UnixNano()))
	t.Logf("TROUPE_CHAOS_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 3))
	d := newCutDisk(t, 2048)
	hit := 0
	for n := 0; hit < cuts; n++ {
		going := t.Run(fmt.Sprint(n), func(t *testing.T) { // what is on the disk goes with it: it would not hold all
			o := &ordeal{machine: newMachineIn(t, d.dir), seen: make(map[uint64]string)}
			srv := o.serve(lasting, script.ServeOptions{Latency: 3 * time.Millisecond})
			o.write("a.txt", version("one"))
			if err := syncDisk(d.dir); err != nil {
				t.Fatal(err)
			}
			for range 1 + rng.IntN(3) {
				o.strike(d, rng)
				hit++
			}
			o.attempt(0)
			if o.read("deep/er/more.md") != "more\n" {
				t.Errorf("a file in a new folder is %q", o.read("deep/er/more.md"))
			}
			o.outcome()
			if s := o.stats(srv); s.Refused+s.Unmatched > 0 {
				t.Errorf("the model refused requests: %+v", s)
			}
		})
		if !going {
			return
		}
	}
}

// strike runs, or resumes, the turn, takes the power from it at some moment, and looks at what is left.
func (o *ordeal) strike(d *cutDisk, rng *rand.Rand) {
	o.t.Helper()
	args := prompt("work", "-o", "ndjson")
	if o.id != "" {
		args = []string{"run", "-s", o.id, "-o", "ndjson"}
	}
	r := o.start(args...)
	lines := rng.IntN(24) // of a turn that has about thirty
	o.eventually("the run tells nothing", func() bool {
		return strings.Count(r.out.String(), "\n") >= lines || len(o.processes()) == 0
	})
	<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond)
	told := r.out.String()
	d.cut([]int{logFlushed, logDropped}[rng.IntN(2)])
	r.kill()
	o.eventually("processes survive", func() bool { return len(o.processes()) == 0 })
	d.restore("")
	o.events(told[:strings.LastIndex(told, "\n")+1])
	o.whole()
	last := uint64(0)
	for seq := range o.seen {
		last = max(last, seq)
	}
	if o.id == "" {
		o.id = o.session()
	}
	if last == 0 {
		return
	}
	s, err := writerStore(troupe.StoreDir(o.data()))
	if err != nil {
		o.t.Fatal(err)
	}
	if cursor, err := s.Cursor(context.Background(), o.id); err != nil || cursor < last {
		o.t.Errorf("the store ends at cursor %d, event %d was told: %v", cursor, last, err)
	}
	if err := s.Close(); err != nil {
		o.t.Error(err)
	}
}

func syncDisk(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}
