package troupe_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

// asks is a model that makes the call that a user writes, and repeats what came of it.
func asks() say {
	return func(req *model.Request) (string, []*messages.ToolCall) {
		last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
		if last.Role != messages.User {
			return last.Text, nil
		}
		name, args, _ := strings.Cut(last.Text, " ")
		return "", []*messages.ToolCall{call(name, args)}
	}
}

func unconfined(t *testing.T) tools.Sandbox {
	t.Helper()
	s, err := sandbox.Detect(context.Background(), sandbox.None, sandbox.Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Skipf("no commands here: %v", err)
	}
	return s
}

func prompted(ctx context.Context, t *testing.T, s *troupe.Session, text string) string {
	t.Helper()
	res, err := s.Run(ctx, text)
	if err != nil || res.Outcome != "done" {
		t.Fatalf("%s: %+v, %v", text, res, err)
	}
	return res.Text
}

// background starts a job that beats until its folder has the file `stop`, and returns its id.
func background(ctx context.Context, t *testing.T, s *troupe.Session) string {
	t.Helper()
	said := prompted(ctx, t, s, `exec {"command":"echo x > beats; echo up; while [ ! -e stop ]; do date +%s%N >> beats; sleep 0.02; done","background":true}`)
	id := regexp.MustCompile(`job_[0-9a-f]+`).FindString(said)
	if id == "" {
		t.Fatalf("no job in %q", said)
	}
	if said := prompted(ctx, t, s, fmt.Sprintf(`job_output {"job_id":%q,"wait_ms":30000}`, id)); !strings.Contains(said, "up\n[running for") {
		t.Fatalf("the job: %q", said)
	}
	return id
}

func TestAJobStaysWithItsAgentFromTurnToTurnAndMakesWayForOthers(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: asks(), Sandbox: unconfined(t)})
	dir := folder(t, nil)
	open := func() *troupe.Session {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mine, theirs := open(), open()
	id := background(ctx, t, mine)
	for range 3 { // its own turns have the workspace, with effects beside it
		if said := prompted(ctx, t, mine, `exec {"command":"test -s beats && echo beats"}`); said != "beats\n" {
			t.Fatalf("%q", said)
		}
	}
	if said := prompted(ctx, t, mine, fmt.Sprintf(`job_output {"job_id":%q}`, id)); !strings.Contains(said, "[running for") {
		t.Fatalf("%q", said)
	}
	// Somebody else has the workspace for himself: nothing of the job runs when his turn begins.
	first := prompted(ctx, t, theirs, `exec {"command":"tail -n 1 beats"}`)
	if later := prompted(ctx, t, theirs, `exec {"command":"sleep 0.2; tail -n 1 beats"}`); later != first {
		t.Errorf("the job went on: %s, then %s", first, later)
	}
	if said := prompted(ctx, t, mine, fmt.Sprintf(`job_output {"job_id":%q}`, id)); !strings.Contains(said, "[killed: another agent waited for the workspace;") {
		t.Errorf("%q", said)
	}
	if said := prompted(ctx, t, mine, `job_list {}`); !strings.Contains(said, id) {
		t.Errorf("%q", said)
	}
}

// A session that is closed or rests, and a runtime that ends, take their jobs along.
func TestJobsEndWithTheirSession(t *testing.T) {
	for what, idle := range map[string]time.Duration{"closed": 0, "the runtime": 0, "rests": 50 * time.Millisecond} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			rt, err := troupe.New(ctx, troupe.Options{Model: asks(), Sandbox: unconfined(t), DataDir: t.TempDir(), IdleAfter: idle})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(ctx)
			dir := folder(t, nil)
			s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
			if err != nil {
				t.Fatal(err)
			}
			prompted(ctx, t, s, `exec {"command":"while [ ! -e stop ]; do echo x >> beats; sleep 0.02; done","background":true}`)
			switch what {
			case "closed":
				if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Close{Close: &messages.CloseSession{}}}); err != nil {
					t.Fatal(err)
				}
			case "the runtime":
				if err := rt.Close(ctx); err != nil {
					t.Fatal(err)
				}
			}
			for was := int64(-1); ; {
				size := int64(0)
				if info, err := os.Stat(filepath.Join(dir, "beats")); err == nil {
					size = info.Size()
				}
				if size == was {
					return
				}
				was = size
				timer := time.NewTimer(300 * time.Millisecond)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
					t.Fatal("the job runs on")
				}
			}
		})
	}
}

func TestJobsAreCountedByAgent(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: asks(), Sandbox: unconfined(t), Limits: troupe.Limits{Jobs: 1}})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	id := background(ctx, t, s)
	if said := prompted(ctx, t, s, `exec {"command":"true","background":true}`); !strings.Contains(said, "1 jobs are running already") {
		t.Errorf("%q", said)
	}
	if said := prompted(ctx, t, s, fmt.Sprintf(`job_kill {"job_id":%q}`, id)); !strings.Contains(said, "is no more (killed") {
		t.Errorf("%q", said)
	}
}

// A job in an attached folder ends when that is taken away, and one in a folder that others see as a part of theirs makes way for them.
func TestJobsLeaveDetachedAndOverlappingFolders(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: asks(), Sandbox: unconfined(t)})
	outer := folder(t, nil)
	inner := filepath.Join(outer, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	open := func(dir string) *troupe.Session {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	around, within := open(outer), open(inner)
	id := background(ctx, t, within)
	prompted(ctx, t, around, `exec {"command":"true"}`)
	if said := prompted(ctx, t, within, fmt.Sprintf(`job_output {"job_id":%q}`, id)); !strings.Contains(said, "[killed: another agent waited for the workspace;") {
		t.Errorf("%q", said)
	}
	beside := folder(t, nil)
	if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: within.ID(), Command: &messages.ToSession_AttachWorkspace{AttachWorkspace: &messages.AttachWorkspace{
		Workspace: &messages.WorkspaceSpec{Uri: "local:" + beside, Name: "beside", Trust: troupe.Full},
	}}}); err != nil {
		t.Fatal(err)
	}
	said := prompted(ctx, t, within, `exec {"command":"sleep 1000","background":true,"workspace_id":"beside"}`)
	id = regexp.MustCompile(`job_[0-9a-f]+`).FindString(said)
	if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: within.ID(), Command: &messages.ToSession_DetachWorkspace{DetachWorkspace: &messages.DetachWorkspace{Workspace: "beside"}}}); err != nil {
		t.Fatal(err)
	}
	if said := prompted(ctx, t, within, fmt.Sprintf(`job_output {"job_id":%q,"wait_ms":20000}`, id)); !strings.Contains(said, "[killed: its workspace was detached;") {
		t.Errorf("%q", said)
	}
}

// TestACancelEndsWhatWasLeftRunningWhenItIsTold: of all agents of a session, or of one; else it says that they go on.
func TestACancelEndsWhatWasLeftRunningWhenItIsTold(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: asks(), Sandbox: unconfined(t), DataDir: t.TempDir()})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	all := []*troupe.Worker{s.Worker}
	for range 2 {
		w, err := s.NewWorker(ctx, troupe.WorkerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	begun := time.Now().UnixMilli()
	for _, w := range all {
		if res, err := w.Run(ctx, `exec {"command":"sleep 1000","background":true}`); err != nil || res.Outcome != "done" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	cancel := func(m *messages.CancelSession) *messages.Cancelled {
		t.Helper()
		return ask[*messages.Cancelled](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Cancel{Cancel: m}})
	}
	if c := cancel(&messages.CancelSession{}); c.GetJobs() != 3 || c.GetEnded() != 0 {
		t.Errorf("without a word of them: %v", c)
	}
	if c := cancel(&messages.CancelSession{WorkerId: all[1].ID(), Jobs: true}); c.GetJobs() != 0 || c.GetEnded() != 1 {
		t.Errorf("those of one agent: %v", c)
	}
	for _, w := range []*troupe.Worker{all[0], all[2]} {
		go func() { _, _ = w.Run(ctx, `exec {"command":"sleep 1000"}`) }()
	}
	count := func() *messages.JobCount {
		return ask[*messages.JobCount](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}})
	}
	if n := count(); n.GetBackground() != 2 || n.GetBackgroundSinceUnixMs() < begun || n.GetBackgroundSinceUnixMs() > time.Now().UnixMilli() {
		t.Errorf("what was left running: %v", n)
	}
	jobs := count().GetJobs()
	if len(jobs) != 2 || jobs[1].GetWorkerId() != all[2].ID() || !strings.Contains(jobs[0].GetCommand(), "sleep 1000") || jobs[0].GetSinceUnixMs() > jobs[1].GetSinceUnixMs() || jobs[0].GetWorkspace() == "" {
		t.Errorf("listed: %v", jobs)
	}
	for c := count(); c.GetRunning()+c.GetWaiting() != 2; c = count() { // one may wait for the folder
		<-time.After(time.Millisecond)
	}
	if c := cancel(&messages.CancelSession{Inputs: true, Jobs: true}); c.GetTurns()+c.GetInputs() != 2 || c.GetJobs() != 0 || c.GetEnded() != 2 {
		t.Errorf("those of all, and their prompts: %v", c)
	}
	if n := count(); n.GetBackground() != 0 || n.GetRunning() != 0 {
		t.Errorf("what goes on: %v", n)
	}
	if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{WorkerId: "wrk_none", Jobs: true}}}); failureCode(err) != messages.CodeNotFound {
		t.Errorf("those of nobody: %v", err)
	}
}
