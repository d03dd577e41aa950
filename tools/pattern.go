package tools

import (
	"path"
	"strings"
)

// Bounds of a glob pattern.
const (
	maxPattern      = 1024 // bytes
	maxAlternatives = 64   // that braces may expand to
)

// pattern is a compiled glob: `*` and `?` within a component, `[a-z]`, `{a,b}`, and `**` for any
// number of components. A component that begins with a dot is matched only by one that does in
// the pattern, so that hidden files come up when they are asked for.
type pattern struct {
	alternatives [][]string
	hidden       bool // wildcards match hidden names too
}

// compilePattern reads a glob. Its errors have code invalid_arguments, or invalid_path when the
// pattern leads out of the directory that it is matched in.
func compilePattern(text string, hidden bool) (*pattern, error) {
	if text == "" || len(text) > maxPattern {
		return nil, refuse("the pattern must have 1 to %d bytes", maxPattern)
	}
	expanded, err := braces(text)
	if err != nil {
		return nil, err
	}
	p := &pattern{hidden: hidden}
	for _, one := range expanded {
		parts := strings.Split(strings.TrimPrefix(one, "./"), "/")
		for _, part := range parts {
			if part == ".." || part == "" {
				return nil, Errorf(CodeInvalidPath, "Invalid path: pattern %q must be relative, without empty components and \"..\"; name the start with path", cleanText(text))
			}
			if _, err := path.Match(part, ""); err != nil {
				return nil, refuse("the pattern %q does not compile: a bracket is not closed or empty, or it ends in a backslash", cleanText(text))
			}
		}
		p.alternatives = append(p.alternatives, parts)
	}
	return p, nil
}

// braces expands `{a,b}`, nested ones too.
func braces(text string) ([]string, error) {
	open := strings.IndexByte(text, '{')
	if open < 0 {
		return []string{text}, nil
	}
	depth, start := 0, open+1
	var options []string
	for i := open; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case ',':
			if depth == 1 {
				options = append(options, text[start:i])
				start = i + 1
			}
		case '}':
			if depth--; depth == 0 {
				return combine(text[:open], append(options, text[start:i]), text[i+1:])
			}
		}
	}
	return nil, refuse("the pattern %q does not compile: a brace is not closed", cleanText(text))
}

func combine(head string, options []string, tail string) ([]string, error) {
	var all []string
	for _, option := range options {
		expanded, err := braces(head + option + tail)
		if err != nil {
			return nil, err
		}
		if all = append(all, expanded...); len(all) > maxAlternatives {
			return nil, refuse("the pattern has more than %d alternatives", maxAlternatives)
		}
	}
	return all, nil
}

// match tells whether the pattern matches a whole path with slashes.
func (p *pattern) match(name string) bool {
	whole, _ := p.against(name)
	return whole
}

// against tells whether the pattern matches a whole path, and whether it could match below it.
func (p *pattern) against(name string) (whole, below bool) {
	parts := strings.Split(name, "/")
	for _, alt := range p.alternatives {
		w, b := p.run(alt, parts)
		whole, below = whole || w, below || b
	}
	return whole, below
}

// run walks all positions in the pattern at once, as an automaton does: its time is the product
// of the lengths, whatever the pattern.
func (p *pattern) run(alt, parts []string) (whole, below bool) {
	at := make([]bool, len(alt)+1)
	at[0] = true
	for _, part := range parts {
		next := make([]bool, len(alt)+1)
		for i, here := range at {
			if !here {
				continue
			}
			for i < len(alt) && alt[i] == "**" { // also as no component at all
				if p.wild(part, "**") {
					next[i] = true
				}
				i++
			}
			if i < len(alt) && p.component(alt[i], part) {
				next[i+1] = true
			}
		}
		at = next
	}
	for i, here := range at {
		if !here {
			continue
		}
		below = below || i < len(alt)
		for i < len(alt) && alt[i] == "**" {
			i++
		}
		whole = whole || i == len(alt)
	}
	return whole, below
}

func (p *pattern) component(want, part string) bool {
	ok, err := path.Match(want, part)
	return err == nil && ok && p.wild(part, want)
}

// wild holds the rule of hidden names.
func (p *pattern) wild(part, want string) bool {
	return p.hidden || !strings.HasPrefix(part, ".") || strings.HasPrefix(want, ".")
}
