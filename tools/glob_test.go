package tools

import (
	"strings"
	"testing"
)

func TestGlobMatchesPathsFromItsStart(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"main.go", "a/x.go", "a/b/y.go", "a/b/y_test.go", "a/.hid/z.go", ".github/w.yml", ".git/h.go", "a/b/c.TS", "a/[x].go"} {
		b.put(name, "")
	}
	for pattern, want := range map[string]string{
		"*.go": "main.go\n", "**/*.go": "a/[x].go\na/b/y.go\na/b/y_test.go\na/x.go\nmain.go\n", "**/*_test.go": "a/b/y_test.go\n", "a/**": "a/[x].go\na/b/c.TS\na/b/y.go\na/b/y_test.go\na/x.go\n",
		"a/**/b/*.{go,TS}": "a/b/c.TS\na/b/y.go\na/b/y_test.go\n", ".github/**": ".github/w.yml\n", "?/[w-x].go": "a/x.go\n", "**/.hid/*": "a/.hid/z.go\n", "./main.go": "main.go\n",
		`a/\[x\].go`: "a/[x].go\n", "**": "a/[x].go\na/b/c.TS\na/b/y.go\na/b/y_test.go\na/x.go\nmain.go\n", "x": "(no files match)\n", "a": "(no files match)\n", ".git/**": "(no files match)\n",
	} {
		if r := b.ok(Glob(), m{"pattern": pattern}); r.Content != want {
			t.Errorf("%s: got %q, want %q", pattern, r.Content, want)
		}
	}
	if r := b.ok(Glob(), m{"pattern": "*.go", "path": "a/b", "max_results": 1}); !r.Truncated || !strings.HasPrefix(r.Content, "a/b/y.go\n...") {
		t.Errorf("got %q", r.Content)
	}
	for pattern, code := range map[string]string{
		"[": CodeInvalidArguments, "{a": CodeInvalidArguments, "": CodeInvalidArguments, "../*": CodeInvalidPath, "/etc/*": CodeInvalidPath, "a/../../*": CodeInvalidPath,
		strings.Repeat("{a,b}", 10): CodeInvalidArguments, strings.Repeat("a", 2000): CodeInvalidArguments,
	} {
		b.fails(Glob(), m{"pattern": pattern}, code)
	}
	b.fails(Glob(), m{"pattern": "*", "path": "main.go"}, CodeInvalidPath)
}

func TestAGlobOfManyStarsCostsNoMoreThanItsLength(t *testing.T) {
	p, err := compilePattern(strings.Repeat("**/*a*a*a*/", 30)+"b", false)
	noError(t, err)
	if p.match(strings.Repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/", 60) + "c") {
		t.Error("matched")
	}
}
