package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// events reads lines of events until one is of a type; it gives the seqs of all of them that have one.
func (r *running) events(until string) (seqs []uint64) {
	r.t.Helper()
	for {
		line, err := r.out.ReadString('\n')
		if err != nil {
			break
		}
		e := &messages.Event{}
		if err := json.Unmarshal([]byte(line), e); err != nil {
			r.t.Fatalf("%v: %s", err, line)
		}
		if e.GetSeq() != 0 {
			seqs = append(seqs, e.GetSeq())
		}
		if e.GetType() == until {
			return seqs
		}
	}
	r.t.Fatalf("it ended before %s, after %v: %s", until, seqs, r.stderr.String())
	return nil
}

// TestTailGoesOnFromProcessToProcessWithoutGapOrRepetition: one turn is killed in the middle, the next process finishes it, and the
// first one does not stay for who only watches.
func TestTailGoesOnFromProcessToProcessWithoutGapOrRepetition(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	first := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	first.waitFor("I begin.")
	m.begun("a")
	id := m.onlySession()
	tail := m.start("tail", id, "-o", "ndjson")
	seqs := tail.events(messages.EventToolDispatched)
	first.signal(syscall.SIGKILL)
	first.wait()
	m.write("a/go", "")
	if code, out, stderr := m.run("run", "-s", id); code != exitDone && code != exitAgain {
		t.Fatalf("the turn does not go on: %d %s%s", code, out, stderr)
	}
	seqs = append(seqs, tail.events(messages.EventTurnCompleted)...)
	if code, _, stderr := m.run("run", "-s", id, "work"); code != exitDone { // it would wait for ever for one that counts
		t.Fatalf("%d %s", code, stderr)
	}
	seqs = append(seqs, tail.events(messages.EventTurnCompleted)...)
	tail.signal(os.Interrupt)
	tail.wait()
	if !slices.IsSorted(seqs) || len(slices.Compact(slices.Clone(seqs))) != len(seqs) {
		t.Errorf("out of order, or twice: %v", seqs)
	}
	var all []uint64
	_, out, _ := m.run("tail", id, "--replay", "-o", "ndjson")
	for line := range strings.Lines(out) {
		e := &messages.Event{}
		if err := json.Unmarshal([]byte(line), e); err != nil {
			t.Fatal(err)
		}
		if e.GetSeq() != 0 {
			all = append(all, e.GetSeq())
		}
	}
	if !slices.Equal(all, seqs) {
		t.Errorf("seen %v\nof   %v", seqs, all)
	}
}

func TestATailEndsWithItsSession(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I begin.")
	m.begun("a")
	id := m.onlySession()
	tail := m.start("tail", id)
	tail.waitFor("I begin.")
	if code, _, stderr := m.run("rm", id); code != exitDone {
		t.Fatalf("%d %s", code, stderr)
	}
	if code, rest := tail.wait(); code != exitDone || !strings.Contains(rest, "session closed") {
		t.Errorf("%d %s%s", code, rest, tail.stderr.String())
	}
	r.wait()
}

func TestATailThatIsInterruptedSaysHowToGoOn(t *testing.T) {
	m := newMachine(t)
	if code, _, stderr := m.run("run", "hello", "-C", "a", "-m", "scripted/echo"); code != exitDone {
		t.Fatal(stderr)
	}
	id := m.onlySession()
	r := m.start("tail", id)
	r.waitFor("You said: hello")
	r.signal(os.Interrupt)
	if code, _ := r.wait(); code != exitInterrupted || !strings.Contains(r.stderr.String(), "troupe tail "+id+" --after ") {
		t.Errorf("%d %s", code, r.stderr.String())
	}
}

func TestWhatIsNewComesAfterTheLastTurn(t *testing.T) {
	s := startOf(&messages.Shown{
		Session: &messages.SessionView{UpdatedAtUnixMs: 10},
		Turns:   []*messages.TurnView{{TurnId: "trn_1", StartedAtUnixMs: 5, CompletedAtUnixMs: 11}},
	}, "", 0)
	for at, want := range map[int64]int{9: 0, 11: 0} {
		if got := s.pass(&messages.Event{AtUnixMs: at}); len(got) != want {
			t.Errorf("of %d: %v", at, got)
		}
	}
	if got := s.pass(&messages.Event{AtUnixMs: 12}); len(got) != 1 {
		t.Errorf("what is new is left out")
	}
}
