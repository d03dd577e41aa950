package client_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
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

// TestWhatTheServerHasNoRoomForIsSaidAgain has a server refuse what an owner says, as it is busy, a few times.
func TestWhatTheServerHasNoRoomForIsSaidAgain(t *testing.T) {
	dir := t.TempDir()
	said := make(map[string]int)
	var mu sync.Mutex
	var heard sync.WaitGroup
	heard.Add(2)
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
			mu.Lock()
			said[f.FrameType()]++
			n := said[f.FrameType()]
			mu.Unlock()
			switch f := f.(type) {
			case *messages.HelloFrame:
				say(&messages.HelloFrame{Version: messages.FrameVersion, Features: []string{messages.FeatureJobs, messages.FeatureApprovals}})
			case *messages.AttachFrame:
				if f.Leave {
					return
				}
				say(&messages.AttachFrame{Session: f.Session, Workspace: f.Workspace})
				say(&messages.ApprovalRequestFrame{Approval: (&messages.ApprovalView{ApprovalId: "app_1", SessionId: "ses_1"}).JSON()})
			case *messages.JobFrame:
				if n > 3 {
					heard.Done()
					continue
				}
				say(&messages.ErrorFrame{About: messages.FrameJob, CallID: f.JobID, Code: messages.CodeBusy, Message: "too many"})
			case *messages.ApprovalResponseFrame:
				if n > 3 {
					heard.Done()
					continue
				}
				say(&messages.ErrorFrame{About: messages.FrameApprovalResponse, ApprovalID: f.ApprovalID, Code: messages.CodeBusy, Message: "too many"})
			}
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
