package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
)

// machine is an owner with one job that has ended.
type machine struct{ client.Owner }

func (machine) TakesJobs() bool { return true }
func (machine) Jobs() []*messages.OwnedJob {
	return []*messages.OwnedJob{{JobId: "job_1", SessionId: "ses_1", State: "exited"}}
}
func (machine) WatchJobs(func(*messages.OwnedJob)) (stop func()) { return func() {} }
func (machine) EndJob(string, string)                            {}

// owned is a server that gives places to owners, and has told fn of what else they say.
func owned(t *testing.T, dir string, features []string, fn func(f messages.Frame, say func(messages.Frame))) {
	hold(t, dir, func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = ws.CloseNow() }()
		say := func(f messages.Frame) {
			b, err := messages.EncodeFrame(f)
			if err == nil {
				err = ws.Write(r.Context(), websocket.MessageText, b)
			}
			if err != nil {
				t.Error(err)
			}
		}
		for {
			_, b, err := ws.Read(r.Context())
			if err != nil {
				return
			}
			f, err := messages.DecodeFrame(b)
			if err != nil {
				t.Error(err)
				return
			}
			switch f := f.(type) {
			case *messages.HelloFrame:
				say(&messages.HelloFrame{Version: messages.FrameVersion, Features: features})
			case *messages.AttachFrame:
				if f.Leave {
					return
				}
				say(&messages.AttachFrame{Session: f.Session, Workspace: f.Workspace})
			}
			fn(f, say)
		}
	})
}

// TestWhatTheServerHasNoRoomForIsSaidAgain has a server refuse what an owner says, as it is busy, a few times.
func TestWhatTheServerHasNoRoomForIsSaidAgain(t *testing.T) {
	dir := t.TempDir()
	said := make(map[string]int)
	var mu sync.Mutex
	var heard sync.WaitGroup
	heard.Add(2)
	owned(t, dir, []string{messages.FeatureJobs, messages.FeatureApprovals}, func(f messages.Frame, say func(messages.Frame)) {
		mu.Lock()
		said[f.FrameType()]++
		n := said[f.FrameType()]
		mu.Unlock()
		switch f := f.(type) {
		case *messages.AttachFrame:
			say(&messages.ApprovalRequestFrame{Approval: (&messages.ApprovalView{ApprovalId: "app_1", SessionId: "ses_1"}).JSON()})
		case *messages.JobFrame:
			if n > 3 {
				heard.Done()
				return
			}
			say(&messages.ErrorFrame{About: messages.FrameJob, CallID: f.JobID, Code: messages.CodeBusy, Message: "too many"})
		case *messages.ApprovalResponseFrame:
			if n > 3 {
				heard.Done()
				return
			}
			say(&messages.ErrorFrame{About: messages.FrameApprovalResponse, ApprovalID: f.ApprovalID, Code: messages.CodeBusy, Message: "too many"})
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var told []string
	go func() {
		done <- dial(t, dir).Own(ctx, &client.Ownership{
			Session: "ses_1", Workspace: "laptop:/w", Owner: machine{},
			Approve: func(_ context.Context, v *messages.ApprovalView) *messages.ResolveApproval {
				return &messages.ResolveApproval{ApprovalId: v.GetApprovalId(), Decision: messages.Decision_APPROVED}
			},
			Refused: func(f *messages.ErrorFrame) { told = append(told, f.About) },
		})
	}()
	heard.Wait()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if said[messages.FrameJob] != 4 || said[messages.FrameApprovalResponse] != 4 || slices.Contains(told, messages.FrameJob) {
		t.Errorf("said were %v, told %v", said, told)
	}
}

// shop is an owner of many jobs that have ended, which are read from its disk whenever they are asked for.
type shop struct {
	machine
	jobs  int
	reads *atomic.Int32
}

func (s shop) Jobs() (all []*messages.OwnedJob) {
	s.reads.Add(1)
	for i := range s.jobs {
		all = append(all, &messages.OwnedJob{JobId: fmt.Sprintf("job_%d", i), SessionId: "ses_1", State: "exited"})
	}
	return all
}

// TestJobsThatTheServerHadNoRoomForAreReadOnce: what each has printed is on the disk, and a machine may have hundreds.
func TestJobsThatTheServerHadNoRoomForAreReadOnce(t *testing.T) {
	const jobs = 200
	dir := t.TempDir()
	again := make(chan struct{})
	said, heard := make(map[string]int), 0
	owned(t, dir, []string{messages.FeatureJobs}, func(f messages.Frame, say func(messages.Frame)) {
		j, is := f.(*messages.JobFrame)
		if !is {
			return
		}
		said[j.JobID]++
		switch heard++; heard {
		case jobs: // it has heard of each, and had no room for any
			for id := range said {
				say(&messages.ErrorFrame{About: messages.FrameJob, CallID: id, Code: messages.CodeBusy, Message: "too many"})
			}
		case 2 * jobs:
			for id, n := range said {
				if n != 2 {
					t.Errorf("%s was told %d times", id, n)
				}
			}
			close(again)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done, reads := make(chan error, 1), atomic.Int32{}
	go func() {
		done <- dial(t, dir).Own(ctx, &client.Ownership{Session: "ses_1", Workspace: "laptop:/w", Owner: shop{jobs: jobs, reads: &reads}})
	}()
	<-again
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if n := reads.Load(); n > jobs/4 {
		t.Errorf("they were read %d times", n)
	}
}

// hasty is an owner whose job_1 ends while its jobs are read again.
type hasty struct {
	machine
	began chan struct{}
	tell  *func(*messages.OwnedJob)
	reads *atomic.Int32
}

func (h hasty) WatchJobs(fn func(*messages.OwnedJob)) (stop func()) {
	*h.tell = fn
	close(h.began)
	return func() {}
}

func (h hasty) Jobs() []*messages.OwnedJob {
	job := func(id, state string) *messages.OwnedJob {
		return &messages.OwnedJob{JobId: id, SessionId: "ses_1", State: state}
	}
	if h.reads.Add(1) == 3 { // after those that are announced, and those that had ended before
		defer (*h.tell)(job("job_1", "exited"))
	}
	return []*messages.OwnedJob{job("job_1", "running"), job("job_2", "running")}
}

// TestThatAJobRunsIsNotSaidOnceItsEndIs: the server would take it on anew, and what it printed is lost with the one before.
func TestThatAJobRunsIsNotSaidOnceItsEndIs(t *testing.T) {
	dir := t.TempDir()
	h := hasty{began: make(chan struct{}), tell: new(func(*messages.OwnedJob)), reads: &atomic.Int32{}}
	heard, over := make(map[string][]string), make(chan struct{})
	owned(t, dir, []string{messages.FeatureJobs}, func(f messages.Frame, say func(messages.Frame)) {
		j, is := f.(*messages.JobFrame)
		if !is {
			return
		}
		switch heard[j.JobID] = append(heard[j.JobID], j.State); {
		case j.JobID == "job_2" && len(heard["job_2"]) == 1: // it has heard that both begin, and had no room for that
			for _, id := range []string{"job_1", "job_2"} {
				say(&messages.ErrorFrame{About: messages.FrameJob, CallID: id, Code: messages.CodeBusy, Message: "too many"})
			}
		case j.JobID == "job_2":
			close(over)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- dial(t, dir).Own(ctx, &client.Ownership{Session: "ses_1", Workspace: "laptop:/w", Owner: h})
	}()
	<-h.began
	for h.reads.Load() < 2 {
		runtime.Gosched()
	}
	for _, id := range []string{"job_1", "job_2"} {
		(*h.tell)(&messages.OwnedJob{JobId: id, SessionId: "ses_1", State: "running"})
	}
	<-over
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if got := heard["job_1"]; !slices.Equal(got, []string{"running", "exited"}) {
		t.Errorf("job_1 was told of as %q", got)
	}
}
