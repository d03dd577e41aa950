package owner_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
	"github.com/troupe-dev/troupe/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatCrashesAtAnOwnerStandsInItsLogAndNotInTheAnswer(t *testing.T) {
	ledger, err := tools.OpenLedger(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	var log bytes.Buffer
	crash := func(context.Context, *messages.Execute, *workspace.Workspace) error {
		panic("of a hook, with a secret")
	}
	x, err := owner.New(owner.Options{
		Folders: map[string]string{"lap:/x": t.TempDir()}, Trust: messages.Trust_FULL, Ledger: ledger, Allow: crash, Shows: crash,
		Redact: func(s string) string { return s }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	m := &messages.Execute{ExecId: "exe_1", Attempt: 1, Tool: "write_file", Workspace: &messages.WorkspaceGrant{Uri: "lap:/x"}, Arguments: `{"path":"a","content":"b"}`}
	if r, err := x.Preview(t.Context(), m); r != nil || err != nil {
		t.Errorf("the preview is %v, %v", r, err)
	}
	shown := log.String()
	if !strings.Contains(shown, "type=preview") || !strings.Contains(shown, "call=exe_1") || !strings.Contains(shown, "of a hook") || !strings.Contains(shown, "crash_test.go") {
		t.Errorf("the log has %q", shown)
	}
	log.Reset()
	r, err := x.Deliver(t.Context(), m, nil)
	if err != nil || r.GetErrorCode() != tools.CodeInternalError || strings.Contains(r.GetContent(), "secret") {
		t.Errorf("the answer is %v, %v", r, err)
	}
	if !strings.Contains(log.String(), "type=run") {
		t.Errorf("the log has %q", log.String())
	}
}
