package owner_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
)

// waits is a sandbox whose commands run until they are ended.
type waits struct{}

func (waits) Name() string   { return "waits" }
func (waits) Confines() bool { return true }

func (waits) Run(ctx context.Context, _ tools.Command) (tools.Exit, error) {
	<-ctx.Done()
	return tools.Exit{}, ctx.Err()
}

// A client that connects while a job begins tells the server which jobs there are: what has a note by then was not cut off. Its note is written
// through a pipe here, which holds less than that, and so is not over when it can be read.
func TestAJobThatBeginsIsNotTakenForOneThatWasCutOff(t *testing.T) {
	notes := t.TempDir()
	_, _, x := around(t, owner.Options{Sandbox: waits{}, Jobs: notes})
	id := tools.JobID("exe_1")
	pipe := filepath.Join(notes, id+".new")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	begun := make(chan error, 1)
	go func() {
		r, err := x.Deliver(t.Context(), &messages.Execute{
			ExecId: "exe_1", Attempt: 1, Tool: "exec", Arguments: fmt.Sprintf(`{"command":%q,"background":true}`, strings.Repeat("x", 90_000)), WorkerId: "wrk_1",
			Workspace: &messages.WorkspaceGrant{Uri: "lap:/x"}, KeepsJobs: true,
		}, nil)
		if err == nil && r.GetErrorCode() != "" {
			err = fmt.Errorf("it is refused: %v", r)
		}
		begun <- err
	}()
	reads, err := os.Open(pipe) // once it is written to
	if err != nil {
		t.Fatal(err)
	}
	defer reads.Close()
	note, err := proto.Marshal(&messages.OwnedJob{JobId: id, State: tools.JobRunning})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(notes, id), note, 0o600); err != nil {
		t.Fatal(err)
	}
	if all := x.Jobs(); len(all) != 1 || all[0].GetState() != tools.JobRunning {
		t.Errorf("it is told of as %v", all)
	}
	if _, err := io.Copy(io.Discard, reads); err != nil {
		t.Error(err)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
}
