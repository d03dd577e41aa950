package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/yamldoc"
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
	return yamldoc.Told(fmt.Sprintf("%s: %s", p.Origin, p.What), p.Excerpt, p.Fix)
}

// Problems are all problems found at once, in the order of the layers. As an error it is never empty.
type Problems []*Problem

// Error is every problem, one after the other.
func (ps Problems) Error() string { return yamldoc.Together(ps) }

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

// excerpt shows a line of a file with a caret below a column, without what looks like a key.
func excerpt(lines []string, line, col int) string { return yamldoc.Excerpt(lines, line, col, hideKey) }

// hideKey masks what follows a key such as "api_key:" in a line, keeping its length. The usual
// mistakes are to write the key itself there, or in the place of the name of its variable or
// file; and errors end in logs.
func hideKey(line []rune) []rune {
	for i, r := range line {
		if r != ':' || !secretKey(string(line[:i])) && !misplaced(string(line[:i]), string(line[i+1:])) {
			continue
		}
		out := slices.Clone(line)
		for j := i + 1; j < len(out); j++ {
			if out[j] != ' ' {
				out[j] = '*'
			}
		}
		return out
	}
	return line
}

// secretKey tells whether what stands before a colon ends with a word for secrets.
func secretKey(before string) bool {
	before = strings.ToLower(strings.TrimRight(before, ` "'`))
	for _, word := range []string{"key", "token", "secret", "password", "authorization"} {
		if strings.HasSuffix(before, word) {
			return true
		}
	}
	return false
}

// misplaced tells whether a key stands where the name of its variable or file belongs.
func misplaced(before, after string) bool {
	before = strings.TrimRight(before, ` "'`)
	after, _, _ = strings.Cut(after, ",")
	after = strings.Trim(after, ` "'}`)
	switch {
	case strings.HasSuffix(before, "_env"):
		return !isVariable(after)
	case strings.HasSuffix(before, "_file"):
		return !strings.HasPrefix(after, "/") && !strings.HasPrefix(after, "~")
	}
	return false
}

func printable(s string) string { return yamldoc.Printable(s) }

func unsafeRune(r rune) bool { return yamldoc.Unsafe(r) }
