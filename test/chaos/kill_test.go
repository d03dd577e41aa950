package chaos

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// work is a turn with calls of every kind: reads side by side, a new file, commands that say in
// effects.log when they began and ended, and two edits of one file in one message.
const work = `
name: work
rules:
  - match: '^work'
    steps:
      - text: I look around first.
        tool_calls:
          - {name: list_files, arguments: {path: .}}
          - {name: read_file, arguments: {path: a.txt, limit: 5}}
          - {name: read_file, arguments: {path: b.txt}}
          - {name: grep, arguments: {pattern: tail}}
      - text: Now I write.
        tool_calls:
          - {name: write_file, arguments: {path: notes.md, content: "# Notes\n"}}
          - {name: exec, arguments: {command: 'C1'}}
      - text: Now I edit twice.
        tool_calls:
          - {name: edit_file, arguments: {path: a.txt, edits: [{old_string: 'head one', new_string: 'head two'}, {old_string: 'tail one', new_string: 'tail two'}]}}
          - {name: edit_file, arguments: {path: a.txt, edits: [{old_string: 'head two', new_string: 'head three'}, {old_string: 'tail two', new_string: 'tail three'}]}}
          - {name: exec, arguments: {command: 'C2'}}
      - text: Two commands, and a look.
        tool_calls:
          - {name: exec, arguments: {command: 'C3'}}
          - {name: exec, arguments: {command: 'C4'}}
          - {name: read_file, arguments: {path: a.txt, limit: 5}}
      - text: all done
`

// workTools are the calls of that turn, in order.
var workTools = strings.Fields("list_files read_file read_file grep write_file exec edit_file edit_file exec exec exec read_file")

func workScript() string {
	text := work
	for i := 1; i <= 4; i++ {
		name := "C" + strconv.Itoa(i)
		text = strings.ReplaceAll(text, "'"+name+"'",
			fmt.Sprintf(`'echo "begin %s $TROUPE_EXEC_ID" >> effects.log; sleep 0.02; echo "end %s $TROUPE_EXEC_ID" >> effects.log'`, name, name))
	}
	return text
}

// version is a.txt as it is before, between and after the edits: large enough that a write of it can
// be cut in the middle.
func version(name string) string {
	return "head " + name + "\n" + strings.Repeat("the same line again and again\n", 20_000) + "tail " + name + "\n"
}

// TestKilledAtRandomMomentsTheTurnCompletes kills a run at random moments, some of them several times in a
// row, and then lets it end. TROUPE_CHAOS_KILLS is how many kills must hit (make chaos), and
// TROUPE_CHAOS_SEED repeats a run.
func TestKilledAtRandomMomentsTheTurnCompletes(t *testing.T) {
	kills := number(t, "TROUPE_CHAOS_KILLS", 6)
	seed := number(t, "TROUPE_CHAOS_SEED", int(time.Now().UnixNano()))
	t.Logf("TROUPE_CHAOS_SEED=%d", seed)
	calm := newOrdeal(t)
	began := time.Now()
	calm.attempt(0)
	span := time.Since(began) // only the spread of the kills depends on it
	calm.check()
	if len(calm.effects()) != 8 {
		t.Fatalf("without a kill the effects are %q", calm.effects())
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	landed := 0 // kills that hit a process under way; the others came too late and do not count
	for n := 0; landed < kills && n < 20*kills; n++ {
		var moments []time.Duration
		for range 1 + rng.IntN(3) {
			moments = append(moments, time.Duration(rng.Int64N(int64(span)))+time.Millisecond)
		}
		t.Run(fmt.Sprint(n, moments), func(t *testing.T) {
			o := newOrdeal(t)
			for _, at := range moments {
				if o.attempt(at) {
					landed++
				}
				o.whole()
			}
			o.attempt(0)
			o.check()
		})
	}
	if landed < kills {
		t.Errorf("only %d kills hit a process under way: this shows too little", landed)
	}
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// ordeal is one turn that is killed and goes on.
type ordeal struct {
	*machine
	id   string
	seen map[uint64]string // what was told of each durable event, by its cursor
	last ended
}

func newOrdeal(t *testing.T) *ordeal {
	t.Helper()
	o := &ordeal{machine: newMachine(t), seen: make(map[uint64]string)}
	srv := o.serve(workScript(), script.ServeOptions{Latency: 5 * time.Millisecond, ChunkDelay: time.Millisecond, ChunkSize: 16})
	t.Cleanup(func() {
		if s := o.stats(srv); s.Refused+s.Unmatched > 0 {
			t.Errorf("the model refused requests: %+v", s)
		}
	})
	o.write("a.txt", version("one"))
	o.write("b.txt", "tail of b\n")
	return o
}

// attempt runs, or resumes, the turn, and kills it after a while; 0 lets it end. It tells
// whether the kill hit.
func (o *ordeal) attempt(killed time.Duration) bool {
	o.t.Helper()
	args := prompt("work", "-o", "ndjson")
	if o.id != "" {
		args = []string{"run", "-s", o.id, "-o", "ndjson"}
	}
	r := o.start(args...)
	if killed > 0 {
		bound := time.AfterFunc(killed, func() { _ = r.cmd.Process.Kill() })
		defer bound.Stop()
	}
	o.last = r.wait()
	o.events(o.last.out)
	if id := o.session(); o.id == "" {
		o.id = id
	} else if id != o.id {
		o.t.Fatalf("session %s has become %q", o.id, id)
	}
	if o.id == "" && len(o.seen) > 0 {
		o.t.Fatalf("events were told of a session that does not exist: %v", o.seen)
	}
	if killed == 0 && o.last.code != 0 || o.last.code > 0 {
		o.t.Fatalf("the run %s", o.last)
	}
	return o.last.code < 0
}

// events notes what a run told, and that nobody is told something else about the same cursor.
func (o *ordeal) events(out string) {
	o.t.Helper()
	lines := strings.Split(out, "\n")
	after := uint64(0)
	for _, line := range lines[:len(lines)-1] { // the last is empty, or cut off
		var e struct{ Seq uint64 }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			o.t.Fatalf("%v: %s", err, line)
		}
		if e.Seq == 0 {
			continue
		}
		if e.Seq <= after {
			o.t.Errorf("R8: cursor %d after %d", e.Seq, after)
		}
		after = e.Seq
		if old := o.seen[e.Seq]; old != "" && old != line {
			o.t.Errorf("R8: event %d was told as\n%s\nand as\n%s", e.Seq, old, line)
		}
		o.seen[e.Seq] = line
	}
}

// whole checks that the edited file is one of its versions, never something between.
func (o *ordeal) whole() {
	o.t.Helper()
	now := o.read("a.txt")
	if !slices.ContainsFunc([]string{"one", "two", "three"}, func(v string) bool { return now == version(v) }) {
		o.t.Errorf("after a kill a.txt is no version of itself: %d bytes, %.20q", len(now), now)
	}
	if n := o.read("notes.md"); n != "" && n != "# Notes\n" {
		o.t.Errorf("after a kill notes.md is %q", n)
	}
}

func (o *ordeal) effects() []string {
	return strings.Split(strings.TrimSuffix(o.read("effects.log"), "\n"), "\n")
}

// check holds what came of the turn to the rules.
func (o *ordeal) check() {
	o.t.Helper()
	o.outcome()
	o.calls()
	o.left()
}

// outcome checks that the turn is done, its files are written, and the journals hold together.
func (o *ordeal) outcome() {
	o.t.Helper()
	if o.read("a.txt") != version("three") || o.read("notes.md") != "# Notes\n" {
		o.t.Errorf("the files are not what the turn makes of them: %.20q %q", o.read("a.txt"), o.read("notes.md"))
	}
	if !strings.Contains(o.last.out, `"outcome":"done"`) || !strings.Contains(o.last.out, "all done") {
		o.t.Errorf("the turn %s", o.last)
	}
	o.sound(o.id)
}

// calls checks every call against the log of effects.
func (o *ordeal) calls() {
	o.t.Helper()
	calls := list[[]messages.CallJSON](o.machine, "ls", "calls", "--session", o.id)
	slices.SortFunc(calls, func(a, b messages.CallJSON) int { return strings.Compare(a.ExecID, b.ExecID) })
	log := o.effects()
	var names, order []string
	commands := 0
	for _, c := range calls {
		names = append(names, c.Tool)
		if c.Tool != "exec" {
			if c.State != "succeeded" {
				o.t.Errorf("%s %s is %s", c.Tool, c.ExecID, c.State)
			}
			continue
		}
		commands++
		name := "C" + strconv.Itoa(commands)
		begun, finished := count(log, "begin "+name+" "+c.ExecID), count(log, "end "+name+" "+c.ExecID)
		switch {
		case begun > 1 || finished > begun:
			o.t.Errorf("R3: %s %s began %d times and ended %d times", name, c.ExecID, begun, finished)
		case c.State == "succeeded" && finished != 1:
			o.t.Errorf("R5: %s is %s and ended %d times", name, c.State, finished)
		case c.State != "succeeded" && (c.State != "failed" || c.Status != "interrupted_unknown"):
			o.t.Errorf("%s %s is %s (%s)", name, c.ExecID, c.State, c.Status)
		}
		if begun == 1 {
			order = append(order, "begin "+name+" "+c.ExecID)
		}
		if finished == 1 {
			order = append(order, "end "+name+" "+c.ExecID)
		}
	}
	if !slices.Equal(names, workTools) {
		o.t.Errorf("the calls are %q", names)
	}
	if got := strings.Join(log, "\n"); got != strings.Join(order, "\n") {
		o.t.Errorf("R3, R9: the effects are\n%s\nthe calls account for\n%s", got, strings.Join(order, "\n"))
	}
}

func count(lines []string, line string) int {
	n := 0
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

// left checks that nothing lies about that kills made.
func (o *ordeal) left() {
	o.t.Helper()
	walk := func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(d.Name(), ".troupe-tmp-") || strings.HasPrefix(path, o.data()+"/tmp/") || strings.HasPrefix(path, o.temp+"/") {
			o.t.Errorf("left behind: %s", path)
		}
		return nil
	}
	if err := filepath.WalkDir(o.root, walk); err != nil {
		o.t.Error(err)
	}
}
