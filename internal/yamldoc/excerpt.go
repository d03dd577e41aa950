package yamldoc

import (
	"fmt"
	"strings"
)

// Excerpt shows a line of a file with a caret below a column. Files may be hostile: what a
// terminal would obey is made visible, long lines are cut, and hide takes out what may not be shown (nil: nothing).
func Excerpt(lines []string, line, col int, hide func([]rune) []rune) string {
	if line < 1 || line > len(lines) || col < 1 {
		return ""
	}
	return ExcerptOf(lines[line-1], line, col, hide)
}

// ExcerptOf is Excerpt of a line of which the text is at hand.
func ExcerptOf(text string, line, col int, hide func([]rune) []rune) string {
	raw := []rune(strings.TrimSuffix(text, "\r"))
	col = min(col, len(raw)+1)
	const width, lookBack = 100, 200 // of what is shown; before it, for a key whose value is shown
	start := 0
	if col > width {
		start = col - width/2
	}
	from := max(0, start-lookBack)
	shown := raw[from:min(len(raw), start+width)]
	if hide != nil {
		shown = hide(shown)
	}
	shown = shown[start-from:]
	prefix := fmt.Sprintf("  %d | ", line)
	caret := strings.Repeat(" ", len(prefix)-2) + "| " + strings.Repeat(" ", col-1-start) + "^"
	return prefix + Printable(string(shown)) + "\n" + caret
}

// Printable replaces what a terminal could obey or what reorders text, one rune by one.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case Unsafe(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// Unsafe tells control characters, also of the second block, and those that reorder text or
// have no width.
func Unsafe(r rune) bool {
	return r < 0x20 || 0x7f <= r && r < 0xa0 || 0x200b <= r && r <= 0x200f || 0x2028 <= r && r <= 0x202e ||
		0x2060 <= r && r <= 0x2069 || r == 0xfeff
}
