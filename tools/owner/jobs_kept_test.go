package owner_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
)

// chatty is a sandbox whose commands print a MiB and end.
type chatty struct{}

func (chatty) Name() string   { return "chatty" }
func (chatty) Confines() bool { return true }

func (chatty) Run(_ context.Context, cmd tools.Command) (tools.Exit, error) {
	_, err := cmd.Output.Write(bytes.Repeat([]byte("0123456789abcde\n"), 1<<16))
	return tools.Exit{}, err
}

// TestOutputOfJobsThatHaveEndedIsBoundedOverAllAgents: the program that shares a folder runs for long, for many agents. The oldest go first, and their notes stay.
func TestOutputOfJobsThatHaveEndedIsBoundedOverAllAgents(t *testing.T) {
	const jobs = 40
	ended := make(chan *messages.OwnedJob, jobs)
	_, _, x := around(t, owner.Options{Sandbox: chatty{}, Jobs: t.TempDir()})
	defer x.WatchJobs(func(j *messages.OwnedJob) {
		if j.GetState() != tools.JobRunning {
			ended <- j
		}
	})()
	call := func(exec, worker, tool, args string) *messages.ToolReply {
		t.Helper()
		r, err := x.Deliver(t.Context(), &messages.Execute{
			ExecId: exec, Attempt: 1, Tool: tool, Arguments: args, WorkerId: worker, Workspace: &messages.WorkspaceGrant{Uri: "lap:/x"}, KeepsJobs: true,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i := range jobs {
		if r := call(fmt.Sprintf("exe_%d", i), fmt.Sprintf("wrk_%d", i), "exec", `{"command":"say","background":true}`); r.GetErrorCode() != "" {
			t.Fatalf("%v", r)
		}
		if j := <-ended; len(j.GetOutput()) != 1<<20 {
			t.Fatalf("it said %d bytes", len(j.GetOutput()))
		}
	}
	known := 0
	for i := range jobs {
		r := call(fmt.Sprintf("exe_o%d", i), fmt.Sprintf("wrk_%d", i), "job_output", fmt.Sprintf(`{"job_id":%q}`, tools.JobID(fmt.Sprintf("exe_%d", i))))
		gone := strings.Contains(r.GetContent(), "is no more")
		if gone && known > 0 {
			t.Errorf("job %d is gone, and an older one is not", i)
		}
		if !gone {
			known++
		}
	}
	if known < 8 || known > 17 {
		t.Errorf("%d MiB are kept", known)
	}
	if n := len(x.Jobs()); n != jobs {
		t.Errorf("%d notes are there", n)
	}
}
