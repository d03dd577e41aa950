package troupe_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
)

// TestAnOwnerKeepsWhatChangesSomethingAlone: reads may run again, and nobody settles them: kept, they would fill the ledger.
func TestAnOwnerKeepsWhatChangesSomethingAlone(t *testing.T) {
	const uri = "laptop:~/dev/monad"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("here"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := tools.OpenLedger(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	x, err := owner.New(owner.Options{Folders: map[string]string{uri: dir}, Trust: troupe.Full, Ledger: l})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for n, c := range []struct {
		tool, args string
		seen       tools.Seen
	}{
		{"read_file", `{"path":"a"}`, tools.NeverSeen},
		{"write_file", `{"path":"b","content":"x"}`, tools.Ended},
	} {
		exec := fmt.Sprint("exe_", n)
		r, err := x.Deliver(t.Context(), &messages.Execute{
			ExecId: exec, Attempt: 1, CallId: "c", Tool: c.tool, Arguments: c.args, Workspace: &messages.WorkspaceGrant{Uri: uri},
		}, nil)
		if err != nil || r.GetStatus() != messages.ToolFinished_OK {
			t.Fatalf("%s: %v %v", c.tool, r, err)
		}
		if seen, _, err := l.Look(exec, 1); err != nil || seen != c.seen {
			t.Errorf("%s: the ledger has seen %d, %v", c.tool, seen, err)
		}
	}
}
