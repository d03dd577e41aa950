package tools

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/workspace"
)

func TestReadFileNumbersLinesAndRemembersTheHash(t *testing.T) {
	b := newBench(t)
	for content, want := range map[string]string{
		"a\nb\n":           "     1\ta\n     2\tb\n",
		"a\r\nb":           "     1\ta\n     2\tb\n",
		"\n\n":             "     1\t\n     2\t\n",
		"":                 "(the file is empty)\n",
		"\ufeffpackage x":  "     1\tpackage x\n",
		"umlaut \u00e4\n":  "     1\tumlaut \u00e4\n",
		"tab\tand \x1b[0m": "     1\ttab\tand \x1b[0m\n",
	} {
		b.put("f", content)
		r := b.ok(ReadFile(), m{"path": "f"})
		if r.Content != want || r.Truncated || r.Files[0].Sha256 != workspace.Sum([]byte(content)) {
			t.Errorf("%q: got %q (truncated %v), want %q", content, r.Content, r.Truncated, want)
		}
	}
}

func TestReadFileShowsAPartAndSaysWhereToReadOn(t *testing.T) {
	b := newBench(t)
	b.put("f", strings.Repeat("line\n", 5000))
	r := b.ok(ReadFile(), m{"path": "f"})
	if !r.Truncated || !strings.HasSuffix(r.Content, "  2000\tline\n... [3000 lines truncated] ...\n(read on with start_line=2001)\n") {
		t.Errorf("tail %q", r.Content[len(r.Content)-120:])
	}
	r = b.ok(ReadFile(), m{"path": "f", "start_line": 10, "end_line": 12})
	if r.Content != "    10\tline\n    11\tline\n    12\tline\n" || r.Truncated {
		t.Errorf("got %q", r.Content)
	}
	r = b.ok(ReadFile(), m{"path": "f", "start_line": 4999, "limit": 1})
	if r.Content != "  4999\tline\n... [1 lines truncated] ...\n(read on with start_line=5000)\n" {
		t.Errorf("got %q", r.Content)
	}
	b.fails(ReadFile(), m{"path": "f", "start_line": 5001}, CodeInvalidArguments, "beyond the end of f (5000 lines)")
	b.fails(ReadFile(), m{"path": "f", "start_line": 5, "end_line": 4}, CodeInvalidArguments)
	b.fails(ReadFile(), m{"path": "f", "start_line": 0}, CodeInvalidArguments)
}

func TestReadFileKeepsItsBounds(t *testing.T) {
	b := newBench(t)
	b.put("wide", strings.Repeat("\u00e4", 100_000)+"\nend\n")
	r := b.ok(ReadFile(), m{"path": "wide"})
	if !r.Truncated || !strings.Contains(r.Content, "... [98000 characters truncated]\n     2\tend\n") {
		t.Errorf("a long line is not cut at 2000 characters: %q", r.Content[len(r.Content)-100:])
	}
	b.put("100k", strings.Repeat(strings.Repeat("x", 99)+"\n", 1000))
	r = b.ok(ReadFile(), m{"path": "100k"})
	if len(r.Content) > maxResultBytes || len(r.Content) < maxResultBytes*9/10 || !r.Truncated {
		t.Errorf("%d bytes (truncated %v), want nearly 50 KiB", len(r.Content), r.Truncated)
	}
	ten := strings.Repeat("0123456\n", 10<<20/8)
	b.put("10M", ten)
	if r := b.ok(ReadFile(), m{"path": "10M", "start_line": 1_310_720}); r.Content != "1310720\t0123456\n" {
		t.Errorf("last line of 10 MiB: %q", r.Content)
	}
	b.put("10M+1", ten+"x")
	b.fails(ReadFile(), m{"path": "10M+1"}, CodeFileTooLarge, "File too large: 10M+1")
}

func TestReadFileRefusesWhatIsNoText(t *testing.T) {
	b := newBench(t)
	b.put("bin", "\x7fELF\x00")
	b.put("late", strings.Repeat("a", 100_000)+"\x00")
	b.put("latin1", "caf\xe9\n")
	b.put("dir/x", "")
	b.fails(ReadFile(), m{"path": "bin"}, CodeNotText, "Cannot read binary file: bin")
	b.fails(ReadFile(), m{"path": "late"}, CodeNotText)
	b.fails(ReadFile(), m{"path": "latin1"}, CodeEncodingError, "not valid UTF-8 (byte 3)")
	b.fails(ReadFile(), m{"path": "dir"}, CodeInvalidPath, "Invalid path: dir: it is a directory")
}
