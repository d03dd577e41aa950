package tools

import (
	"fmt"
	"strings"
	"testing"
)

func TestGrepFindsLinesInOrder(t *testing.T) {
	b := newBench(t)
	b.put("b.txt", "one\ntwo\nthree Two\nfour\nfive\n")
	b.put("a/x.go", "two := 2\r\nfoo(two)\r\n")
	b.put("bin", "two\x00")
	b.put(".git/two", "two")
	b.put(".env", "two=2")
	b.put("bad", "two \xff\n")
	for _, c := range []struct {
		args m
		want string
	}{
		{m{"pattern": "two"}, ".env:1: two=2\na/x.go:1: two := 2\na/x.go:2: foo(two)\nb.txt:2: two\nbad:1: two ?\n"},
		{m{"pattern": "^two$"}, "b.txt:2: two\n"},
		{m{"pattern": `\)$`}, "a/x.go:2: foo(two)\n"},
		{m{"pattern": "TWO", "case_sensitive": false, "path": "b.txt"}, "b.txt:2: two\nb.txt:3: three Two\n"},
		{m{"pattern": "foo(", "literal": true}, "a/x.go:2: foo(two)\n"},
		{m{"pattern": "two", "include": "*.go"}, "a/x.go:1: two := 2\na/x.go:2: foo(two)\n"},
		{m{"pattern": "two", "include": "a/*", "max_results": 1}, "a/x.go:1: two := 2\n... [truncated after 1 results; narrow the pattern, path or include] ...\n"},
		{m{"pattern": "one|five", "path": "b.txt", "context": 1}, "b.txt:1: one\nb.txt-2- two\n--\nb.txt-4- four\nb.txt:5: five\n"},
		{m{"pattern": "two|Two", "path": "b.txt", "context": 1}, "b.txt-1- one\nb.txt:2: two\nb.txt:3: three Two\nb.txt-4- four\n"},
		{m{"pattern": "none"}, "(no matches)\n"},
	} {
		if r := b.ok(Grep(), c.args); r.Content != c.want {
			t.Errorf("%v: got %q, want %q", c.args, r.Content, c.want)
		}
	}
	b.fails(Grep(), m{"pattern": "("}, CodeInvalidArguments, "does not compile", "literal")
	b.fails(Grep(), m{"pattern": "(?=x)"}, CodeInvalidArguments)
	b.fails(Grep(), m{"pattern": ""}, CodeInvalidArguments)
	b.fails(Grep(), m{"pattern": "x", "path": "none"}, CodeFileNotFound)
	b.fails(Grep(), m{"pattern": "x", "path": "../"}, CodeInvalidPath)
}

func TestGrepKeepsItsBounds(t *testing.T) {
	b := newBench(t)
	b.put("long", strings.Repeat("x", 5000)+"needle"+strings.Repeat("y", 5000))
	if r := b.ok(Grep(), m{"pattern": "needle"}); len(r.Content) > 600 || r.Meta["matches"] != 1 {
		t.Errorf("%d bytes of one long line, %v", len(r.Content), r.Meta)
	}
	for i := range 30 {
		b.put(fmt.Sprintf("d/%02d", i), strings.Repeat("needle in a line of some length, again and again\n", 100))
	}
	r := b.ok(Grep(), m{"pattern": "needle", "path": "d", "max_results": 5000})
	if len(r.Content) > maxResultBytes+200 || !r.Truncated {
		t.Errorf("%d bytes, truncated %v", len(r.Content), r.Truncated)
	}
	b.put("big", strings.Repeat("needle\n", 10<<20/7+1))
	if r := b.ok(Grep(), m{"pattern": "needle", "include": "big"}); r.Meta["skipped"] != 1 || r.Meta["matches"] != 0 {
		t.Errorf("a file over 10 MiB: %v", r.Meta)
	}
}
