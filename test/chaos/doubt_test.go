package chaos

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// paying is a script with a command that notes its exec id, and lasts until the folder has a file `go`.
const paying = `
name: paying
rules:
  - match: '^pay$'
    steps:
      - text: I begin.
        tool_calls: [{name: exec, arguments: {command: 'echo $TROUPE_EXEC_ID >> paid; touch begun; while test ! -e go; do sleep 0.02; done; echo done'}}]
      - text: It has ended.
  - match: '^block$'
    steps:
      - text: I begin.
        tool_calls: [{name: exec, arguments: {command: 'touch blocked; while test ! -e unblock; do sleep 0.02; done'}}]
      - text: I have finished.
  - reply: {text: 'You said ${user}'}
`

// cutOff kills a run in the middle of its command, where a person is to be asked, and gives session and call.
func cutOff(t *testing.T) (m *machine, session, exec string) {
	t.Helper()
	m = newMachine(t)
	m.serve(paying, script.ServeOptions{})
	m.env = append(m.env, "TROUPE_TOOLS__EXEC__UNKNOWN=ask")
	m.blocked("begun", prompt("pay")...).kill()
	session = m.session()
	e := m.want(75, "run", "-s", session)
	calls := list[[]messages.CallJSON](m, "ls", "calls", "--state", "in_doubt")
	if len(calls) != 1 || calls[0].Session != session || calls[0].Tool != "exec" || calls[0].State != "in_doubt" {
		t.Fatalf("in doubt: %v", calls)
	}
	exec = calls[0].ID
	for _, says := range []string{"troupe calls resolve " + exec + " retry|done|fail", "troupe run -s " + session} {
		if !strings.Contains(e.err, says) {
			t.Errorf("want %q: %s", says, e)
		}
	}
	return m, session, exec
}

func TestACommandThatAKillCutOffWaitsForAPersonAndGoesOnByTheirWord(t *testing.T) {
	for word, c := range map[string]struct {
		says string
		runs int
	}{"retry": {"ok", 2}, "done": {"ok", 1}, "fail": {"error", 1}} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			m, session, exec := cutOff(t)
			if w := list[[]messages.WorkerJSON](m, "ls", "workers"); len(w) != 1 || w[0].State != "waiting" || w[0].InDoubt != 1 {
				t.Errorf("%+v", w)
			}
			if e := m.want(75, "run", "-s", session, "-o", "json"); !strings.Contains(e.out, `"outcome": "waiting"`) {
				t.Errorf("as an object: %s", e)
			}
			m.want(75, "run", "-s", session, "something else") // it is accepted, and waits behind
			m.want(64, "calls", "resolve", exec, "perhaps")
			m.want(66, "calls", "resolve", "exe_none", word)
			m.want(0, "calls", "resolve", exec, word, "--note", "I looked.")
			if e := m.want(1, "calls", "resolve", exec, "fail"); !strings.Contains(e.err, "already") {
				t.Errorf("a second word %s", e)
			}
			if left := list[[]messages.CallJSON](m, "ls", "calls", "--state", "in_doubt"); len(left) != 0 {
				t.Errorf("still in doubt: %v", left)
			}
			m.write("go", "")
			if e := m.want(0, "run", "-s", session); !strings.Contains(e.out, "You said something else") {
				t.Errorf("going on %s", e)
			}
			shown := list[messages.ShownJSON](m, "show", session)
			if len(shown.Turns) != 2 || shown.Turns[0].Outcome != "done" || shown.Turns[0].ToolCalls[0].Status != c.says {
				t.Errorf("%+v", shown.Turns)
			}
			if got := m.read("paid"); got != strings.Repeat(exec+"\n", c.runs) {
				t.Errorf("the command ran as %q, want %d times %s", got, c.runs, exec)
			}
			m.sound(session)
		})
	}
}

func TestACallInDoubtIsSettledThroughTheHolderOfTheDirectory(t *testing.T) {
	m, session, exec := cutOff(t)
	if err := os.Mkdir(m.folder+"/../else", 0o755); err != nil {
		t.Fatal(err)
	}
	holder := m.blocked("../else/blocked", prompt("block", "-C", "../else")...)
	waits := m.start("run", "-s", session)
	if e := waits.wait(); e.code != 75 || !strings.Contains(e.err, exec) {
		t.Errorf("through the holder: %s", e)
	}
	m.write("go", "")
	m.want(0, "calls", "resolve", exec, "retry") // its session is in the holder's memory, and goes on there
	if e := m.run("run", "-s", session); e.code != 0 || !strings.Contains(e.out, "It has ended.") {
		t.Errorf("going on %s", e)
	}
	m.write("../else/unblock", "")
	if e := holder.wait(); e.code != 0 {
		t.Errorf("the holder %s", e)
	}
	if got := m.read("paid"); got != exec+"\n"+exec+"\n" {
		t.Errorf("the command ran as %q", got)
	}
	m.sound(session)
}

func TestACommandThatAnInterruptEndedIsRecordedAsStopped(t *testing.T) {
	m := newMachine(t)
	m.serve(paying, script.ServeOptions{})
	m.env = append(m.env, "TROUPE_TOOLS__EXEC__UNKNOWN=ask") // nobody has to be asked
	r := m.blocked("begun", prompt("pay")...)
	sent := time.Now()
	r.signal(syscall.SIGINT)
	if e := r.wait(); e.code != 130 {
		t.Errorf("interrupted: %s", e)
	}
	late := time.Since(sent) > 500*time.Millisecond // then the process may have ended before its command did
	e := m.run("run", "-s", m.session())
	calls := list[[]messages.CallJSON](m, "ls", "calls")
	if late && e.code == 75 { // then it is in doubt, and says so
		if len(calls) != 1 || calls[0].State != "in_doubt" {
			t.Errorf("stopped too late for an orderly end: %v, going on %s", calls, e)
		}
		return
	}
	if e.code != 0 || len(calls) != 1 || calls[0].Status != "cancelled" || !strings.Contains(e.err, "Stopped before it finished") {
		t.Errorf("%v, going on %s", calls, e)
	}
	if got := strings.Count(m.read("paid"), "\n"); got != 1 {
		t.Errorf("the command ran %d times", got)
	}
	m.sound(m.session())
}

// A job that a command was left as dies with its process, however that ends, and the next process knows nothing of it.
func TestAKillLeavesNoJobBehind(t *testing.T) {
	n := "4" + strconv.Itoa(100000+os.Getpid())
	m := newMachine(t)
	m.serve(strings.ReplaceAll(`
name: leaving
rules:
  - match: '^leave$'
    steps:
      - text: I begin.
        tool_calls: [{name: exec, arguments: {background: true, command: 'setsid sleep N & touch up; sleep N'}}]
      - text: And I wait.
        tool_calls: [{name: exec, arguments: {command: 'while test ! -e up; do sleep 0.02; done; touch begun; while test ! -e go; do sleep 0.02; done'}}]
      - text: It has ended.
  - match: '^list$'
    steps:
      - text: I look.
        tool_calls: [{name: job_list, arguments: {}}]
      - text: 'There are ${tool.content}'
  - reply: {text: 'You said ${user}'}
`, "N", n), script.ServeOptions{})
	r := m.blocked("begun", prompt("leave")...)
	if len(sleepers(t, n)) == 0 {
		t.Error("no job runs: nothing is shown by this test")
	}
	r.kill()
	m.eventually("a job is left behind", func() bool { return len(sleepers(t, n)) == 0 })
	m.write("go", "")
	m.want(0, "run", "-s", m.session())
	e := m.want(0, "run", "-s", m.session(), "list", "-o", "json")
	if !strings.Contains(e.out, "(no jobs)") {
		t.Errorf("afterwards: %s", e)
	}
	m.sound(m.session())
}

// sleepers lists the processes of this machine that sleep so long.
func sleepers(t *testing.T, n string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skipf("no list of processes on this system: %v", err)
	}
	for _, p := range entries {
		line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), "sleep\x00"+n) {
			found = append(found, string(line))
		}
	}
	return found
}
