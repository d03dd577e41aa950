package main

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

func (m *machine) slow() string {
	m.t.Helper()
	return m.write("slow.yaml", strings.ReplaceAll(slowScript, "TEXT", strings.Repeat("and so on ", 300)))
}

func TestCancelEndsATurnInAnotherProcessAndKeepsWhatWasSaid(t *testing.T) {
	m := newMachine(t)
	r := m.start("run", "think", "-C", "a", "-m", "scripted/"+m.slow(), "--trust", "full")
	r.waitFor("I think.")
	id := m.onlySession()
	for _, wrong := range [][]string{{"--job", ""}, {"--job", "job_1", "--jobs"}, {"--job", "job_1", "--keep-inputs"}} { // nothing else is cancelled for it
		if code, out, stderr := m.run(append([]string{"cancel", id}, wrong...)...); code != exitUsage || !strings.Contains(stderr, "troupe cancel: --job") {
			t.Errorf("%q ended with %d: %s%s", wrong, code, out, stderr)
		}
	}
	code, out, stderr := m.run("cancel", id, "--reason", "enough")
	if code != exitDone || out != "1 turn cancelled, 0 inputs taken back\n" {
		t.Errorf("cancel ended with %d: %s%s", code, out, stderr)
	}
	if code, _ := r.wait(); code != exitInterrupted {
		t.Errorf("the run ended with %d", code)
	}
	for _, want := range []string{"the answer was cut off", "outcome aborted: enough"} {
		if !strings.Contains(r.stderr.String(), want) {
			t.Errorf("the run does not say %q: %s", want, r.stderr.String())
		}
	}
	if strings.Contains(r.stderr.String(), "is void") {
		t.Errorf("what was kept is called void: %s", r.stderr.String())
	}
	if code, out, _ := m.run("show", id); code != exitDone || !strings.Contains(out, "cancelled") || !strings.Contains(out, "cut off") || !strings.Contains(out, "\nI think.\n") {
		t.Errorf("show ended with %d: %s", code, out)
	}
	if code, out, stderr := m.run("cancel", id); code != exitDone || out != "nothing was under way\n" {
		t.Errorf("cancel of what rests ended with %d: %s%s", code, out, stderr)
	}
	if code, _, stderr := m.run("cancel", "ses_none"); code != exitMissing || !strings.Contains(stderr, "no session") {
		t.Errorf("cancel of nothing ended with %d: %s", code, stderr)
	}
}

func TestWhatACancelEndsIsCountedApart(t *testing.T) {
	for want, j := range map[string]messages.CancelledJSON{
		"2 turns cancelled, 1 input taken back, 3 messages dropped that had not arrived, 1 command ended": {Turns: 2, Inputs: 1, Messages: 3, Jobs: 4, Ended: 1},
		"0 turns cancelled, 0 inputs taken back, 1 message dropped that had not arrived":                  {Messages: 1},
		"nothing was under way": {Jobs: 1},
	} {
		if got := cancelledText(j, false); got != want {
			t.Errorf("%+v is told as %q", j, got)
		}
	}
}

// TestASignalThatIsSentTwiceIsOne, as timeout(1) sends it: to its program, and to the group of that.
func TestASignalThatIsSentTwiceIsOne(t *testing.T) {
	m := newMachine(t)
	for range 4 { // two that are pending together are one for the kernel already
		r := m.start("run", "think", "-C", "a", "-m", "scripted/"+m.slow(), "--trust", "full")
		r.waitFor("I think.")
		r.signal(syscall.SIGTERM)
		r.signal(syscall.SIGTERM)
		if code, _ := r.wait(); code != exitInterrupted || !strings.Contains(r.stderr.String(), "go on with: troupe run -s ") {
			t.Fatalf("it ended with %d: %s", code, r.stderr.String())
		}
	}
}

// TestATerminalThatIsClosedMayBeToldOfTwice: the shell does, and the kernel when the shell ends.
func TestATerminalThatIsClosedMayBeToldOfTwice(t *testing.T) {
	m := newMachine(t)
	r := m.start("run", "think", "-C", "a", "-m", "scripted/"+m.slow(), "--trust", "full")
	r.waitFor("I think.")
	r.signal(syscall.SIGHUP)
	ended, told := make(chan struct{}), make(chan struct{})
	go func() { // again, while it ends
		defer close(told)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				_ = r.cmd.Process.Signal(syscall.SIGHUP) // it may have ended
			}
		}
	}()
	code, _ := r.wait()
	close(ended)
	<-told
	if code != exitInterrupted {
		t.Errorf("the run ended with %d: %s", code, r.stderr.String())
	}
}

// TestCtrlCInTheMiddleOfAnAnswerLeavesItMarkedUntilItIsAskedForAgain follows what the run prints, literally.
func TestCtrlCInTheMiddleOfAnAnswerLeavesItMarkedUntilItIsAskedForAgain(t *testing.T) {
	m := newMachine(t)
	r := m.start("run", "think", "-C", "a", "-m", "scripted/"+m.slow(), "--trust", "full")
	r.waitFor("I think.")
	id := m.onlySession()
	r.signal(syscall.SIGINT)
	if code, _ := r.wait(); code != exitInterrupted || !strings.Contains(r.stderr.String(), "troupe run -s "+id) {
		t.Fatalf("the run ended with %d: %s", code, r.stderr.String())
	}
	code, out, stderr := m.run("show", id)
	if code != exitDone || !strings.Contains(out, "  open  ") || !strings.Contains(out, "\n  answer  cut off, ") || !strings.Contains(out, "\nI think.\n") {
		t.Errorf("show ended with %d: %s%s", code, out, stderr)
	}
	var shown messages.ShownJSON
	code, out, _ = m.run("show", id, "-o", "json")
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != exitDone || len(shown.Turns) != 1 {
		t.Fatalf("show ended with %d, %v: %s", code, err, out)
	}
	if turn := shown.Turns[0]; turn.Outcome != "" || turn.Text != "" || len(turn.Generations) != 0 || !strings.HasPrefix(turn.Partial, "I think.") {
		t.Errorf("the turn is %+v", turn)
	}
	if code, out, stderr := m.run("tail", id, "--replay"); code != exitDone || !strings.Contains(out, "\nI think.\n") || !strings.Contains(out, "cut off here by a stop") {
		t.Errorf("tail ended with %d: %s%s", code, out, stderr)
	}
	code, out, stderr = m.run("fork", id)
	fork := regexp.MustCompile(`ses_[0-9a-f]+`).FindString(strings.ReplaceAll(out, id, ""))
	if code != exitDone || fork == "" {
		t.Errorf("fork ended with %d: %s%s", code, out, stderr)
	}
	if code, out, _ := m.run("show", fork); code != exitDone || !strings.Contains(out, "  aborted  ") || strings.Contains(out, "I think.") {
		t.Errorf("show of the fork, which has ended the turn, ended with %d: %s", code, out)
	}
	m.write("slow.yaml", strings.ReplaceAll(slowScript, "TEXT", "So it is."))
	if code, out, stderr := m.run("run", "-s", id); code != exitDone || out != "I think.\nSo it is.\n" {
		t.Errorf("going on ended with %d: %s%s", code, out, stderr)
	}
	code, out, _ = m.run("show", id)
	if code != exitDone || strings.Contains(out, "cut off") || strings.Count(out, "I think.") != 1 || !strings.Contains(out, "\nI think.\nSo it is.\n") {
		t.Errorf("in the end show ended with %d: %s", code, out)
	}
}

func TestWorkIsCancelledWhoseProcessIsDead(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I begin.")
	m.begun("a")
	r.signal(syscall.SIGKILL)
	r.wait()
	id := m.onlySession()
	w := m.workers()[0].ID
	if code, _, stderr := m.run("workers", "wait", w); code != exitAgain || !strings.Contains(stderr, "troupe run -s "+id) {
		t.Errorf("wait ended with %d: %s", code, stderr)
	}
	if code, out, stderr := m.run("workers", "cancel", w, "-o", "json"); code != exitDone || !strings.Contains(out, `"turns": 1`) {
		t.Errorf("cancel ended with %d: %s%s", code, out, stderr)
	}
	if code, _, stderr := m.run("workers", "wait", id); code != exitDone {
		t.Errorf("wait ended with %d: %s", code, stderr)
	}
	if code, out, _ := m.run("run", "-s", id); code != exitInterrupted {
		t.Errorf("the turn again ended with %d: %s", code, out)
	}
	if code, out, _ := m.run("ls", "calls", "-o", "json"); code != exitDone || !strings.Contains(out, "interrupted_unknown") {
		t.Errorf("calls: %d %s", code, out)
	}
}

func TestWorkersAreAddedAndRemovedAndASessionIsClosed(t *testing.T) {
	m := newMachine(t)
	if code, _, stderr := m.run("run", "hello", "-C", "a", "-m", "scripted/echo"); code != exitDone {
		t.Fatal(stderr)
	}
	id := m.onlySession()
	if code, out, stderr := m.run("workers", "new", id, "-o", "json"); code != exitDone || !strings.Contains(out, "wrk_") {
		t.Fatalf("new ended with %d: %s%s", code, out, stderr)
	}
	all := m.workers()
	if len(all) != 2 {
		t.Fatalf("%d workers", len(all))
	}
	added := all[0].ID
	if all[0].Turns != 0 {
		added = all[1].ID
	}
	if code, _, stderr := m.run("workers", "rm", added); code != exitDone {
		t.Errorf("rm ended with %d: %s", code, stderr)
	}
	if code, _, stderr := m.run("workers", "rm", added); code != exitMissing || !strings.Contains(stderr, "troupe workers ls") {
		t.Errorf("rm again ended with %d: %s", code, stderr)
	}
	if left := m.workers(); len(left) != 1 || left[0].ID == added {
		t.Errorf("left are %+v", left)
	}
	if code, _, stderr := m.run("workers", "new", id, "--agent", "nobody"); code != exitConfig {
		t.Errorf("an unknown agent: %d %s", code, stderr)
	}
	if code, _, stderr := m.run("rm", "--keep", id); code != exitDone {
		t.Errorf("rm --keep ended with %d: %s", code, stderr)
	}
	if code, out, _ := m.run("verify", "-o", "json"); code != exitDone || strings.Contains(out, `"records": 0`) {
		t.Errorf("what is kept: verify ended with %d: %s", code, out)
	}
	if code, _, stderr := m.run("rm", id); code != exitDone {
		t.Errorf("rm ended with %d: %s", code, stderr)
	}
	if code, out, _ := m.run("verify", "-o", "json"); code != exitDone || !strings.Contains(out, `"records": 0`) {
		t.Errorf("what is deleted: verify ended with %d: %s", code, out)
	}
	if code, _, stderr := m.run("rm", id); code != exitMissing || !strings.Contains(stderr, "no session") {
		t.Errorf("rm again ended with %d: %s", code, stderr)
	}
	if code, out, _ := m.run("ls", "sessions", "-o", "json"); code != exitDone || strings.TrimSpace(out) != "[]" {
		t.Errorf("ls ended with %d: %s", code, out)
	}
	if code, _, stderr := m.run("run", "more", "-s", id); code != exitMissing {
		t.Errorf("a prompt to it: %d %s", code, stderr)
	}
	if code, out, _ := m.run("verify"); code != exitDone || !strings.Contains(out, " 0 findings") {
		t.Errorf("verify ended with %d: %s", code, out)
	}
	if !messages.ValidID(messages.WorkerPrefix, added) {
		t.Errorf("worker id %q", added)
	}
}

func TestTheTreeOfARunningProcessIsShownDownToItsExecutors(t *testing.T) {
	m := newMachine(t)
	if code, out, stderr := m.run("tree"); code != exitUnreachable || out != "" || !strings.Contains(stderr, "troupe run") {
		t.Errorf("without a process: %d %s%s", code, out, stderr)
	}
	script := m.write("s.yaml", blocking)
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I begin.")
	m.begun("a")
	said, err := os.Create(m.folder("said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	behind := m.command("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	behind.Stderr = said
	if err := behind.Start(); err != nil {
		t.Fatal(err)
	}
	m.eventually("the second run is not in the tree", func() bool {
		code, out, _ := m.run("tree")
		return code == exitDone && strings.Contains(out, "waiting")
	})
	code, out, stderr := m.run("tree", "-o", "json")
	var root messages.ActorJSON
	if err := json.Unmarshal([]byte(out), &root); err != nil || code != exitDone {
		t.Fatalf("ended with %d, %v: %s%s", code, err, out, stderr)
	}
	states := map[string][]string{}
	var walk func(a *messages.ActorJSON)
	walk = func(a *messages.ActorJSON) {
		states[a.Kind] = append(states[a.Kind], a.State)
		for i := range a.Children {
			walk(&a.Children[i])
		}
	}
	walk(&root)
	for kind, want := range map[string]string{
		"supervisor": "running", "session": "using_tool waiting", "worker": "using_tool waiting", "toolexecutor": "running",
		"workspace": "held held held running", "limiter": "running",
	} {
		got := slices.Sorted(slices.Values(states[kind]))
		if kind == "workspace" { // the second run's own one may be taken or not
			got = slices.Compact(got)
			want = "held"
			if len(got) > 1 {
				want = "held running"
			}
		}
		if kind == "limiter" {
			got = slices.Compact(got)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", kind, got, want)
		}
	}
	held := ""
	for _, w := range m.workers() {
		if w.State == "using_tool" {
			held = w.Session
		}
	}
	text := func() string {
		b, err := os.ReadFile(said.Name())
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	m.eventually("the second run does not say what it waits for", func() bool {
		return strings.Contains(text(), "in which session "+held+" works")
	})
	m.write("a/go", "")
	if code, _ := r.wait(); code != exitDone {
		t.Errorf("the run ended with %d: %s", code, r.stderr.String())
	}
	if !strings.Contains(r.stderr.String(), "1 more command works in this process") {
		t.Errorf("the run counts wrongly: %s", r.stderr.String())
	}
	if code := exitOf(t, behind.Wait()); code != exitDone {
		t.Errorf("the run behind it ended with %d: %s", code, text())
	}
	if n := strings.Count(text(), "troupe: waits for the workspace "); n != 1 {
		t.Errorf("the run behind it says %d times what it waits for: %s", n, text())
	}
}

// cancelledTo is a node that cancels to what it says.
type cancelledTo struct {
	node
	to *messages.Cancelled
}

func (n cancelledTo) Ask(context.Context, proto.Message) (proto.Message, error) { return n.to, nil }

// TestCommandsThatHaveNotEndedAreToldAsSuch: who has asked for their end is not told to ask for it, but where it sees them.
func TestCommandsThatHaveNotEndedAreToldAsSuch(t *testing.T) {
	for jobs, want := range map[bool][2]string{
		false: {"nothing was under way\n", "1 command that agents left running go on: --jobs ends them"},
		true:  {"0 turns cancelled, 0 inputs taken back, 1 command asked to end that may run still\n", "troupe ls jobs ses_1"},
	} {
		var out, said strings.Builder
		a := &app{out: &out, err: &said}
		err := a.cancel(t.Context(), cancelledTo{to: &messages.Cancelled{Jobs: 1}}, "ses_1", "", &cancelFlags{jobs: jobs})
		if err != nil || out.String() != want[0] || !strings.Contains(said.String(), want[1]) {
			t.Errorf("--jobs %v: %v: %q, %q", jobs, err, out.String(), said.String())
		}
	}
}
