package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

func TestWhyNamesWhatIsWaitedForAndWhatCanBeDone(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 1, 0, 0, time.UTC)
	const at = "2026-03-01T09:00:00.000Z"
	busy := func(w messages.WorkerJSON) messages.WorkerJSON {
		w.ID, w.Session, w.Turn = "wrk_1", "ses_1", "trn_1"
		if w.State == "" {
			w.State = "waiting"
		}
		return w
	}
	waits := func(on messages.WaitingJSON) messages.WorkerJSON {
		on.Since = at
		return busy(messages.WorkerJSON{Waiting: &on})
	}
	call := messages.CallJSON{ID: "exe_1", ExecID: "exe_1", Worker: "wrk_1", Tool: "exec", Arguments: `{"command":"make"}`, State: "executing", At: at}
	away := call
	away.Workspace = "client:laptop/a"
	doubted := call
	doubted.State = "in_doubt"
	delegated := call
	delegated.Tool = "delegate"
	asks := messages.ApprovalJSON{ID: "apr_1", ExecID: "exe_1", Worker: "wrk_1", Tool: "exec", Arguments: `{"command":"make"}`, At: at}
	shown := asks
	shown.Shown = []messages.ViewerJSON{{By: "terminal"}}
	talk := messages.ConversationJSON{
		ID: "cnv_1", Name: "debate", Speaking: "wrk_2", Since: "2026-03-01T08:00:00.000Z", Members: []messages.MemberJSON{{Worker: "wrk_2", Name: "con"}},
		Queue: []messages.QueuedTurnJSON{{Turn: "inp_1", Worker: "wrk_1", At: at}, {Turn: "inp_2", Worker: "wrk_3", At: at}},
	}
	rests := busy(messages.WorkerJSON{State: "inactive", UpdatedAt: at})
	child := messages.WorkerJSON{ID: "wrk_2", Session: "ses_1", State: "waiting", Parent: "wrk_1"}
	childAsks := asks
	childAsks.Worker, childAsks.ExecID = "wrk_2", "exe_2"
	for _, c := range []struct {
		kind, text string
		f          whyFacts
	}{
		{"model", "a call of model p/m is under way since " + at + " (1m0s)", whyFacts{live: true, workers: []messages.WorkerJSON{waits(messages.WaitingJSON{Kind: "model", Subject: "p/m"})}}},
		{"permit", "it waits for a permit of model provider p since " + at + " (1m0s), as number 2 of 3", whyFacts{
			live: true, workers: []messages.WorkerJSON{waits(messages.WaitingJSON{Kind: "permit", Subject: "p"})}, queues: map[string][]string{"p": {"wrk_0", "wrk_1", "wrk_9"}},
		}},
		{"retry", "the model is asked again at 2026-03-01T09:02:00.000Z: its last call failed at " + at + ": 429", whyFacts{
			live: true, workers: []messages.WorkerJSON{waits(messages.WaitingJSON{Kind: "retry", Subject: "p/m", Until: "2026-03-01T09:02:00.000Z", Reason: "429"})},
		}},
		{"lease", "it waits for the workspace local:/a since " + at + " (1m0s): session ses_2 works there since 2026-03-01T08:00:00.000Z", whyFacts{
			live: true, workers: []messages.WorkerJSON{waits(messages.WaitingJSON{Kind: "lease", Subject: "local:/a", Session: "ses_2"})}, heldSince: "2026-03-01T08:00:00.000Z",
		}},
		{"budget", "it waits for its part of the session's budget since " + at + " (1m0s): other calls have theirs set aside", whyFacts{
			live: true, workers: []messages.WorkerJSON{waits(messages.WaitingJSON{Kind: "budget", Subject: "ses_1"})},
		}},
		{"budget", "it waits for more budget since " + at + " (1m0s): $1 of $1 are spent; add some with: troupe budget add ses_1 usd=N", whyFacts{
			live: true, workers: []messages.WorkerJSON{waits(messages.WaitingJSON{Kind: "budget", Subject: "ses_1", Reason: "$1 of $1 are spent"})},
			budget: &messages.BudgetViewJSON{Limits: messages.AmountsJSON{USD: 1, Tokens: 900}, Spent: messages.AmountsJSON{USD: 1, Tokens: 10}},
		}},
		{"budget", "it waits for more budget since " + at + " (1m0s): 9 of 10 tokens are spent; add some with: troupe budget add ses_1 --step 'sub[a b]/x' tokens=N", whyFacts{
			live: true, workers: []messages.WorkerJSON{waits(messages.WaitingJSON{Kind: "budget", Subject: "ses_1", Step: "sub[a b]/x", Reason: "9 of 10 tokens are spent"})},
			budget: &messages.BudgetViewJSON{Limits: messages.AmountsJSON{USD: 1}, Spent: messages.AmountsJSON{USD: 1}},
			steps:  map[string]*messages.BudgetViewJSON{"sub[a b]/x": {Limits: messages.AmountsJSON{Tokens: 10}, Spent: messages.AmountsJSON{Tokens: 9}}},
		}},
		{"tool", "exec(make) runs since " + at + " (1m0s)", whyFacts{live: true, workers: []messages.WorkerJSON{busy(messages.WorkerJSON{})}, calls: []messages.CallJSON{call}}},
		{"owner", "exec(make) is with machine laptop since " + at + " (1m0s), which is not connected: what came of it is known when that is back, or else it fails", whyFacts{
			live: true, workers: []messages.WorkerJSON{busy(messages.WorkerJSON{})}, calls: []messages.CallJSON{away}, offline: map[string]string{"client:laptop/a": "laptop"},
		}},
		{"approval", "exec(make) waits for an approval since " + at + " (1m0s); nobody sees it; answer with: troupe approve apr_1 (or deny)", whyFacts{
			workers: []messages.WorkerJSON{busy(messages.WorkerJSON{})}, approvals: []messages.ApprovalJSON{asks},
		}},
		{"approval", "exec(make) waits for an approval since " + at + " (1m0s); it is shown to terminal; answer with: troupe approve apr_1 (or deny)", whyFacts{
			live: true, workers: []messages.WorkerJSON{waits(messages.WaitingJSON{Kind: "call"})}, approvals: []messages.ApprovalJSON{shown}, calls: []messages.CallJSON{call},
		}},
		{"approval", "step gate of the pipeline asks a person since " + at + " (1m0s): Go?; nobody sees it; answer with: troupe approve apr_2 --reason CHOICE (or deny)", whyFacts{
			live: true, workers: []messages.WorkerJSON{busy(messages.WorkerJSON{State: "inactive"})},
			approvals: []messages.ApprovalJSON{{ID: "apr_2", Worker: "run_1", ExecID: "gate", Tool: "pipeline", Preview: "Go?", At: at}},
		}},
		{"doubt", "nobody knows whether exec(make), planned since " + at + " (1m0s), ran: a person is to say it with: troupe calls resolve exe_1 retry|done|fail", whyFacts{
			workers: []messages.WorkerJSON{busy(messages.WorkerJSON{})}, calls: []messages.CallJSON{doubted},
		}},
		{"worker", "it waits for worker wrk_2, to which it delegated since " + at + " (1m0s): exec(make) waits for an approval since " + at + " (1m0s); nobody sees it; answer with: troupe approve apr_1 (or deny)", whyFacts{
			live: true, workers: []messages.WorkerJSON{busy(messages.WorkerJSON{}), child}, approvals: []messages.ApprovalJSON{childAsks}, calls: []messages.CallJSON{delegated},
		}},
		{"quarantine", "it is quarantined since " + at + " (1m0s): it panicked; let it try again with: troupe workers release wrk_1", whyFacts{
			workers: []messages.WorkerJSON{busy(messages.WorkerJSON{State: "inactive_failed", Quarantined: true, LastError: "it panicked", UpdatedAt: at})},
		}},
		{"process", "its turn is open since " + at + " (1m0s), and no process works on it; go on with: troupe run -s ses_1", whyFacts{
			workers: []messages.WorkerJSON{busy(messages.WorkerJSON{UpdatedAt: at})}, calls: []messages.CallJSON{call},
		}},
		{"turn", "it is at work (working) since " + at + " (1m0s)", whyFacts{live: true, workers: []messages.WorkerJSON{busy(messages.WorkerJSON{State: "working", UpdatedAt: at})}}},
		{"input", "2 inputs wait since " + at + " (1m0s), and no turn is open; begin with: troupe run -s ses_1", whyFacts{
			workers: []messages.WorkerJSON{busy(messages.WorkerJSON{State: "inactive", Staged: 2, UpdatedAt: at})},
		}},
		{"timer", "it waits for timer tmr_1, due 2026-03-02T09:00:00.000Z; its last turn ended with outcome done since " + at + " (1m0s)", whyFacts{
			live: true, workers: []messages.WorkerJSON{busy(messages.WorkerJSON{State: "inactive", LastOutcome: "done", UpdatedAt: at})},
			timers: []messages.TimerJSON{{ID: "tmr_1", State: "set", At: "2026-03-02T09:00:00.000Z", Worker: "wrk_1"}},
		}},
		{"process", "its turn is open since " + at + " (1m0s), and no process works on it; go on with: troupe pipeline run --resume run_1", whyFacts{
			workers: []messages.WorkerJSON{busy(messages.WorkerJSON{State: "generating", UpdatedAt: at})}, goOn: "troupe pipeline run --resume run_1",
		}},
		{"word", "turn inp_1 waits for the word in conversation debate since " + at + " (1m0s), as number 1 of 2: con (wrk_2) has it since 2026-03-01T08:00:00.000Z", whyFacts{
			live: true, workers: []messages.WorkerJSON{rests}, talks: []messages.ConversationJSON{talk},
		}},
		{"word", "turn inp_1 waits for the word in conversation debate since " + at + " (1m0s), as number 1 of 2: con (wrk_2) has it since 2026-03-01T08:00:00.000Z, and no process works on it; go on with: troupe serve", whyFacts{
			workers: []messages.WorkerJSON{rests}, talks: []messages.ConversationJSON{talk},
		}},
		{"job", "no turn is open, and 1 command goes on in the background since " + at + " (1m0s); it has had no turn yet; end what runs with: troupe cancel ses_1 --jobs", whyFacts{
			live: true, workers: []messages.WorkerJSON{rests}, jobs: messages.JobsJSON{Background: 1, BackgroundSince: at},
		}},
		{"nothing", "nothing: it is idle since " + at + " (1m0s); its last turn ended with outcome error", whyFacts{
			workers: []messages.WorkerJSON{busy(messages.WorkerJSON{State: "inactive", LastOutcome: "error", UpdatedAt: at})},
		}},
	} {
		c.f.now = now
		j := whySession(&c.f, "ses_1")
		if j.For.Kind != c.kind || j.Text != c.text || j.ID != "ses_1" {
			t.Errorf("%s: %+v\nwant %s", c.kind, j, c.text)
		}
	}
}

func (m *machine) why(id string) whyJSON {
	m.t.Helper()
	code, out, stderr := m.run("why", id, "-o", "json")
	var j whyJSON
	if err := json.Unmarshal([]byte(out), &j); err != nil || code != exitDone {
		m.t.Fatalf("why %s ended with %d, %v: %s%s", id, code, err, out, stderr)
	}
	return j
}

func TestWhyOfARunningToolOfWhoWaitsBehindItAndOfADeadProcess(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I begin.")
	m.begun("a")
	first := m.onlySession()
	j := m.why(first)
	if j.For.Kind != "tool" || j.For.Subject != "exec" || j.State != "using_tool" || j.Since == "" || !strings.Contains(j.Text, " runs since ") {
		t.Errorf("a tool runs: %+v", j)
	}
	if c := m.why(j.For.Call); c.ID != j.For.Call || c.For.Kind != "tool" || c.State != "executing" {
		t.Errorf("its call: %+v", c)
	}
	behind := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	var second string
	m.eventually("nobody waits for the workspace", func() bool {
		for _, w := range m.workers() {
			if w.Waiting != nil && w.Waiting.Kind == "lease" {
				second = w.ID
			}
		}
		return second != ""
	})
	if j := m.why(second); j.For.Kind != "lease" || j.For.Session != first || strings.Count(j.Text, " since ") != 2 {
		t.Errorf("behind it: %+v", j)
	}
	behind.signal(os.Interrupt)
	behind.wait()
	r.signal(syscall.SIGKILL)
	r.wait()
	if j := m.why(first); j.For.Kind != "process" || j.For.Command != "troupe run -s "+first {
		t.Errorf("of a dead process: %+v", j)
	}
}

// behind has input inp_behind wait behind a turn of a session: a server has taken it, and the turn is that of another process.
func (m *machine) behind() (s *served, first *running, session string) {
	m.t.Helper()
	script := m.write("s.yaml", blocking)
	s = m.serve()
	first = m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	first.waitFor("I begin.")
	m.begun("a")
	session = m.onlySession()
	var in messages.StagedJSON
	s.post("/api/sessions/"+session+"/inputs", `{"input_id": "inp_behind", "text": "work"}`, &in)
	return s, first, session
}

// TestWhyOfWhatWaitsBehindSomethingElse: an input behind a turn, a turn of a shared conversation behind another member's, and afterwards a session that has
// left memory.
func TestWhyOfWhatWaitsBehindSomethingElse(t *testing.T) {
	m := newMachine(t)
	m.env = append(m.env, "TROUPE_LIMITS__IDLE=1s")
	s, first, id := m.behind()
	j := m.why("inp_behind")
	if j.For.Kind != "turn" || j.For.Position != 1 || j.For.Of != 1 || j.State != "staged" || j.Since == "" || !strings.Contains(j.Text, ", behind turn trn_") || !strings.Contains(j.Text, ": exec(") {
		t.Errorf("an input that waits: %+v", j)
	}
	if j := m.why(id); j.For.Kind != "tool" || !strings.HasSuffix(j.Text, "; 1 input waits behind it") {
		t.Errorf("the session: %+v", j)
	}
	var talk messages.ConversationJSON
	s.post("/api/sessions/"+id+"/conversations", `{"name": "debate"}`, &talk)
	for _, turn := range []string{"inp_one", "inp_two"} { // the first one has the word, and waits for the worker
		var taken messages.TurnAcceptedJSON
		s.post("/api/sessions/"+id+"/conversations/debate/turns", `{"turn": "`+turn+`", "prompt": "work"}`, &taken)
	}
	if j := m.why("inp_two"); j.For.Kind != "word" || j.For.Subject != talk.ID || j.For.Position != 1 || j.Since == "" || !strings.Contains(j.Text, "in conversation debate since 20") || !strings.Contains(j.Text, " has it since 20") {
		t.Errorf("a turn that waits for the word: %+v", j)
	}
	m.write("a/go", "")
	first.wait()
	m.eventually("the session never leaves memory", func() bool {
		_, out, _ := m.run("tree", "-o", "json")
		return !strings.Contains(out, id)
	})
	if j := m.why(id); j.For.Kind != "nothing" || j.Since == "" || !strings.Contains(j.Text, "nothing: it is idle since 20") {
		t.Errorf("a session that is not in memory: %+v", j)
	}
}

// TestWhyOfAnInputOfADeadProcess: asking for the inputs of a session brings it into memory, and no process works on it all the same.
func TestWhyOfAnInputOfADeadProcess(t *testing.T) {
	m := newMachine(t)
	s, first, id := m.behind()
	first.signal(os.Kill)
	_, _ = first.wait()
	s.signal(os.Kill)
	_, _ = s.wait()
	j := m.why("inp_behind")
	if j.State != "staged" || j.For.Position != 1 || j.For.Command != "troupe run -s "+id || !strings.Contains(j.Text, "no process works on it; go on with: troupe run -s "+id) {
		t.Errorf("of a dead process: %+v", j)
	}
}

// TestWhyOfARunOfADeadProcess: it is not brought into memory to be asked about.
func TestWhyOfARunOfADeadProcess(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	file := m.write("p.yaml", "version: 1\nname: one\nagents: {plain: {system: You work., tools: [exec]}}\nsteps:\n  - {id: a, agent: plain, prompt: work}\n")
	r := m.start("pipeline", "run", file, "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	m.begun("a")
	id := m.listedRun().ID
	r.signal(os.Kill)
	_, _ = r.wait()
	if j := m.why(id); j.ID != id || j.For.Kind != "process" || j.For.Command != "troupe pipeline run --resume "+id {
		t.Errorf("of a dead process: %+v", j)
	}
	if code, _, stderr := m.run("why", id[:len(id)-1]); code != exitMissing || !strings.Contains(stderr, "did you mean "+id+"?") {
		t.Errorf("of a run that there is not: %d %s", code, stderr)
	}
}

// oneRun is a house with a run and a session without one, which refuses to list all runs.
type oneRun struct {
	node
	t *testing.T
}

func (n oneRun) Ask(_ context.Context, m proto.Message) (proto.Message, error) {
	out := &messages.Runs{}
	switch x := m.(type) {
	case *messages.ListRuns:
		if x.GetRunId() == "" {
			n.t.Error("all runs are listed to find one")
		}
		if x.GetRunId() == "run_1" {
			out.Runs = []*messages.RunView{{RunId: "run_1", SessionId: "ses_1"}}
		}
	default:
		n.t.Errorf("it is asked for %T", m)
	}
	return out, nil
}

func TestTheRunOfASessionIsFoundWithoutTheOthers(t *testing.T) {
	n := oneRun{t: t}
	if id, err := sessionOfRun(t.Context(), n, "run_1"); err != nil || id != "ses_1" {
		t.Errorf("run_1 is that of %q, %v", id, err)
	}
	for session, want := range map[string]string{"ses_1": "troupe pipeline run --resume run_1", "ses_2": "troupe run -s ses_2"} {
		if got, err := goOnWith(t.Context(), n, session); err != nil || got != want {
			t.Errorf("%s goes on with %q, %v", session, got, err)
		}
	}
}
