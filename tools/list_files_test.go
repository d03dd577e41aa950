package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListFilesIsSortedAndMarksWhatIsNoFile(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"b.go", "a/y.go", "a/x.md", ".env", ".git/config", ".troupe/x", "B.txt"} {
		b.put(name, "")
	}
	noError(t, os.Symlink("b.go", filepath.Join(b.root, "l")))
	for _, c := range []struct {
		args m
		want string
	}{
		{m{}, "B.txt\na/\nb.go\nl (link)\n"},
		{m{"include_hidden": true}, ".env\n.git/\nB.txt\na/\nb.go\nl (link)\n"},
		{m{"recursive": true}, "B.txt\na/\na/x.md\na/y.go\nb.go\nl (link)\n"},
		{m{"recursive": true, "pattern": "*.go"}, "a/y.go\nb.go\n"},
		{m{"recursive": true, "pattern": "a/*.md"}, "a/x.md\n"},
		{m{"path": "a"}, "a/x.md\na/y.go\n"},
		{m{"path": "a", "pattern": "*.rs"}, "(no files)\n"},
		{m{"max_results": 2}, "B.txt\na/\n... [truncated after 2 results; narrow it with path or pattern] ...\n"},
	} {
		r := b.ok(ListFiles(), c.args)
		if r.Content != c.want || r.Truncated != strings.Contains(c.want, "truncated") {
			t.Errorf("%v: got %q (truncated %v), want %q", c.args, r.Content, r.Truncated, c.want)
		}
	}
	b.fails(ListFiles(), m{"path": "b.go"}, CodeInvalidPath)
	b.fails(ListFiles(), m{"path": ".troupe"}, CodePermissionDenied)
	b.fails(ListFiles(), m{"path": "none"}, CodeFileNotFound)
	b.fails(ListFiles(), m{"path": "../"}, CodeInvalidPath)
}

func TestNamesThatWouldMisleadAreShownWithMarks(t *testing.T) {
	b := newBench(t)
	b.put("a\x1b[2J", "")
	b.put("b\u202egpj.exe", "")
	b.put("c\nd", "")
	if r := b.ok(ListFiles(), m{}); r.Content != "a?[2J\nb?gpj.exe\nc?d\n" {
		t.Errorf("got %q", r.Content)
	}
}
