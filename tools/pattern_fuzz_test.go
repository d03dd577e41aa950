package tools

import (
	"errors"
	"strings"
	"testing"
)

// FuzzPatternsFindWhatTheyNameAndNothingHidden: whatever the pattern, it is refused or matches in bounded time, and comes up with a hidden name only
// where it has a dot itself.
func FuzzPatternsFindWhatTheyNameAndNothingHidden(f *testing.F) {
	for _, seed := range [][2]string{
		{"**/*.go", "a/b/c.go"},
		{"{a,b{c,d}}/*", "bd/x"},
		{"[!a-c]?", "xy"},
		{"*", ".env"},
		{"../*", "../x"},
		{"{{{{", "a"},
		{"a//b", "a/b"},
		{"**/**/**/x", "a/b/c/.x"},
		{strings.Repeat("{a,b}", 7), "aaaaaaa"},
		{"\\", "\\"},
		{"[", "["},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		p, err := compilePattern(text, false)
		if err != nil {
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != CodeInvalidArguments && refused.Code != CodeInvalidPath {
				t.Fatalf("%q: %v is no refusal of a pattern", text, err)
			}
			return
		}
		if len(name) > 4096 {
			return
		}
		whole, _ := p.against(name)
		hidden := false
		for part := range strings.SplitSeq(name, "/") {
			hidden = hidden || strings.HasPrefix(part, ".")
		}
		if whole && hidden && !strings.Contains(text, ".") {
			t.Fatalf("%q finds the hidden %q", text, name)
		}
		plain := !strings.ContainsAny(text, `*?[]{}\`) && !strings.HasPrefix(text, "./")
		if plain && !p.match(text) {
			t.Fatalf("%q does not find itself", text)
		}
	})
}
