package actors

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// leaves is the job that a call in a workspace of another machine would leave running there; nil: it leaves none, or its owner takes none, and says so.
func (r *run) leaves(spec *tools.Spec) *awayJob {
	var a struct {
		Command    string `json:"command"`
		Background bool   `json:"background"`
	}
	if !spec.Builtin() || spec.Name != "exec" || json.Unmarshal([]byte(r.m.GetArguments()), &a) != nil || !a.Background {
		return nil
	}
	place := Place{r.m.GetSessionId(), r.m.GetWorkspace().GetUri()}
	if o, ok := r.svc.Owners.at(place).owner.(JobOwner); !ok || !o.TakesJobs() {
		return nil
	}
	return &awayJob{
		id: tools.JobID(r.m.GetExecId()), worker: r.m.GetWorkerId(), host: r.m.GetWorkspace().GetOwner(), place: place, starting: true,
		command: r.svc.Redact.String(a.Command), home: func() *workspace.Workspace {
			ws, err := r.svc.folders.handle(r.m.GetHome())
			if err != nil { // then it stays in memory
				return nil
			}
			return ws
		},
	}
}

// leaveAway has a command left running by the owner of the workspace. It holds the workspace before it can begin (I6). Of one of which nobody knows whether it
// began nothing is kept here: its owner says so when it does.
func (r *run) leaveAway(ctx context.Context, j *awayJob) *messages.ToolReply {
	m := proto.CloneOf(r.m) // what was sent is not written to
	m.KeepsJobs = true
	r.m = m
	if m.GetReconcile() {
		return r.deliver(ctx)
	}
	if err := r.jobs.Room(); err != nil {
		return r.failed(ctx, err)
	}
	if r.svc.addAway(j, time.Now()) == nil {
		return r.noted(func() *messages.ToolReply { return r.deliver(ctx) })
	}
	release, err := r.hold(ctx, j.id, j.known.End)
	if err != nil {
		r.svc.dropAway(j)
		return r.failed(ctx, err)
	}
	r.svc.heldBy(j, release)
	reply := r.noted(func() *messages.ToolReply { return r.deliver(ctx) })
	if reply.GetStatus() != messages.ToolFinished_OK {
		r.svc.dropAway(j)
		return reply
	}
	r.svc.away.mu.Lock()
	j.starting = false
	r.svc.away.mu.Unlock()
	return reply
}

// outputAway asks the owner what a job has printed that runs there; nil: the call is about no such job.
func (r *run) outputAway(ctx context.Context, spec *tools.Spec) *messages.ToolReply {
	if !spec.Builtin() || spec.Name != "job_output" || r.m.GetPreview() || r.m.GetPrepare() {
		return nil
	}
	var a struct {
		JobID string `json:"job_id"`
	}
	if json.Unmarshal([]byte(r.m.GetArguments()), &a) != nil {
		return nil
	}
	j := r.svc.away.find(a.JobID)
	if j == nil || j.worker != r.m.GetWorkerId() {
		return nil
	}
	there := *r
	there.m = proto.CloneOf(r.m)
	there.m.KeepsJobs, there.m.Workspace = true, &messages.WorkspaceGrant{Uri: j.place.URI, Owner: j.host}
	reply := there.deliver(ctx)
	if reply.GetStatus() != messages.ToolFinished_OK && r.svc.away.find(a.JobID) == nil { // it has ended meanwhile
		return nil
	}
	return reply
}
