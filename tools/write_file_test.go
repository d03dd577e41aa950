package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/workspace"
)

func TestWriteFileMakesFilesAndWantsOldOnesToHaveBeenRead(t *testing.T) {
	b := newBench(t)
	r := b.ok(WriteFile(), m{"path": "a/b.txt", "content": "one\n"})
	if r.Content != "Created a/b.txt (1 line, 4 bytes)" || b.get("a/b.txt") != "one\n" || !strings.Contains(r.Diff, "--- /dev/null\n+++ b/a/b.txt\n@@ -0,0 +1 @@\n+one\n") {
		t.Errorf("got %q, diff %q", r.Content, r.Diff)
	}
	r = b.ok(WriteFile(), m{"path": "a/b.txt", "content": "two\nthree"})
	if r.Content != "Updated a/b.txt (2 lines, 9 bytes)" || !strings.Contains(r.Diff, "-one\n+two\n+three\n\\ No newline at end of file\n") {
		t.Errorf("got %q, diff %q", r.Content, r.Diff)
	}
	b.put("a/b.txt", "by somebody else")
	b.fails(WriteFile(), m{"path": "a/b.txt", "content": "x"}, CodeConcurrentModification, "File a/b.txt has been modified since it was last read")
	b.put("old", "old")
	b.fails(WriteFile(), m{"path": "old", "content": "x"}, CodeNotRead, "you must read the file before editing it")
	b.ok(ReadFile(), m{"path": filepath.Join(b.root, "old")})
	b.ok(WriteFile(), m{"path": "./old", "content": "x"})
	b.fails(WriteFile(), m{"path": "n/x", "content": "x", "create_dirs": false}, CodeFileNotFound)
	b.tc.Fresh = true
	b.put("old", "again")
	b.ok(WriteFile(), m{"path": "old", "content": "lone caller"})
}

func TestWriteFileHoldsToAnExpectedHash(t *testing.T) {
	b := newBench(t)
	b.put("f", "one")
	b.ok(WriteFile(), m{"path": "f", "content": "two", "expected_sha256": workspace.Sum([]byte("one"))})
	b.fails(WriteFile(), m{"path": "f", "content": "x", "expected_sha256": workspace.Sum([]byte("one"))}, CodeConcurrentModification)
	b.fails(WriteFile(), m{"path": "none", "content": "x", "expected_sha256": workspace.Sum([]byte("one"))}, CodeConcurrentModification)
	if b.get("f") != "two" || b.exists("none") {
		t.Error("a refused write wrote")
	}
}

func TestWriteFileKeepsItsBounds(t *testing.T) {
	b := newBench(t)
	b.ok(WriteFile(), m{"path": "f", "content": strings.Repeat("x", maxWriteBytes)})
	b.fails(WriteFile(), m{"path": "g", "content": strings.Repeat("x", maxWriteBytes+1)}, CodeFileTooLarge, "File too large: g")
	noError(t, os.Mkdir(filepath.Join(b.root, "d"), 0o755))
	b.fails(WriteFile(), m{"path": "d", "content": "x"}, CodeInvalidPath)
	b.fails(WriteFile(), m{"path": ".git/hooks/post-commit", "content": "x"}, CodePermissionDenied, "Access denied: .git/hooks/post-commit")
	b.put("bin", "\x00\x01")
	b.tc.Fresh = true
	if r := b.ok(WriteFile(), m{"path": "bin", "content": "text"}); r.Diff != "" {
		t.Errorf("a diff of a binary file: %q", r.Diff)
	}
}
