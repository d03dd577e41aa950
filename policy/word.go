package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// literal reads a word as the shell would pass it on, when that needs no expansion. A glob, a
// brace, a leading tilde or anything with a dollar or backquote is unknown.
func literal(w *syntax.Word) word {
	var b strings.Builder
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			s, ok := unquoted(p.Value, i == 0)
			if !ok {
				return word{}
			}
			b.WriteString(s)
		case *syntax.SglQuoted:
			if p.Dollar {
				return word{}
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			s, ok := doubleQuoted(p)
			if !ok {
				return word{}
			}
			b.WriteString(s)
		default:
			return word{}
		}
	}
	return word{b.String(), true}
}

// unquoted removes backslashes; false when the shell would expand something.
func unquoted(s string, first bool) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			i++
			if i < len(s) && s[i] != '\n' {
				b.WriteByte(s[i])
			}
		case '*', '?', '[', ']', '{', '}', '$', '`':
			return "", false
		case '~':
			if i == 0 && first || i > 0 && (s[i-1] == '=' || s[i-1] == ':') {
				return "", false
			}
			b.WriteByte(c)
		case '=':
			if i == 0 && first { // zsh looks up the path of the command behind it
				return "", false
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

func doubleQuoted(q *syntax.DblQuoted) (string, bool) {
	var b strings.Builder
	if q.Dollar {
		return "", false
	}
	for _, part := range q.Parts {
		l, ok := part.(*syntax.Lit)
		if !ok {
			return "", false
		}
		s := l.Value
		for i := 0; i < len(s); i++ {
			switch {
			case s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0:
				i++
				if s[i] != '\n' {
					b.WriteByte(s[i])
				}
			case s[i] == '`', s[i] == '$' && i+1 < len(s):
				return "", false
			default:
				b.WriteByte(s[i])
			}
		}
	}
	return b.String(), true
}
