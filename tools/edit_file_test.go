package tools

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/workspace"
)

func TestEditsAreExactUniqueAndAllOrNothing(t *testing.T) {
	b := newBench(t)
	b.put("f", "aaa\nbbb\nccc\nbbb\n")
	one := func(old, new string) m {
		return m{"path": "f", "edits": []m{{"old_string": old, "new_string": new}}}
	}
	b.fails(EditFile(), one("aaa", "x"), CodeNotRead, "you must read the file before editing it")
	b.ok(ReadFile(), m{"path": "f"})
	b.fails(EditFile(), one("bbb", "x"), CodeEditNotUnique, "old_string appears 2 times in f", "provide more context or set replace_all")
	b.fails(EditFile(), one("aa", "x"), CodeEditNotUnique, "appears 2 times")
	b.fails(EditFile(), one("  ccc", "x"), CodeEditNoMatch, "old_string not found in f", "at line 3")
	b.fails(EditFile(), one("AAA", "x"), CodeEditNoMatch)
	b.fails(EditFile(), one("aaa", "aaa"), CodeNoChange)
	b.fails(EditFile(), one("", "x"), CodeInvalidArguments, "write_file")
	b.fails(EditFile(), m{"path": "f", "edits": []m{}}, CodeInvalidArguments)
	b.fails(EditFile(), m{"path": "f", "edits": []m{{"old_string": "aaa", "new_string": "x"}, {"old_string": "zzz", "new_string": "y"}}},
		CodeEditNoMatch, "edit 2 of 2; none was applied")
	b.fails(EditFile(), m{"path": "f", "edits": []m{{"old_string": "aaa", "new_string": "x"}, {"old_string": "x", "new_string": "aaa"}}}, CodeNoChange)
	if b.get("f") != "aaa\nbbb\nccc\nbbb\n" {
		t.Fatalf("a refused edit wrote: %q", b.get("f"))
	}
	r := b.ok(EditFile(), m{"path": "f", "edits": []m{
		{"old_string": "aaa", "new_string": "one"}, {"old_string": "one\nbbb", "new_string": "two"}, {"old_string": "b", "new_string": "B", "replace_all": true},
	}})
	if b.get("f") != "two\nccc\nBBB\n" || r.Content != "Applied 3 edits to f" || r.Files[0].Sha256 != workspace.Sum([]byte("two\nccc\nBBB\n")) {
		t.Errorf("got %q, %+v", b.get("f"), r)
	}
	b.ok(EditFile(), one("ccc\n", "")) // the hash of the first edit lets the second pass
	b.put("f", "outside")
	b.fails(EditFile(), one("two", "x"), CodeConcurrentModification, "File f has been modified since it was last read")
}

func TestEditsKeepLineEnds(t *testing.T) {
	for _, c := range []struct{ name, before, old, new, after string }{
		{"old with unix ends in a windows file", "a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"},
		{"one line of a windows file", "a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n"},
		{"windows ends given", "a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n"},
		{"windows ends given for a unix file", "a\nb\n", "a\r\nb", "x", "x\n"},
		{"beginning with a line end", "a\r\nb\r\n", "\nb", "\nc", "a\r\nc\r\n"},
		{"nothing but a line end", "a\r\nb", "\n", " ", "a b"},
		{"no last line end", "a\r\nb", "b", "c", "a\r\nc"},
		{"mixed, mostly unix", "a\r\nb\nc\nd\n", "a\nb", "x\ny", "x\ny\nc\nd\n"},
		{"byte order mark", "\ufeffa\n", "a", "b", "\ufeffb\n"},
		{"a lone carriage return", "a\rb\n", "a\rb", "c", "c\n"},
	} {
		b := newBench(t)
		b.put("f", c.before)
		b.ok(ReadFile(), m{"path": "f"})
		b.ok(EditFile(), m{"path": "f", "edits": []m{{"old_string": c.old, "new_string": c.new}}})
		if got := b.get("f"); got != c.after {
			t.Errorf("%s: got %q, want %q", c.name, got, c.after)
		}
	}
}

func TestADryRunShowsAndWritesNothing(t *testing.T) {
	b := newBench(t)
	b.put("f", "a\n")
	b.ok(ReadFile(), m{"path": "f"})
	r := b.ok(EditFile(), m{"path": "f", "dry_run": true, "edits": []m{{"old_string": "a", "new_string": "b"}}})
	if b.get("f") != "a\n" || !strings.Contains(r.Content, "-a\n+b\n") || r.Diff == "" {
		t.Errorf("file %q, content %q", b.get("f"), r.Content)
	}
}

func TestEditsOfHostileSizesStayBounded(t *testing.T) {
	b := newBench(t)
	b.put("f", strings.Repeat("a", 8<<20))
	b.ok(ReadFile(), m{"path": "f"})
	b.fails(EditFile(), m{"path": "f", "edits": []m{{"old_string": strings.Repeat("a", 4<<20), "new_string": "b"}}}, CodeEditNotUnique)
	b.fails(EditFile(), m{"path": "f", "edits": []m{{"old_string": "a", "new_string": "b", "replace_all": true}}}, CodeEditNotUnique)
	b.fails(EditFile(), m{"path": "f", "edits": []m{{"old_string": strings.Repeat("a", 1<<20), "new_string": strings.Repeat("b", 2<<20), "replace_all": true}}},
		CodeFileTooLarge)
}

func TestReplacingAllOfMixedLineEndsReplacesAll(t *testing.T) {
	for _, n := range []int{1, 3000} {
		text := strings.Repeat("\n\r\n", n)
		after, err := applyEdits("f", text, []edit{{Old: "\n", New: "x", ReplaceAll: true}})
		if err != nil || after != strings.Repeat("xx", n) {
			t.Errorf("got %.40q, %v", after, err)
		}
	}
}

func FuzzEditsChangeWhatTheySayAndNothingElse(f *testing.F) {
	f.Add("a\r\nb\r\n", "a\nb", "x\ny", false)
	f.Add("aaaa", "aa", "b", true)
	f.Add("x", "y", "z", false)
	f.Add("\r\n\r\n\r", "\n", "\r", true)
	f.Fuzz(func(t *testing.T, text, old, new string, all bool) {
		if !utf8.ValidString(text) || !utf8.ValidString(old) || !utf8.ValidString(new) {
			return // arguments and files are UTF-8 when they come here
		}
		after, err := applyEdits("f", text, []edit{{Old: old, New: new, ReplaceAll: all}})
		if err != nil {
			return
		}
		if after == text {
			t.Fatal("an edit that changed nothing is no success")
		}
		if !all && strings.Count(text, old) == 1 && !strings.Contains(text, "\r\n") && after != strings.Replace(text, old, new, 1) {
			t.Fatalf("%q with %q for %q became %q", text, new, old, after)
		}
		if all && strings.Contains(text, old) && !strings.Contains(text, "\r\n") && after != strings.ReplaceAll(text, old, new) {
			t.Fatalf("%q with all %q for %q became %q", text, new, old, after)
		}
		want := strings.ReplaceAll(unixLines(text), unixLines(old), unixLines(new))
		if !all && strings.Count(unixLines(text), unixLines(old)) == 1 && !strings.ContainsAny(strings.ReplaceAll(text+old+new, "\r\n", ""), "\r") && unixLines(after) != want {
			t.Fatalf("%q with %q for %q became %q, want %q but for line ends", text, new, old, after, want)
		}
	})
}

func TestDiffsCanBeAppliedAgain(t *testing.T) {
	numbered := func(n int, change map[int]string) string {
		var b strings.Builder
		for i := range n {
			if text, ok := change[i]; ok {
				b.WriteString(text)
				continue
			}
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return b.String()
	}
	base := numbered(60, nil)
	for _, c := range []struct{ before, after string }{
		{"", "a\n"},
		{"a\n", ""},
		{"a", "a\n"},
		{"a\n", "b\n"},
		{"a\nb\nc\n", "c\nb\na\n"},
		{base, numbered(60, map[int]string{5: "", 8: "x\ny\n", 40: "z\n"})},
		{base, numbered(60, map[int]string{0: "", 59: "last"})},
		{base, strings.ToUpper(base)},
		{numbered(3000, nil), strings.ToUpper(numbered(3000, nil))},
	} {
		diff := unifiedDiff("f", c.before, c.after, false)
		if got := patch(t, c.before, diff); got != c.after {
			t.Errorf("the diff of %.40q and %.40q gives %.60q:\n%.400s", c.before, c.after, got, diff)
		}
	}
	if d := unifiedDiff("f", "same", "same", false); d != "" {
		t.Errorf("a diff of equal texts: %q", d)
	}
	big := unifiedDiff("f", "", strings.Repeat("some line\n", 100_000), true)
	if len(big) > diffMaxBytes+100 || !strings.HasSuffix(big, "... [diff truncated] ...\n") {
		t.Errorf("%d bytes of diff", len(big))
	}
}

// patch applies a unified diff: a reader of its own, so that it can disagree with the writer.
func patch(t *testing.T, before, diff string) string {
	t.Helper()
	old, at := splitKeep(before), 0
	var out strings.Builder
	lines := splitKeep(diff)[2:]
	for i, line := range lines {
		text := line[1:]
		if i+1 < len(lines) && lines[i+1][0] == '\\' {
			text = strings.TrimSuffix(text, "\n")
		}
		switch line[0] {
		case '@':
			from, n := 0, 1
			if _, err := fmt.Sscanf(line, "@@ -%d,%d ", &from, &n); err != nil {
				_, err = fmt.Sscanf(line, "@@ -%d ", &from)
				noError(t, err)
			}
			if n > 0 {
				from--
			}
			out.WriteString(strings.Join(old[at:from], ""))
			at = from
		case ' ', '-':
			if at >= len(old) || old[at] != text {
				t.Fatalf("the diff keeps or removes %q, which is not there", text)
			}
			if line[0] == ' ' {
				out.WriteString(text)
			}
			at++
		case '+':
			out.WriteString(text)
		}
	}
	return out.String() + strings.Join(old[at:], "")
}
