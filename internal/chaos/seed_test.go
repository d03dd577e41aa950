package chaos

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// ran is what a run of one session came to, without ids, times and the order in which things happened at the same time.
type ran struct {
	facts []string // what its journal says
	cuts  []string // the appends of mode Every after which it was killed, that every run has
}

// again makes a run of one session, in one process after the other.
func again(t *testing.T, mode Mode, seed uint64) ran {
	t.Helper()
	before := count()
	dir, err := MakeDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: dir, Turns: 9, Mode: mode, Seed: seed, Sessions: 1, Parallel: 1, InProcess: true}.withDefaults()
	lanes, stop, err := prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	l := lanes[0]
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	h, err := l.history(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	settled(t.Context(), before)
	var r ran
	names, planned, cancelled := newTracker(), map[string]bool{}, map[string]bool{}
	for name, entries := range h.Streams {
		for _, e := range entries {
			what, err := decode(name, e.Record)
			if err != nil {
				t.Fatal(err)
			}
			if what == nil {
				continue
			}
			word, more := names.name(name, e.Session, what), ""
			switch f := what.(type) {
			case *messages.InputAccepted:
				for _, part := range f.GetParts() {
					more += part.GetText()
				}
				more += f.GetCall().GetName() + f.GetCall().GetArguments() // a program's
			case *messages.GenerationCompleted:
				more = f.GetContent()
				for _, c := range f.GetToolCalls() {
					more += " " + c.GetName() + c.GetArguments()
				}
			case *messages.TurnCompleted:
				more = f.GetOutcome().String()
				cancelled[fmt.Sprint(names.streams[name].turn)] = f.GetOutcome() == messages.TurnCompleted_ABORTED
			}
			turn := fmt.Sprint(names.streams[name].turn)
			if f, ok := what.(*messages.TurnStarted); ok {
				planned[turn] = slices.ContainsFunc(f.GetInputIds(), func(id string) bool {
					n := 0
					_, err := fmt.Sscanf(id, "inp_chaos_%d", &n)
					return err == nil && newTurn(seed, n, mode).cancel
				})
			}
			if strings.HasPrefix(word, "input") {
				turn = "-" // it may come while the turn before it is open
			}
			r.facts = append(r.facts, strings.TrimSpace(turn+" "+word+" "+more))
		}
	}
	r.facts = slices.DeleteFunc(r.facts, func(s string) bool { // how far a turn is when it is cancelled is the scheduler's, and whether it has ended
		turn, word, _ := strings.Cut(s, " ")
		return planned[turn] || cancelled[turn] && !strings.HasPrefix(word, "done")
	})
	slices.Sort(r.facts)
	b, err := os.ReadFile(l.files.Cuts)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		_, label, _ := strings.Cut(strings.TrimSpace(line), "/")
		if _, words, _ := strings.Cut(label, " "); words == "done" || strings.HasPrefix(words, "answer") && strings.HasSuffix(words, " done") || strings.HasPrefix(words, "turn") {
			r.cuts = append(r.cuts, label)
		}
	}
	slices.Sort(r.cuts)
	return r
}

// TestASeedRepeatsARun compares all that docs/chaos.md says of it: what was said, called, answered, decided and came of it; and of runs that are killed that the
// same turns begin and end, and are cut there.
func TestASeedRepeatsARun(t *testing.T) {
	one, same, other := again(t, Never, 3), again(t, Never, 3), again(t, Never, 4)
	if !slices.Equal(one.facts, same.facts) || slices.Equal(one.facts, other.facts) || len(one.facts) < 60 {
		t.Errorf("a calm run: %d facts; the same again: %v; with another seed the same: %v\nmissing: %q\nmore: %q", len(one.facts),
			slices.Equal(one.facts, same.facts), slices.Equal(one.facts, other.facts), without(one.facts, same.facts), without(same.facts, one.facts))
	}
	one, same = again(t, Every, 3), again(t, Every, 3)
	if !slices.Equal(one.cuts, same.cuts) || len(one.cuts) < 9 {
		t.Errorf("of a run that is killed after every append these were cut: %q\nand again: %q", without(one.cuts, same.cuts), without(same.cuts, one.cuts))
	}
	said := func(r ran) []string {
		return slices.DeleteFunc(slices.Clone(r.facts), func(s string) bool {
			_, word, _ := strings.Cut(s, " ")
			return !strings.HasPrefix(word, "input") && !strings.HasPrefix(word, "done") && !strings.HasPrefix(word, "answer")
		})
	}
	if a, b := said(one), said(same); !slices.Equal(a, b) {
		t.Errorf("in a run that is killed it was said %q, and again %q", without(a, b), without(b, a))
	}
}

// without is what one has and the other has not.
func without(one, other []string) []string {
	return slices.DeleteFunc(slices.Clone(one), func(s string) bool { return slices.Contains(other, s) })
}
