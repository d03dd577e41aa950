package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// beats is a command that runs until its folder has a file `stop`, and then ends with exit code 3.
const beats = "echo up; while test ! -e stop; do date +%s%N >> beats; sleep 0.02; done; echo down; exit 3"

// jobbed is a folder that is shared, of whose jobs a test asks.
type jobbed struct {
	*machine
	s       *served
	session string
	calls   int
}

func (j *jobbed) call(tool string, args map[string]any) messages.CalledJSON {
	j.t.Helper()
	j.calls++
	x, ok := <-j.s.begin(j.session, fmt.Sprint("call", j.calls), tool, args)
	if !ok {
		j.t.Fatalf("%s %v: no answer\n%s", tool, args, j.s.stderr.String())
	}
	return x
}

// leave starts a command in the background and waits until it runs.
func (j *jobbed) leave(command string) string {
	j.t.Helper()
	x := j.call("exec", map[string]any{"command": command, "background": true, "workspace_id": "lap"})
	_, id, _ := strings.Cut(x.Content, "Started the job ")
	if id, _, _ = strings.Cut(id, "."); !strings.HasPrefix(id, "job_") {
		j.t.Fatalf("no job: %+v", x)
	}
	return id
}

func (j *jobbed) output(id string) string {
	j.t.Helper()
	return j.call("job_output", map[string]any{"job_id": id, "wait_ms": 30000}).Content
}

// shows waits until what a job has printed, or how it is, has a text.
func (j *jobbed) shows(id, text string) {
	j.t.Helper()
	last := ""
	for deadline := time.Now().Add(40 * time.Second); !strings.Contains(last, text); <-time.After(50 * time.Millisecond) {
		if last = j.call("job_output", map[string]any{"job_id": id}).Content; time.Now().After(deadline) {
			j.t.Fatalf("%s: %q, want %q", id, last, text)
		}
	}
}

// quiet waits until the command does not beat any more.
func (j *jobbed) quiet() {
	j.t.Helper()
	was := int64(-1)
	j.eventually("the command has ended", func() bool {
		size := j.beaten()
		same := size == was
		was = size
		<-time.After(200 * time.Millisecond)
		return same
	})
}

func (j *jobbed) beaten() int64 {
	info, err := os.Stat(filepath.Join(j.folder("a"), "beats"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// beatsOn waits until the command beats once more.
func (j *jobbed) beatsOn() {
	j.t.Helper()
	was := j.beaten()
	j.eventually("the command goes on", func() bool { return j.beaten() > was })
}

// noted are the jobs that the machine still keeps notes of.
func (j *jobbed) noted() []string {
	all, err := filepath.Glob(filepath.Join(j.home, ".local", "state", "troupe", "owned", "*.jobs", "*"))
	if err != nil {
		j.t.Fatal(err)
	}
	return all
}

func newJobbed(t *testing.T) *jobbed {
	m := newMachine(t)
	s := m.serve()
	return &jobbed{machine: m, s: s, session: s.newSession()}
}

func TestACommandIsLeftRunningInASharedFolder(t *testing.T) {
	j := newJobbed(t)
	r := j.share(j.session, j.s.url, "--trust", "full")
	id := j.leave(beats)
	j.shows(id, "up\n[running for")
	j.beatsOn()
	if got := j.call("exec", map[string]any{"command": "test -s beats && echo beside", "workspace_id": "lap"}); got.Content != "beside\n" {
		t.Errorf("beside it: %+v", got)
	}
	if got := j.call("job_list", nil).Content; !strings.Contains(got, id+": echo up") || !strings.Contains(got, " on lap)") {
		t.Errorf("the list: %q", got)
	}
	res, err := http.Get(j.s.url + "/api/sessions/" + j.session + "/jobs")
	if err != nil {
		t.Fatal(err)
	}
	var n messages.JobsJSON
	if err := json.NewDecoder(res.Body).Decode(&n); err != nil || n.Background != 1 {
		t.Errorf("counted are %+v, %v", n, err)
	}
	_ = res.Body.Close()
	if len(j.noted()) != 1 {
		t.Errorf("noted are %q", j.noted())
	}
	j.write("a/stop", "")
	if got := j.output(id); !strings.Contains(got, "up\n") {
		t.Errorf("%q", got)
	}
	j.shows(id, "down\n[exit code 3;")
	j.eventually("the server keeps its end", func() bool { return len(j.noted()) == 0 })
	if got := j.call("read_file", map[string]any{"path": "spill/" + id, "workspace_id": "home"}); !strings.Contains(got.Content, "down") {
		t.Errorf("what is left of it: %+v", got)
	}
	if err := os.Remove(filepath.Join(j.folder("a"), "stop")); err != nil {
		t.Fatal(err)
	}
	id = j.leave(beats)
	j.beatsOn()
	if got := j.call("job_kill", map[string]any{"job_id": id}).Content; !strings.Contains(got, "is no more (killed: job_kill asked for it)") {
		t.Errorf("killed: %q", got)
	}
	j.quiet()
	id = j.leave(beats)
	if code, out, errOut := j.run("cancel", j.session, "--jobs", "--server", j.s.url, "-o", "json"); code != 0 || !strings.Contains(out, `"ended": 1`) {
		t.Errorf("cancelled with %d: %s%s", code, out, errOut)
	}
	j.shows(id, "[killed: the session's work was cancelled;")
	j.quiet()
	id = j.leave(beats)
	r.signal(syscall.SIGINT)
	if code, _ := r.wait(); code != 0 || !strings.Contains(r.stderr.String(), "troupe: job "+id) {
		t.Errorf("it ended with %d: %s", code, r.stderr.String())
	}
	j.quiet()
	j.shows(id, "[killed: its machine does not share the folder any more;")
}

func TestAJobOutlivesTheConnectionThatIsCut(t *testing.T) {
	j := newJobbed(t)
	c := newCable(t, j.s.url)
	r := j.share(j.session, c.url(), "--trust", "full")
	ends, stays := j.leave("until test -e end; do sleep 0.02; done; echo over"), j.leave(beats)
	c.cut("") // nowhere
	j.eventually("the connection is lost", func() bool {
		return j.call("job_output", map[string]any{"job_id": stays}).ErrorCode == "client_not_connected"
	})
	j.write("a/end", "")
	j.eventually("it has ended", func() bool { return strings.Contains(r.stderr.String(), "job "+ends) })
	j.beatsOn()
	c.cut(j.s.url)
	j.shows(ends, "over\n[exit code 0;")
	j.shows(stays, "up\n[running for")
	j.write("a/stop", "")
	j.shows(stays, "[exit code 3;")
	j.eventually("the server keeps their ends", func() bool { return len(j.noted()) == 0 })
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
}

func TestJobsOfAMachineThatWasKilledEndAndAreOfUnknownOutcome(t *testing.T) {
	j := newJobbed(t)
	r := j.share(j.session, j.s.url, "--trust", "full")
	id := j.leave(beats)
	j.beatsOn()
	r.signal(syscall.SIGKILL)
	_, _ = r.wait()
	j.quiet()
	r = j.share(j.session, j.s.url, "--trust", "full")
	j.shows(id, "[interrupted: the program that ran it on its machine was cut off, and its outcome is not known;")
	if got := j.call("exec", map[string]any{"command": "echo free", "workspace_id": "lap"}); got.Content != "free\n" {
		t.Errorf("then: %+v", got)
	}
	j.eventually("the server keeps its end", func() bool { return len(j.noted()) == 0 })
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
}

func TestAServerThatWasKilledFindsTheJobsOfAMachineAgain(t *testing.T) {
	j := newJobbed(t)
	c := newCable(t, j.s.url)
	r := j.share(j.session, c.url(), "--trust", "full")
	ends, stays := j.leave("until test -e end; do sleep 0.02; done; echo over; exit 4"), j.leave(beats)
	j.s.signal(syscall.SIGKILL)
	_, _ = j.s.wait()
	j.write("a/end", "")
	j.eventually("it has ended", func() bool { return strings.Contains(r.stderr.String(), "job "+ends) })
	j.s = j.serve()
	c.cut(j.s.url)
	r.waitFor("lap:" + j.real("a"))
	j.shows(ends, "over\n[exit code 4;")
	j.shows(stays, "up\n[running for")
	if got := j.call("exec", map[string]any{"command": "test -s beats && echo beside", "workspace_id": "lap"}); got.Content != "beside\n" {
		t.Errorf("beside it: %+v", got)
	}
	j.beatsOn()
	if got := j.call("job_kill", map[string]any{"job_id": stays}).Content; !strings.Contains(got, "is no more (killed: job_kill asked for it)") {
		t.Errorf("killed: %q", got)
	}
	j.quiet()
	j.eventually("the server keeps their ends", func() bool { return len(j.noted()) == 0 })
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
}

func TestJobsEndWithTheirPlaceAndTheirSession(t *testing.T) {
	for what, end := range map[string]func(j *jobbed){
		"the folder is detached": func(j *jobbed) {
			if code, _, errOut := j.run("workspace", "detach", "lap", "--session", j.session, "--server", j.s.url); code != 0 {
				j.t.Errorf("%d: %s", code, errOut)
			}
		},
		"the session is deleted": func(j *jobbed) {
			if code, _, errOut := j.run("rm", j.session, "--server", j.s.url); code != 0 {
				j.t.Errorf("%d: %s", code, errOut)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			j := newJobbed(t)
			r := j.share(j.session, j.s.url, "--trust", "full")
			id := j.leave(beats)
			j.beatsOn()
			end(j)
			j.eventually("it is told so", func() bool { return strings.Contains(r.stderr.String(), "troupe: job "+id) })
			j.quiet()
			r.signal(syscall.SIGINT)
			_, _ = r.wait()
		})
	}
}

// Two programs of one machine that share one folder with one session would have one ledger, and one set of notes about jobs.
func TestAPlaceIsSharedByOneProgramOfAMachineAtATime(t *testing.T) {
	j := newJobbed(t)
	first := j.share(j.session, j.s.url, "--trust", "full")
	id := j.leave(beats)
	j.beatsOn()
	args := []string{"attach", "a", "--session", j.session, "--as", "lap", "--server", j.s.url, "--trust", "full"}
	if code, out, errOut := j.run(args...); code != exitAgain || out != "" || !strings.Contains(errOut, fmt.Sprintf("(process %d)", first.cmd.Process.Pid)) || !strings.Contains(errOut, "--steal") {
		t.Errorf("a second one ended with %d: %s%s", code, out, errOut)
	}
	other := j.s.newSession()
	beside := j.share(other, j.s.url, "--trust", "full") // another session's place is another one
	beside.signal(syscall.SIGINT)
	_, _ = beside.wait()
	slow := j.s.begin(j.session, "slow", "exec", map[string]any{"command": once, "workspace_id": "lap"})
	j.eventually("it runs", func() bool { return j.runs() == 1 })
	second := j.share(j.session, j.s.url, "--trust", "full", "--steal")
	if code, _ := first.wait(); code != 0 || !strings.Contains(first.stderr.String(), "troupe: job "+id) {
		t.Errorf("the first one ended with %d: %s", code, first.stderr.String())
	}
	j.quiet()
	if x := <-slow; x.ErrorCode != "cancelled" || j.runs() != 1 {
		t.Errorf("the call that ran came to %+v, and ran %d times", x, j.runs())
	}
	j.shows(id, "[killed: its machine does not share the folder any more;")
	if got := j.call("exec", map[string]any{"command": "echo mine", "workspace_id": "lap"}); got.Content != "mine\n" {
		t.Errorf("then: %+v", got)
	}
	second.signal(syscall.SIGKILL)
	_, _ = second.wait()
	third := j.share(j.session, j.s.url, "--trust", "full") // who was killed has nothing any more
	third.signal(syscall.SIGINT)
	_, _ = third.wait()
}

// TestOfTwoThatStealAPlaceAtOnceOneHasIt, and the other is told which one, and ends; who had it before ends, too.
func TestOfTwoThatStealAPlaceAtOnceOneHasIt(t *testing.T) {
	j := newJobbed(t)
	first := j.share(j.session, j.s.url, "--trust", "full")
	args := []string{"attach", "a", "--session", j.session, "--as", "lap", "--server", j.s.url, "--trust", "full", "--steal"}
	thieves := []*running{j.start(args...), j.start(args...)}
	if code, _ := first.wait(); code != 0 {
		t.Errorf("the first one ended with %d: %s", code, first.stderr.String())
	}
	type end struct{ which, code int }
	ends := make(chan end, 2)
	for i, x := range thieves {
		go func() {
			code, _ := x.wait()
			ends <- end{i, code}
		}()
	}
	loser := <-ends
	winner := thieves[1-loser.which]
	told := thieves[loser.which].stderr.String()
	switch {
	case loser.code == exitAgain && strings.Contains(told, fmt.Sprintf("(process %d)", winner.cmd.Process.Pid)):
	case (loser.code == 0 || loser.code == exitInterrupted) && strings.Contains(winner.stderr.String(), fmt.Sprintf("to end (process %d)", thieves[loser.which].cmd.Process.Pid)): // it had the place already when the other one came
	default:
		t.Errorf("who has not the place ended with %d: %s; the other one says %s", loser.code, told, winner.stderr.String())
	}
	j.eventually("it works there", func() bool {
		return j.call("exec", map[string]any{"command": "echo mine", "workspace_id": "lap"}).Content == "mine\n"
	})
	winner.signal(syscall.SIGINT)
	if last := <-ends; last.code != 0 {
		t.Errorf("the one that has it ended with %d: %s", last.code, winner.stderr.String())
	}
}

func TestNotesOfJobsThatNobodyAsksForAreForgotten(t *testing.T) {
	j := newJobbed(t)
	owned := filepath.Join(j.home, ".local", "state", "troupe", "owned")
	note := func(place, name string, age time.Duration) string {
		dir := filepath.Join(owned, place+".jobs")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path, at := filepath.Join(dir, name), time.Now().Add(-age)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old, young := note("gone", "job_1", keptNotes+time.Hour), note("fresh", "job_2", keptNotes-time.Hour)
	beside, runs := note("fresh", "job_3", keptNotes+time.Hour), note("runs", "job_4", keptNotes+time.Hour)
	l, err := lockPlace(filepath.Join(owned, "runs.lock")) // a program that runs has it
	if err != nil || l == nil {
		t.Fatal(err)
	}
	defer l.release()
	r := j.share(j.session, j.s.url, "--trust", "full")
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
	for path, stays := range map[string]bool{old: false, filepath.Dir(old): false, young: true, beside: false, runs: true} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v, want it there: %v", path, err, stays)
		}
	}
}

// A place can also be taken by a program that has another ledger, as on a machine of the same name.
func TestAProgramWhosePlaceWasTakenSaysSoAndEnds(t *testing.T) {
	j := newJobbed(t)
	first := j.share(j.session, j.s.url, "--trust", "full")
	id := j.leave(beats)
	j.beatsOn()
	j.env = append(j.env, "XDG_STATE_HOME="+t.TempDir()) // of another machine
	second := j.share(j.session, j.s.url, "--trust", "full", "--steal")
	if code, _ := first.wait(); code == 0 || !strings.Contains(first.stderr.String(), "another program has taken the workspace lap:") || !strings.Contains(first.stderr.String(), "troupe: job "+id) {
		t.Errorf("the first one ended with %d: %s", code, first.stderr.String())
	}
	j.quiet()
	j.shows(id, "[interrupted: its machine knows nothing of it any more")
	if got := j.call("exec", map[string]any{"command": "echo mine", "workspace_id": "lap"}); got.Content != "mine\n" {
		t.Errorf("then: %+v", got)
	}
	second.signal(syscall.SIGINT)
	_, _ = second.wait()
}
