package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed job_kill.md
var jobKillDoc string

// JobKill is the tool that ends a job. When it returns, nothing of the job is left.
func JobKill() Tool {
	return &jobTool[jobKillArgs]{run: jobKill, spec: &Spec{
		Name: "job_kill", Description: jobKillDoc, Effect: messages.Effect_IDEMPOTENT, NoWorkspace: true,
		Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["job_id"],"properties":{
"job_id":{"type":"string","minLength":1,"maxLength":100,"description":"The job, as exec named it."},
` + workspaceArg + `}}`),
	}}
}

type jobKillArgs struct {
	JobID     string `json:"job_id"`
	Workspace string `json:"workspace_id"`
}

func jobKill(ctx context.Context, tc *Context, a jobKillArgs) (*Result, error) {
	j := tc.Jobs.find(a.JobID)
	if j == nil {
		return nil, noJob(a.JobID)
	}
	before := "The job %s is no more (%s)."
	if j.ended() {
		before = "The job %s had ended before (%s)."
	}
	j.end("job_kill asked for it")
	select {
	case <-j.done:
	case <-ctx.Done():
		return nil, stopped(ctx.Err())
	}
	_, note := j.state()
	return &Result{Content: fmt.Sprintf(before, j.id, note), Meta: j.meta()}, nil
}
