package pipeline

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text is a text with expressions in ${{ }}. One that is nothing but an expression keeps the type of its value.
type Text struct {
	Raw   string
	parts []part
	at    place
}

// part is a piece of a text: one of the two is set.
type part struct {
	lit  string
	expr *Expr
}

// text splits raw into its parts. find tells where the n-th ${{ of it stands in the file.
func (s *source) text(raw string, at place) *Text {
	t := &Text{Raw: raw, at: at}
	rest, from := raw, at
	for {
		before, after, found := strings.Cut(rest, "${{")
		if before != "" {
			t.parts = append(t.parts, part{lit: before})
		}
		if !found {
			return t
		}
		from = s.find("${{", from)
		inner := place{from.line, from.col + 3}
		body, tail, closed := cutExpr(after)
		if !closed {
			s.fail(from, "${{ is not closed", "end the expression with }}; in a flow mapping or list put the text into quotes")
			return t
		}
		lead := len(body) - len(strings.TrimLeft(body, " "))
		e := s.expr(&Expr{Src: body, at: inner, lead: lead})
		if e == nil {
			return t
		}
		t.parts = append(t.parts, part{expr: e})
		rest, from = tail, inner
	}
}

// cutExpr finds the }} that ends an expression: not one within a string, nor one that closes two maps of its own.
func cutExpr(s string) (body, tail string, ok bool) {
	depth := 0
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case c == '}' && i+1 < len(s) && s[i+1] == '}':
			return s[:i], s[i+2:], true
		}
	}
	return "", "", false
}

// find looks for a word in the file, from a place on.
func (s *source) find(word string, from place) place {
	for n := max(from.line, 1); n <= len(s.lines); n++ {
		start := reached{line: n, col: 1}
		if n == from.line {
			start = s.reach(from)
		}
		rest := s.lines[n-1][start.off:]
		if i := strings.Index(rest, word); i >= 0 {
			s.last = reached{n, start.col + utf8.RuneCountInString(rest[:i]), start.off + i}
			return place{n, s.last.col}
		}
	}
	return from
}

// reached is a place of the file, as people count it, with where it is in the bytes of its line.
type reached struct{ line, col, off int }

// reach goes to a place from the one that was found last, if that is before it: a line may have many expressions.
func (s *source) reach(to place) reached {
	r := reached{line: to.line, col: 1}
	if s.last.line == to.line && s.last.col <= to.col {
		r = s.last
	}
	line := s.lines[to.line-1]
	for r.col < to.col && r.off < len(line) {
		_, n := utf8.DecodeRuneInString(line[r.off:])
		r.col, r.off = r.col+1, r.off+n
	}
	return r
}

// Plain is the text as it was written.
func (t *Text) Plain() string {
	if t == nil {
		return ""
	}
	return t.Raw
}

// exprs calls fn for each expression.
func (t *Text) exprs(fn func(*Expr)) {
	if t == nil {
		return
	}
	for _, p := range t.parts {
		if p.expr != nil {
			fn(p.expr)
		}
	}
}

// whole is the expression that a text consists of, nil if it is more, or less.
func (t *Text) whole() *Expr {
	if t != nil && len(t.parts) == 1 {
		return t.parts[0].expr
	}
	return nil
}

// value evaluates a text: to the value of the only expression, or to a string.
func (t *Text) value(env map[string]any) (any, error) {
	if t == nil {
		return nil, nil
	}
	if e := t.whole(); e != nil {
		return e.eval(env)
	}
	return t.string(env)
}

// string evaluates a text. Values that are no texts stand in it as JSON, nothing as "".
func (t *Text) string(env map[string]any) (string, error) {
	if t == nil {
		return "", nil
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.expr == nil {
			b.WriteString(p.lit)
			continue
		}
		v, err := p.expr.eval(env)
		if err != nil {
			return "", err
		}
		b.WriteString(Show(v))
		if b.Len() > maxText {
			return "", fmt.Errorf("the text is longer than %d bytes", maxText)
		}
	}
	return b.String(), nil
}

// maxText bounds what is evaluated to one text: it stands in a record of the run.
const maxText = 1 << 20

// maxValue bounds a value that is no text, as JSON: a list of what 10,000 items have come to, for one.
const maxValue = 4 << 20

// maxDepth bounds how deep lists and objects of a value are nested: readers of JSON give up at a thousand or ten thousand, and
// what is indented grows with the square of it.
const maxDepth = 500

// Show writes a value as it stands in a text.
func Show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// Tree is a value with texts in its leaves.
type Tree struct {
	leaf  *Text // of strings
	value any   // of other scalars
	list  []*Tree
	keys  []string
	items map[string]*Tree
	at    map[string]place // of the keys
	kind  byte             // 't'ext, 'v'alue, 'l'ist, 'm'ap
}

func (t *Tree) exprs(fn func(*Expr)) {
	if t == nil {
		return
	}
	t.leaf.exprs(fn)
	for _, sub := range t.list {
		sub.exprs(fn)
	}
	for _, k := range t.keys {
		t.items[k].exprs(fn)
	}
}

func (t *Tree) eval(env map[string]any) (any, error) {
	if t == nil {
		return nil, nil
	}
	switch t.kind {
	case 't':
		return t.leaf.value(env)
	case 'l':
		out := make([]any, len(t.list))
		for i, sub := range t.list {
			v, err := sub.eval(env)
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	case 'm':
		out := make(map[string]any, len(t.keys))
		for _, k := range t.keys {
			v, err := t.items[k].eval(env)
			if err != nil {
				return nil, err
			}
			out[k] = v
		}
		return out, nil
	}
	return t.value, nil
}
