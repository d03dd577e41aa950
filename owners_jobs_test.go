package troupe_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
)

const lapURI = "laptop:~/dev/monad"

// leaver is an owner on another machine that says that it left commands running, and does what a test wants.
type leaver struct {
	takes  bool
	answer func(m *messages.Execute) *messages.ToolReply

	mu      sync.Mutex
	ends    map[string]string
	settled map[string]bool
}

func (l *leaver) Deliver(_ context.Context, m *messages.Execute, _ func(*messages.Progress)) (*messages.ToolReply, error) {
	return l.answer(m), nil
}
func (l *leaver) Cancel(string) {}
func (l *leaver) Settle(id string, _ uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled[id] = true
}
func (l *leaver) TakesJobs() bool { return l.takes }
func (l *leaver) EndJob(id, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[id] = why
}

func (l *leaver) ended(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends[id]
}

func (l *leaver) keeps(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.settled[id]
}

func newLeaver() *leaver {
	return &leaver{takes: true, ends: make(map[string]string), settled: make(map[string]bool), answer: func(m *messages.Execute) *messages.ToolReply {
		r := &messages.ToolReply{ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: messages.ToolFinished_OK, Content: "fine"}
		if m.GetTool() == "exec" && strings.Contains(m.GetArguments(), "background") {
			if r.Content = "Started the job " + tools.JobID(m.GetExecId()) + "."; !m.GetKeepsJobs() {
				r.Status, r.ErrorCode, r.Content = messages.ToolFinished_BAD_ARGS, tools.CodeInvalidArguments, "it is refused"
			}
		}
		return r
	}}
}

// lapSession is a session with a folder of a laptop.
func lapSession(ctx context.Context, t *testing.T, rt *troupe.Runtime) *troupe.Session {
	t.Helper()
	s, err := rt.Session(ctx, troupe.SessionOptions{Rules: []string{"exec"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: lapURI, Trust: troupe.Full}); err != nil {
		t.Fatal(err)
	}
	return s
}

func joined(ctx context.Context, t *testing.T, rt *troupe.Runtime, s *troupe.Session, o troupe.Owner, jobs ...*messages.OwnedJob) (uint64, func(bool)) {
	t.Helper()
	epoch, leave, err := rt.ConnectOwner(ctx, &messages.ConnectOwner{SessionId: s.ID(), Uri: lapURI, Client: "c", Jobs: jobs}, o)
	if err != nil {
		t.Fatal(err)
	}
	return epoch, leave
}

func callsThere(ctx context.Context, t *testing.T, s *troupe.Session, tool string, args map[string]any) *messages.ToolReply {
	t.Helper()
	r, err := s.Call(ctx, tool, args)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return r
}

func leaveThere(ctx context.Context, t *testing.T, s *troupe.Session) string {
	t.Helper()
	r := callsThere(ctx, t, s, "exec", map[string]any{"command": "serve", "background": true, "workspace_id": "laptop"})
	id := regexp.MustCompile(`job_[0-9a-f]+`).FindString(r.GetContent())
	if id == "" {
		t.Fatalf("no job: %v", r)
	}
	return id
}

// becomes waits for what job_output says of a job.
func becomes(ctx context.Context, t *testing.T, s *troupe.Session, id, text string) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		said := callsThere(ctx, t, s, "job_output", map[string]any{"job_id": id}).GetContent()
		if strings.Contains(said, text) {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limit:
			t.Fatalf("%q, want %q", said, text)
		}
	}
}

// worker is the id of the first one.
func worker(ctx context.Context, t *testing.T, rt *troupe.Runtime, s *troupe.Session) string {
	t.Helper()
	v, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}})
	if err != nil {
		t.Fatal(err)
	}
	return v.(*messages.SessionView).GetWorkers()[0].GetId()
}

func leftRunning(t *testing.T, rt *troupe.Runtime, s *troupe.Session) int32 {
	return ask[*messages.JobCount](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}}).GetBackground()
}

// An owner that knows no jobs is given the call as before, and refuses it; one that is not there is not asked.
func TestAnOwnerThatTakesNoJobsRefusesThem(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	s := lapSession(ctx, t, rt)
	job := map[string]any{"command": "serve", "background": true, "workspace_id": "laptop"}
	if r := callsThere(ctx, t, s, "exec", job); r.GetErrorCode() != "client_not_connected" {
		t.Errorf("nobody there: %v", r)
	}
	o := newLeaver()
	o.takes = false
	_, leave := joined(ctx, t, rt, s, o)
	if r := callsThere(ctx, t, s, "exec", job); r.GetErrorCode() != "invalid_arguments" || r.GetContent() != "it is refused" {
		t.Errorf("an older one: %v", r)
	}
	leave(false)
	// That of `troupe attach` refuses where the server says nothing of jobs, and says what to do.
	x := laptop(t, t.TempDir(), folder(t, nil), nil)
	r, err := x.Deliver(ctx, &messages.Execute{ExecId: "exe_1", Attempt: 1, Tool: "exec", Arguments: `{"command":"true","background":true}`, Workspace: &messages.WorkspaceGrant{Uri: lapURI}}, nil)
	if err != nil || r.GetErrorCode() == "" || leftRunning(t, rt, s) != 0 {
		t.Errorf("an older server: %v %v", r, err)
	}
}

func TestAnOwnersJobKeepsItsWorkspaceUntilItsEndIsTold(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Limits: troupe.Limits{Jobs: 2, Grace: 50 * time.Millisecond}})
	s := lapSession(ctx, t, rt)
	o := newLeaver()
	epoch, _ := joined(ctx, t, rt, s, o)
	id, other := leaveThere(ctx, t, s), leaveThere(ctx, t, s)
	if r := callsThere(ctx, t, s, "exec", map[string]any{"command": "serve", "background": true, "workspace_id": "laptop"}); !strings.Contains(r.GetContent(), "2 jobs are running already") {
		t.Errorf("a third: %v", r)
	}
	if n := leftRunning(t, rt, s); n != 2 {
		t.Errorf("%d are counted", n)
	}
	if said := callsThere(ctx, t, s, "job_output", map[string]any{"job_id": id}).GetContent(); said != "fine" {
		t.Errorf("its owner is asked: %q", said)
	}
	tell := func(m *messages.OwnedJob) error {
		m.SessionId, m.Uri = s.ID(), lapURI
		return rt.OwnedJob(ctx, m)
	}
	wantCode(t, "of an epoch that is over", tell(&messages.OwnedJob{JobId: id, State: "exited", Epoch: epoch + 1}), messages.CodeConflict)
	wantCode(t, "of no state", tell(&messages.OwnedJob{JobId: id, State: "odd", Epoch: epoch}), messages.CodeInvalidMessage)
	wantCode(t, "of no job", tell(&messages.OwnedJob{JobId: "job_../x", State: "exited", Epoch: epoch}), messages.CodeInvalidMessage)
	if leftRunning(t, rt, s) != 2 {
		t.Error("what was refused counts")
	}
	end := &messages.OwnedJob{JobId: id, WorkerId: worker(ctx, t, rt, s), State: "exited", Note: "exit code 3", ExitCode: 3, Output: "said\n", Epoch: epoch}
	for range 2 { // told twice, it is settled twice
		if err := tell(end); err != nil || o.keeps(id) {
			t.Errorf("its end: %v, kept there: %v", err, o.keeps(id))
		}
		o.settled = make(map[string]bool)
	}
	if r := callsThere(ctx, t, s, "job_output", map[string]any{"job_id": id}); r.GetContent() != "said\n[exit code 3; byte_offset 5 is next]" || !strings.Contains(r.GetMetaJson(), `"exit_code":3`) {
		t.Errorf("then: %v", r)
	}
	// One that is asked to end and never says so is given up, and its workspace with it; it is told so again when it is heard of.
	done := make(chan *messages.ToolReply, 1)
	go func() { done <- callsThere(ctx, t, s, "job_kill", map[string]any{"job_id": other}) }()
	if r := <-done; !strings.Contains(r.GetContent(), "its machine did not say that it has, and its outcome is not known") || o.ended(other) != "job_kill asked for it" {
		t.Errorf("killed: %v, asked: %q", r, o.ended(other))
	}
	if leftRunning(t, rt, s) != 0 {
		t.Error("it is still counted")
	}
	o.ends = make(map[string]string)
	joined(ctx, t, rt, s, o, &messages.OwnedJob{JobId: other, WorkerId: worker(ctx, t, rt, s), State: "running"})
	if o.ended(other) != "job_kill asked for it" {
		t.Errorf("it is asked to end again: %q", o.ended(other))
	}
}

// An owner that leaves says how its calls ended, and then that it leaves: that is heard, whichever of both is dealt with first.
func TestWhatAnOwnerSaysBeforeItLeavesIsHeard(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	s := lapSession(ctx, t, rt)
	o := newLeaver()
	var leave func(bool)
	o.answer = func(m *messages.Execute) *messages.ToolReply {
		leave(true)
		return &messages.ToolReply{ExecId: m.GetExecId(), Status: messages.ToolFinished_OK, Content: "the last word"}
	}
	_, leave = joined(ctx, t, rt, s, o)
	if r := callsThere(ctx, t, s, "exec", map[string]any{"command": "true", "workspace_id": "laptop"}); r.GetContent() != "the last word" {
		t.Errorf("%v", r)
	}
}

func TestJobsOfAnOwnerThatDoesNotComeBackAreOfUnknownOutcome(t *testing.T) {
	for what, forGood := range map[string]bool{"lost": false, "left": true} {
		rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Limits: troupe.Limits{Owner: 50 * time.Millisecond}})
		s := lapSession(ctx, t, rt)
		_, leave := joined(ctx, t, rt, s, newLeaver())
		id := leaveThere(ctx, t, s)
		leave(forGood)
		becomes(ctx, t, s, id, "[workspace owner disconnected: its outcome is not known;")
		if n := leftRunning(t, rt, s); n != 0 {
			t.Errorf("%s: %d are counted", what, n)
		}
		// It comes back after all, with the job.
		o := newLeaver()
		joined(ctx, t, rt, s, o, &messages.OwnedJob{JobId: id, WorkerId: worker(ctx, t, rt, s), Command: "serve", State: "running"})
		if said := callsThere(ctx, t, s, "job_output", map[string]any{"job_id": id}).GetContent(); said != "fine" || leftRunning(t, rt, s) != 1 {
			t.Errorf("%s: come back: %q", what, said)
		}
		// And another time without it.
		joined(ctx, t, rt, s, o)
		becomes(ctx, t, s, id, "[interrupted: its machine knows nothing of it any more")
	}
}

func TestWhatAnOwnerMakesUpOfJobsGetsItNothing(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Limits: troupe.Limits{Grace: 50 * time.Millisecond}})
	s, other := lapSession(ctx, t, rt), lapSession(ctx, t, rt)
	theirs := newLeaver()
	joined(ctx, t, rt, other, theirs)
	id := leaveThere(ctx, t, other)
	o := newLeaver()
	epoch, _ := joined(ctx, t, rt, s, o,
		&messages.OwnedJob{JobId: "job_stranger", WorkerId: worker(ctx, t, rt, other), State: "running"},
		&messages.OwnedJob{JobId: id, WorkerId: worker(ctx, t, rt, s), State: "running"},
		&messages.OwnedJob{JobId: "exe_1", WorkerId: worker(ctx, t, rt, s), State: "running"},
		&messages.OwnedJob{JobId: "job_odd", WorkerId: worker(ctx, t, rt, s), State: "odd"},
	)
	if n := leftRunning(t, rt, s); n != 0 {
		t.Errorf("%d jobs are its agent's", n)
	}
	if o.ended("job_stranger") != "its agent is no more" {
		t.Errorf("of an agent of another session: %q", o.ended("job_stranger"))
	}
	if err := rt.OwnedJob(ctx, &messages.OwnedJob{JobId: id, SessionId: s.ID(), WorkerId: worker(ctx, t, rt, s), Uri: lapURI, State: "exited", Epoch: epoch}); err != nil {
		t.Error(err)
	}
	if n := leftRunning(t, rt, other); n != 1 || theirs.ended(id) != "" {
		t.Errorf("the job of another session: %d, %q", n, theirs.ended(id))
	}
	agent := worker(ctx, t, rt, s)
	// Its own workspace is open: an end that comes before is not kept, and its owner tells of it again.
	callsThere(ctx, t, s, "list_files", map[string]any{"path": ".", "workspace_id": "home"})
	for i := range 80 { // of which one connection may make up so many
		m := &messages.OwnedJob{JobId: fmt.Sprintf("job_over%d", i), SessionId: s.ID(), WorkerId: agent, Uri: lapURI, State: "exited", Output: "x", Epoch: epoch}
		if err := rt.OwnedJob(ctx, m); err != nil || o.keeps(m.GetJobId()) {
			t.Fatalf("%s: %v", m.GetJobId(), err)
		}
	}
	left := callsThere(ctx, t, s, "list_files", map[string]any{"path": "spill", "workspace_id": "home"}).GetContent()
	if n := strings.Count(left, "job_over"); n < 50 || n > 64 {
		t.Errorf("%d outputs are kept", n)
	}
	var many []*messages.OwnedJob
	for i := range 1000 {
		many = append(many, &messages.OwnedJob{JobId: fmt.Sprintf("job_%d", i), WorkerId: agent, State: "running"})
	}
	joined(ctx, t, rt, s, o, many...)
	if n := leftRunning(t, rt, s); n != 16 || o.ended("job_50") == "" {
		t.Errorf("%d jobs were taken on", n)
	}
}

// A job that this process has found makes way for the agent of another session, as others do, also one that was there before its Workspace.
func TestAJobThatWasFoundMakesWayForOthers(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	s, other := lapSession(ctx, t, rt), lapSession(ctx, t, rt)
	joined(ctx, t, rt, other, newLeaver())
	dir, notes := folder(t, nil), t.TempDir()
	l, err := tools.OpenLedger(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	x, err := owner.New(owner.Options{Folders: map[string]string{lapURI: dir}, Trust: troupe.Full, Ledger: l, Sandbox: unconfined(t), Jobs: notes})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	const job = "exe_01a206cd45fc7a889d8765f045051450"
	r, err := x.Deliver(ctx, &messages.Execute{
		ExecId: job, Attempt: 1, Tool: "exec", Arguments: `{"command":"sleep 1000","background":true}`, SessionId: s.ID(), WorkerId: worker(ctx, t, rt, s),
		Workspace: &messages.WorkspaceGrant{Uri: lapURI}, KeepsJobs: true,
	}, nil)
	if err != nil || r.GetErrorCode() != "" {
		t.Fatalf("%v %v", r, err)
	}
	id := tools.JobID(job)
	epoch, _ := joined(ctx, t, rt, s, x, x.Jobs()...)
	stop := x.WatchJobs(func(j *messages.OwnedJob) {
		j.Epoch = epoch
		if err := rt.OwnedJob(ctx, j); err != nil {
			t.Error(err)
		}
	})
	defer stop()
	if r := callsThere(ctx, t, s, "exec", map[string]any{"command": "true", "workspace_id": "laptop"}); r.GetErrorCode() != "" || leftRunning(t, rt, s) != 1 {
		t.Errorf("its own agent works beside it: %v", r)
	}
	if r := callsThere(ctx, t, other, "exec", map[string]any{"command": "true", "workspace_id": "laptop"}); r.GetContent() != "fine" {
		t.Errorf("another one: %v", r)
	}
	becomes(ctx, t, s, id, "[killed: another agent waited for the workspace;")
	// Its end is kept before its owner is told that it may forget it.
	for limit := time.After(30 * time.Second); len(x.Jobs()) != 0; {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limit:
			t.Fatalf("still noted are %v", x.Jobs())
		}
	}
}

// A call that a crash of the server cut off is asked about again; the job of one that had never arrived begins then, and is known.
func TestAJobThatBeginsWhenItsCallIsAskedAboutAgainIsKnown(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	s := lapSession(ctx, t, rt)
	l, err := tools.OpenLedger(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	x, err := owner.New(owner.Options{Folders: map[string]string{lapURI: folder(t, nil)}, Trust: troupe.Full, Ledger: l, Sandbox: unconfined(t), Jobs: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	epoch, _ := joined(ctx, t, rt, s, x)
	stop := x.WatchJobs(func(j *messages.OwnedJob) {
		j.Epoch = epoch
		if err := rt.OwnedJob(ctx, j); err != nil {
			t.Error(err)
		}
	})
	defer stop()
	r, err := x.Deliver(ctx, &messages.Execute{ // as it comes then: nothing is held for it here
		ExecId: "exe_01a206cd45fc7a889d8765f045051451", Attempt: 1, Tool: "exec", Arguments: `{"command":"sleep 1000","background":true}`, SessionId: s.ID(),
		WorkerId: worker(ctx, t, rt, s), Workspace: &messages.WorkspaceGrant{Uri: lapURI}, KeepsJobs: true, Reconcile: true,
	}, nil)
	if err != nil || r.GetErrorCode() != "" || leftRunning(t, rt, s) != 1 {
		t.Fatalf("%v %v, %d run", r, err, leftRunning(t, rt, s))
	}
	if r := callsThere(ctx, t, s, "job_kill", map[string]any{"job_id": tools.JobID(r.GetExecId())}); !strings.Contains(r.GetContent(), "killed: job_kill asked for it") {
		t.Errorf("%v", r)
	}
}
