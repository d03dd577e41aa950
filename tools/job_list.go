package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed job_list.md
var jobListDoc string

// JobList is the tool that lists an agent's jobs.
func JobList() Tool {
	return &jobTool[jobListArgs]{run: jobList, spec: &Spec{
		Name: "job_list", Description: jobListDoc, Effect: messages.Effect_PURE, NoWorkspace: true,
		Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{` + workspaceArg + `}}`),
	}}
}

type jobListArgs struct {
	Workspace string `json:"workspace_id"`
}

func jobList(_ context.Context, tc *Context, _ jobListArgs) (*Result, error) {
	all := tc.Jobs.all()
	slices.SortStableFunc(all, func(a, b *job) int { return a.start.Compare(b.start) })
	var b strings.Builder
	list := make([]map[string]any, 0, len(all))
	for _, j := range all {
		_, note := j.state()
		line, _ := cutLine(cleanName(j.command), 100)
		fmt.Fprintf(&b, "%s: %s (%s)\n", j.id, line, note)
		list = append(list, j.meta())
	}
	if len(all) == 0 {
		b.WriteString("(no jobs)")
	}
	return &Result{Content: tc.clean(b.String()), Details: map[string]any{"jobs": list}}, nil
}
