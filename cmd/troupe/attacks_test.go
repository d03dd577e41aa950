package main

import (
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/internal/attacks"
	"github.com/troupe-dev/troupe/tools"
)

// TestEveryAttackOnFilesEndsAsAgreedOnTheCommandLine: the same list as that of the tools, by `troupe tool run`.
func TestEveryAttackOnFilesEndsAsAgreedOnTheCommandLine(t *testing.T) {
	files := []string{"read_file", "write_file", "edit_file", "list_files", "delete_file", "grep", "glob"}
	m, ran := newMachine(t), 0
	for _, a := range attacks.Load(t, "../../tools/testdata/attacks.json") {
		switch {
		case !slices.Contains(files, a.Tool) || a.Platform != "" && a.Platform != runtime.GOOS || a.Wire != nil:
			continue
		case a.Code == tools.CodeWorkspaceNotFound || a.Code == tools.CodeConcurrentModification: // of sessions, and of what was shown to a person
			continue
		case a.Expect == "contained" && a.CallID != "": // no model has named this call
			continue
		}
		ran++
		t.Run(a.ID+" "+a.Name, func(t *testing.T) {
			r := attacks.New(t, a)
			before := r.Outside(t)
			trust := []string{"--trust", "full"}
			if a.Trust == "Restricted" {
				trust = []string{"--allow", a.Tool}
			}
			code, out, stderr := m.run(append([]string{"tool", "run", a.Tool, "-C", r.Root, "--args", r.Arguments(a)}, trust...)...)
			var e tools.Envelope
			if err := json.Unmarshal([]byte(out), &e); err != nil || e.OK != (code == exitDone) || code != exitDone && code != exitFailed {
				t.Fatalf("it ended with %d: %s%s", code, out, stderr)
			}
			if (a.Category == "path" || strings.Contains(a.Invariant, "must not appear")) && strings.Contains(out+stderr, "TOPSECRET") {
				t.Errorf("the secret came out: %s", out)
			}
			if e.ErrorCode == tools.CodeInternalError || r.Repeat == 1 && a.Expect != "contained" && e.ErrorCode != a.Code {
				t.Errorf("came to %q, want %q: %s", e.ErrorCode, a.Code, out)
			}
			if !maps.Equal(before, r.Outside(t)) {
				t.Errorf("something outside the root changed: %v", r.Outside(t))
			}
		})
	}
	if ran < 40 {
		t.Errorf("only %d attacks concern the file tools", ran)
	}
}
