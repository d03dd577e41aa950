package tools

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
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

// patient is a call that ends when it was looked at so many times.
type patient struct {
	context.Context
	looks atomic.Int64
}

func (p *patient) Err() error {
	if p.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestASearchOfLongLinesEndsWithItsCall has an expression that takes long for each line, and few lines.
func TestASearchOfLongLinesEndsWithItsCall(t *testing.T) {
	b := newBench(t)
	b.put("long", strings.Repeat(strings.Repeat("a", grepMaxLine)+"\n", 30))
	p := &patient{Context: t.Context()}
	p.looks.Store(12) // far fewer than there are lines
	b.tc.Signal = p
	b.fails(Grep(), m{"pattern": "[bc]$", "path": "long"}, CodeCancelled)
}

// TestWhatAnExpressionCostsBoundsHowMuchOfALineIsSearched: no match can be interrupted.
func TestWhatAnExpressionCostsBoundsHowMuchOfALineIsSearched(t *testing.T) {
	for pattern, least := range map[string]int{"needle": grepMaxLine, `^\s*func (\w+)\(`: grepMaxLine, "(a{0,30}){0,30}b": 1 << 10, "(": grepMaxLine} {
		n := longestLine(pattern)
		if n < least || n > grepMaxLine || least < grepMaxLine && n > 32<<10 {
			t.Errorf("%s: %d bytes", pattern, n)
		}
	}
	b := newBench(t)
	b.put("long", strings.Repeat("a", 64<<10)+"needle\nneedle\n")
	r := b.ok(Grep(), m{"pattern": "needle|(q{0,30}){0,30}z", "path": "long"})
	if !strings.HasPrefix(r.Content, "long:2: needle\n[1 long line was searched in the first ") {
		t.Errorf("%q", r.Content)
	}
	if r := b.ok(Grep(), m{"pattern": "needle", "path": "long"}); r.Meta["matches"] != 2 || strings.Contains(r.Content, "[1 long") {
		t.Errorf("%.200q %v", r.Content, r.Meta)
	}
}

// TestAFileOfEmptyLinesTakesNoMoreThanAnyOther: searching it must not take many times its size.
func TestAFileOfEmptyLinesTakesNoMoreThanAnyOther(t *testing.T) {
	b := newBench(t)
	const size = 8 << 20
	b.put("lines", strings.Repeat("\n", size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := b.ok(Grep(), m{"pattern": "[xz]$", "path": "lines"})
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 6*size || r.Content != "(no matches)\n" {
		t.Errorf("it took %d MiB: %.100q", took>>20, r.Content)
	}
	r = b.ok(Grep(), m{"pattern": "^$", "path": "lines", "context": 1, "max_results": 2})
	if want := "lines:1: \nlines:2: \n"; !strings.HasPrefix(r.Content, want) {
		t.Errorf("%.100q", r.Content)
	}
}
