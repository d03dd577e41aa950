package owner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
)

// around shares a folder with hooks, and returns the folder and what a call in it comes to.
func around(t *testing.T, o owner.Options) (string, func(exec string) *messages.ToolReply, *owner.Owner) {
	t.Helper()
	ledger, err := tools.OpenLedger(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ledger.Close() })
	dir := t.TempDir()
	o.Folders, o.Trust, o.Ledger = map[string]string{"lap:/x": dir}, messages.Trust_FULL, ledger
	x, err := owner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return dir, func(exec string) *messages.ToolReply {
		t.Helper()
		r, err := x.Deliver(t.Context(), &messages.Execute{
			ExecId: exec, Attempt: 1, Tool: "write_file", Workspace: &messages.WorkspaceGrant{Uri: "lap:/x"}, Arguments: `{"path":"a","content":"b"}`,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}, x
}

func TestAHookThatCrashesAfterACallChangesNothingOfIt(t *testing.T) {
	dir, call, _ := around(t, owner.Options{After: func(context.Context, *messages.Execute, *tools.Context, *messages.ToolReply) {
		panic("as the test wants it")
	}})
	r := call("exe_1")
	if _, err := os.Stat(filepath.Join(dir, "a")); err != nil || r.GetStatus() != messages.ToolFinished_OK {
		t.Errorf("the file was written, and the call came to %v; %v", r, err)
	}
}

func TestACallThatIsCancelledWhileAHookRunsIsNotRefusedByIt(t *testing.T) {
	var x *owner.Owner
	dir, call, made := around(t, owner.Options{Before: func(ctx context.Context, m *messages.Execute, _ *tools.Context) error {
		if m.GetExecId() == "exe_1" {
			return errors.New("no")
		}
		x.Cancel(m.GetExecId())
		return ctx.Err()
	}})
	x = made
	if r := call("exe_1"); r.GetStatus() != messages.ToolFinished_DENIED || r.GetDetailsJson() != `{"refused_by":"hook"}` {
		t.Errorf("refused by the hook: %v", r)
	}
	if r := call("exe_2"); r.GetErrorCode() != tools.CodeCancelled || r.GetStatus() == messages.ToolFinished_DENIED {
		t.Errorf("cancelled: %v", r)
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("it was written")
	}
}
