package config

import (
	"fmt"
	"strings"
)

// Source is the layer a value came from. A greater one wins.
type Source uint8

// The layers, weakest first.
const (
	FromDefault Source = iota
	FromSystem         // /etc/troupe/config.yaml
	FromUser           // the user's file, or the one named by --config
	FromProject        // .troupe/config.yaml of the folder at work
	FromOpenAI         // OPENAI_API_KEY, OPENAI_BASE_URL
	FromEnvironment
	FromFlag
)

func (s Source) String() string {
	names := [...]string{"default", "system file", "user file", "project file", "environment", "environment", "flag"}
	return names[s]
}

// Origin says where a value was written.
type Origin struct {
	Source    Source
	File      string // of the file layers
	Line, Col int    // in File, from 1; Col counts characters
	Name      string // of the variable or flag
}

// String is the origin as one would look for it: file:line:col, the variable, the flag or "default".
func (o Origin) String() string {
	switch {
	case o.File != "" && o.Line > 0:
		return fmt.Sprintf("%s:%d:%d", printable(o.File), o.Line, o.Col)
	case o.File != "":
		return printable(o.File)
	case o.Name != "" && o.Source == FromFlag:
		return "flag " + o.Name
	case o.Name != "":
		return "environment " + o.Name
	}
	return o.Source.String()
}

// Problem is something wrong with the configuration, told so that it can be put right.
type Problem struct {
	What    string // what is wrong, with the value
	Path    string // the setting, dotted; "" for a file as a whole
	Origin  Origin
	Excerpt string // the line with a caret below it; only of files
	Fix     string // what to do; may be empty
}

// Error is the problem on several lines: where and what, the excerpt, what to do.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", p.Origin, p.What)
	if p.Excerpt != "" {
		b.WriteString("\n" + p.Excerpt)
	}
	if p.Fix != "" {
		b.WriteString("\n  " + p.Fix)
	}
	return b.String()
}

// Problems are all problems found at once, in the order of the layers. As an error it is never empty.
type Problems []*Problem

// Error is every problem, one after the other.
func (ps Problems) Error() string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.Error()
	}
	return strings.Join(out, "\n")
}

// Unwrap lets errors.As find a single *Problem.
func (ps Problems) Unwrap() []error {
	out := make([]error, len(ps))
	for i, p := range ps {
		out[i] = p
	}
	return out
}

// err is ps as an error, nil if there is none.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// excerpt shows a line of a file with a caret below a column. Files may be hostile: what a
// terminal would obey is made visible, long lines are cut, and what looks like a key is hidden.
func excerpt(src []byte, line, col int) string {
	lines := strings.Split(string(src), "\n")
	if line < 1 || line > len(lines) || col < 1 {
		return ""
	}
	raw := []rune(strings.TrimSuffix(lines[line-1], "\r"))
	col = min(col, len(raw)+1)
	const width = 100
	start := 0
	if col > width {
		start = col - width/2
	}
	shown := raw[start:min(len(raw), start+width)]
	prefix := fmt.Sprintf("  %d | ", line)
	caret := strings.Repeat(" ", len(prefix)-2) + "| " + strings.Repeat(" ", col-1-start) + "^"
	return prefix + hideKey(printable(string(shown))) + "\n" + caret
}

// hideKey hides the value of a line such as "api_key: sk-...": the usual mistake is to write the
// key itself, and errors end in logs.
func hideKey(line string) string {
	key, value, ok := strings.Cut(line, ":")
	k := strings.ToLower(strings.Trim(strings.TrimSpace(key), `"'`))
	if !ok || strings.TrimSpace(value) == "" {
		return line
	}
	for _, harmless := range []string{"_env", "_file", "_command"} {
		if strings.HasSuffix(k, harmless) {
			return line
		}
	}
	for _, word := range []string{"key", "token", "secret", "password", "authorization"} {
		if strings.HasSuffix(k, word) {
			return key + ": " + redacted
		}
	}
	return line
}

// printable replaces what a terminal could obey or what reorders text, one rune by one.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unsafeRune(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// unsafeRune tells control characters, also of the second block, and those that reorder text or
// have no width.
func unsafeRune(r rune) bool {
	return r < 0x20 || 0x7f <= r && r < 0xa0 || 0x200b <= r && r <= 0x200f || 0x2028 <= r && r <= 0x202e ||
		0x2060 <= r && r <= 0x2069 || r == 0xfeff
}
