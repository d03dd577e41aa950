package tools

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// BenchmarkReadFile compares the check of a call's arguments, for the decision and for the run, with the call itself.
func BenchmarkReadFile(b *testing.B) {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte(strings.Repeat("what was seen on this day\n", 400)), 0o600); err != nil {
		b.Fatal(err)
	}
	ws, err := workspace.Open(workspace.Options{Dir: dir, Trust: messages.Trust_RESTRICTED})
	if err != nil {
		b.Fatal(err)
	}
	defer ws.Close()
	tool, args := ReadFile(), json.RawMessage(`{"path":"notes.txt"}`)
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := Check(tool.Spec(), args); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("run", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := tool.Run(&Context{Signal: b.Context(), Workspace: ws, Known: map[string]string{}}, args); err != nil {
				b.Fatal(err)
			}
		}
	})
}
