package pipeline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/troupe-dev/troupe/internal/yamldoc"
	"github.com/troupe-dev/troupe/messages"
)

// MaxFile is the most bytes that a pipeline's file has.
const MaxFile = 512 << 10

// Words that more than one place knows.
const (
	// Continue lets what failed be, as a value of on_error.
	Continue = "continue"
	failWord = "fail"
)

// keyed tells what to do with each key of a mapping.
type keyed map[string]func(ast.Node)

// mapping walks the keys of a mapping, of which it must be one, and refuses those that nobody knows.
func (s *source) mapping(node ast.Node, what string, keys keyed) {
	values, ok := yamldoc.MapValues(node)
	if !ok {
		s.mismatch(node, what, "a mapping", "write its keys below it, indented")
		return
	}
	for _, v := range values {
		key, ok := yamldoc.KeyText(v.Key)
		if !ok {
			s.failAt(v.Key, "this key is no plain text", "")
			continue
		}
		take := keys[key]
		if take == nil {
			s.failAt(v.Key, fmt.Sprintf("unknown key %q in %s", yamldoc.Printable(key), what), yamldoc.DidYouMean(key, keysOf(keys)))
			continue
		}
		if s.plain(v.Value) {
			take(v.Value)
		}
	}
}

func keysOf(keys keyed) (out []string) {
	for k := range keys {
		out = append(out, k)
	}
	return out
}

// named walks a mapping whose keys are the user's, in order.
func (s *source) named(node ast.Node, what string, take func(name string, key, value ast.Node)) {
	values, ok := yamldoc.MapValues(node)
	if !ok {
		s.mismatch(node, what, "a mapping", "write its keys below it, indented")
		return
	}
	for _, v := range values {
		name, ok := yamldoc.KeyText(v.Key)
		if !ok || !isName(name) {
			s.failAt(v.Key, fmt.Sprintf("%q is no name", yamldoc.Printable(name)), "a name has up to 64 letters, digits and _ and begins with a letter")
			continue
		}
		if s.plain(v.Value) {
			take(name, v.Key, v.Value)
		}
	}
}

// isName says whether a word is one for steps, inputs, agents and outputs: what an expression can name after a dot.
func isName(word string) bool {
	for i := range len(word) {
		c := word[i]
		letter := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return word != "" && len(word) <= 64
}

// plain refuses what would mean something else than it says. An empty value says nothing.
func (s *source) plain(node ast.Node) bool {
	switch node.(type) {
	case *ast.NullNode, *ast.CommentGroupNode:
		return false
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		s.failAt(node, "anchors, aliases and tags are not supported here", "write the value itself")
		return false
	}
	return true
}

// list walks a list.
func (s *source) list(node ast.Node, what string, take func(ast.Node)) {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		s.mismatch(node, what, "a list", fmt.Sprintf("write one item per line, each beginning with -, or %s: [a, b]", what))
		return
	}
	for _, v := range seq.Values {
		if s.plain(v) {
			take(v)
		}
	}
}

// words reads a list of names.
func (s *source) words(node ast.Node, what string) (out []string) {
	s.list(node, what, func(v ast.Node) {
		if w := s.word(v, "an entry of "+what); w != "" {
			out = append(out, w)
		}
	})
	return out
}

// word reads a plain text without expressions.
func (s *source) word(node ast.Node, what string) string {
	t, ok := rawText(node)
	if !ok {
		s.mismatch(node, what, "text", "put it in quotes if it is meant as text")
	}
	if strings.Contains(t, "${{") {
		s.failAt(node, what+" holds no expressions", "")
		return ""
	}
	return t
}

// oneOf reads a word out of a set.
func (s *source) oneOf(node ast.Node, what string, set ...string) string {
	w := s.word(node, what)
	if w != "" && !slices.Contains(set, w) {
		fix := "one of " + strings.Join(set, ", ")
		if near := yamldoc.Near(w, set); len(near) > 0 {
			fix = fmt.Sprintf("did you mean %q? %s", near[0], fix)
		}
		s.failAt(node, fmt.Sprintf("%s: %q is not known here", what, yamldoc.Printable(w)), fix)
		return ""
	}
	return w
}

// rawText is a scalar that is text.
func rawText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// textOf reads a text with expressions.
func (s *source) textOf(node ast.Node, what string) *Text {
	t, ok := rawText(node)
	if !ok {
		switch node.(type) {
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			return s.text(strings.TrimSpace(node.GetToken().Value), at(node))
		}
		s.mismatch(node, what, "text", "put it in quotes if it is meant as text")
		return nil
	}
	return s.text(t, at(node))
}

// bare reads an expression that stands without ${{ }}.
func (s *source) bare(node ast.Node, what string) *Expr {
	from := at(node)
	var src string
	switch n := node.(type) {
	case *ast.StringNode:
		src = n.Value
		if raw := n.GetToken().Origin; strings.HasPrefix(strings.TrimSpace(raw), `"`) || strings.HasPrefix(strings.TrimSpace(raw), "'") {
			from.col++
		}
	case *ast.BoolNode, *ast.IntegerNode:
		src = strings.TrimSpace(node.GetToken().Value)
	case *ast.LiteralNode:
		src = n.Value.Value
		if strings.Contains(src, "${{") {
			break
		}
		return s.expr(&Expr{Src: src, at: from, block: s.block(from)})
	default:
		s.mismatch(node, what, "an expression", exampleOf(what))
		return nil
	}
	if strings.Contains(src, "${{") {
		s.failAt(node, what+" is an expression by itself", "leave ${{ and }} out")
		return nil
	}
	return s.expr(&Expr{Src: src, at: from})
}

// maxExpr is how long an expression is at most, in bytes. Its parser goes down a level of the stack for each bracket that is open, and a stack that is full
// ends the process.
const maxExpr = 64 << 10

// maxExprs is how many a file has at most: each of them is compiled.
const maxExprs = 5000

// expr takes an expression; nil: it is too long, or one too many.
func (s *source) expr(e *Expr) *Expr {
	s.exprs++
	switch {
	case len(e.Src) > maxExpr:
		s.fail(e.start(), fmt.Sprintf("the expression has %d bytes; one has at most %d", len(e.Src), maxExpr), "give large values by inputs, or by read(path)")
		return nil
	case s.exprs > maxExprs:
		s.fail(e.start(), fmt.Sprintf("this is one expression too many; a file has at most %d", maxExprs), "go over a list with foreach")
		return nil
	}
	return e
}

// blockLine is a line of a block of text: where it begins, and how many characters it has.
type blockLine struct {
	place
	long int
}

// block are the lines of a block of text, whose indicator stands at a place.
func (s *source) block(from place) (out []blockLine) {
	for n := from.line + 1; n <= len(s.lines); n++ {
		line := strings.TrimRight(s.lines[n-1], " \r")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if line != "" && (len(out) > 0 && indent < out[0].col-1 || indent == 0) { // the first line says how far in the block is
			break
		}
		if line == "" && len(out) > 0 {
			indent = out[0].col - 1
		}
		out = append(out, blockLine{place{n, indent + 1}, len([]rune(strings.TrimLeft(line, " ")))})
	}
	return out
}

// exampleOf is an expression for a key that holds one.
func exampleOf(what string) string {
	switch what {
	case "foreach":
		return `write for example foreach: inputs.files; a list that is written here stands in quotes: foreach: "['a', 'b']"`
	case "key":
		return "write for example key: item.id"
	case "until":
		return "write for example until: output.done"
	}
	return "write for example " + what + ": len(steps.a.items) > 0"
}

// count reads a whole number from least on.
func (s *source) count(node ast.Node, what string, least int) int {
	n, err := strconv.ParseInt(strings.ReplaceAll(strings.TrimSpace(node.GetToken().Value), "_", ""), 10, 32)
	if _, ok := node.(*ast.IntegerNode); !ok || err != nil {
		s.mismatch(node, what, "a whole number", "write for example 3")
		return least
	}
	if int(n) < least {
		s.failAt(node, fmt.Sprintf("%s: %d is too small", what, n), fmt.Sprintf("the least is %d", least))
		return least
	}
	return int(n)
}

// duration reads a time with its unit.
func (s *source) duration(node ast.Node, what string) time.Duration {
	t, ok := rawText(node)
	d, err := time.ParseDuration(t)
	if days, is := strings.CutSuffix(t, "d"); ok && is {
		if n, bad := strconv.ParseUint(days, 10, 16); bad == nil {
			d, err = time.Duration(n)*24*time.Hour, nil
		}
	}
	if !ok || err != nil || d <= 0 {
		s.failAt(node, fmt.Sprintf("%s: %q is no duration", what, yamldoc.Printable(strings.TrimSpace(node.GetToken().Value))), "write for example 500ms, 60s, 1h30m or 2d")
		return 0
	}
	return d
}

// dollars reads an amount of money as millionths.
func (s *source) dollars(node ast.Node, what string) int64 {
	f, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(node.GetToken().Value), "_", ""), 64)
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || f < 0 || f > 1e6 {
		s.mismatch(node, what, "an amount in US dollars", "write for example 1.50")
		return 0
	}
	return messages.MicroUSD(f)
}

// tree reads any value, with expressions in its texts.
func (s *source) tree(node ast.Node, what string) *Tree {
	switch n := node.(type) {
	case *ast.SequenceNode:
		t := &Tree{kind: 'l'}
		for _, v := range n.Values {
			t.list = append(t.list, s.tree(v, what))
		}
		return t
	case *ast.MappingNode, *ast.MappingValueNode:
		t := &Tree{kind: 'm', items: map[string]*Tree{}, at: map[string]place{}}
		values, _ := yamldoc.MapValues(n)
		for _, v := range values {
			key, ok := yamldoc.KeyText(v.Key)
			if !ok {
				s.failAt(v.Key, "this key is no plain text", "")
				continue
			}
			t.keys, t.items[key], t.at[key] = append(t.keys, key), s.tree(v.Value, what), at(v.Key)
		}
		return t
	case *ast.StringNode, *ast.LiteralNode:
		return &Tree{kind: 't', leaf: s.textOf(n, what)}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		v, err := decodeJSON(strings.ReplaceAll(strings.TrimSpace(n.GetToken().Value), "_", ""))
		if err != nil {
			s.failAt(n, fmt.Sprintf("%s: this number is not understood", what), "write it in decimal")
		}
		return &Tree{kind: 'v', value: v}
	case *ast.NullNode:
		return &Tree{kind: 'v'}
	}
	s.failAt(node, "anchors, aliases and tags are not supported here", "write the value itself")
	return &Tree{kind: 'v'}
}

// constant reads any value without expressions.
func (s *source) constant(node ast.Node, what string) any {
	t := s.tree(node, what)
	bad := false
	t.exprs(func(*Expr) { bad = true })
	if bad {
		s.failAt(node, what+" holds no expressions", "")
		return nil
	}
	v, err := t.eval(nil)
	if err != nil {
		s.failAt(node, what+": "+err.Error(), "")
	}
	return v
}

func (s *source) mismatch(node ast.Node, what, want, fix string) {
	s.failAt(node, fmt.Sprintf("%s is %s; this is %s", what, want, yamldoc.Describe(node)), fix)
}

func (s *source) failAt(node ast.Node, what, fix string) { s.fail(at(node), what, fix) }

func at(node ast.Node) place {
	line, col := yamldoc.Position(node.GetToken())
	if m, ok := node.(*ast.MappingValueNode); ok { // its token is the colon
		line, col = yamldoc.Position(m.Key.GetToken())
	}
	if m, ok := node.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		line, col = yamldoc.Position(m.Values[0].Key.GetToken())
	}
	return place{line, col}
}

// decodeAny reads a file as plain values. It was decoded before, so nothing in it is refused.
func decodeAny(text string) (any, error) {
	src := yamldoc.Trim([]byte(text))
	doc, fault := yamldoc.Parse(src, MaxFile, "a pipeline")
	if fault != nil || doc == nil {
		return nil, fmt.Errorf("the file cannot be read again")
	}
	s := newSource("", string(src))
	return raw(s.tree(doc, "")), nil
}

// raw is a tree as it was written.
func raw(t *Tree) any {
	switch {
	case t == nil:
		return nil
	case t.kind == 't' && t.leaf != nil:
		return t.leaf.Raw
	case t.kind == 'l':
		out := make([]any, len(t.list))
		for i, sub := range t.list {
			out[i] = raw(sub)
		}
		return out
	case t.kind == 'm':
		out := make(map[string]any, len(t.keys))
		for k, sub := range t.items {
			out[k] = raw(sub)
		}
		return out
	}
	return t.value
}
