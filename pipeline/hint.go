package pipeline

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

// inBlock places an offset into an expression that is a block of text. Folding a block makes one character of each end of a line.
func (e *Expr) inBlock(offset int) place {
	for i, line := range e.block {
		if offset <= line.long || i+1 == len(e.block) {
			return place{line.line, line.col + min(offset, line.long)}
		}
		offset -= line.long + 1
	}
	return e.at
}

// hint says what to do about an expression that is not right.
func (e *Expr) hint(what string, env types.Map) string {
	what = strings.TrimPrefix(what, "expression: ")
	if word, ok := strings.CutPrefix(what, "unknown name "); ok {
		if word = strings.TrimSpace(word); word == "now" || word == "repeat" {
			return word + "() is not there: an expression gives the same whenever it is evaluated, and what it makes is bounded"
		}
		if near := yamldoc.Near(word, append(keysIn(env), functions()...)); len(near) > 0 {
			return "did you mean " + yamldoc.QuoteAll(near, " or ") + "?"
		}
		return yamldoc.DidYouMean(word, keysIn(env))
	}
	if word, ok := strings.CutPrefix(what, "unknown field "); ok {
		if strings.HasPrefix(strings.TrimSpace(e.Src), "env.") {
			return "variables that expressions see stand in a list under env:"
		}
		return e.fields(strings.TrimSpace(word), env)
	}
	switch {
	case strings.Contains(what, "mismatched types"):
		return "turn one into the type of the other, with string(), int() or float()"
	case strings.HasPrefix(what, "expected bool"):
		return `compare it with something, for example x != "" or len(x) > 0`
	case strings.HasPrefix(what, "unexpected token"), strings.HasPrefix(what, "literal not terminated"):
		return "see https://expr-lang.org/docs/language-definition"
	}
	return ""
}

// functions are those that expressions may call.
func functions() (out []string) {
	for name := range (&made{}).functions() {
		if !strings.HasPrefix(name, "__") {
			out = append(out, name)
		}
	}
	for _, name := range builtin.Names {
		if name != "now" && name != "repeat" {
			out = append(out, name)
		}
	}
	return append(out, readName)
}

// maxLooked is of how many members of an expression that are called alike the type is found, which has each of them compiled.
const maxLooked = 8

// fields says what there is in the place of a field that there is not: of what it is taken from the type is found by itself.
func (e *Expr) fields(word string, env types.Map) string {
	tree, err := parser.Parse(e.Src)
	if err != nil {
		return ""
	}
	var known []string
	looked := 0
	ast.Walk(&tree.Node, visit(func(n ast.Node) {
		m, ok := n.(*ast.MemberNode)
		if !ok || known != nil || looked == maxLooked {
			return
		}
		if name, ok := m.Property.(*ast.StringNode); !ok || name.Value != word {
			return
		}
		looked++
		of := &Expr{Src: m.Node.String()}
		t, fault := of.compile(env, wantAny)
		typed, ok := t.(natural)
		if fault != nil || !ok || typed.n.TypeData == nil {
			return // of an item of a predicate, say
		}
		if _, right := typed.n.Fields[word]; right {
			return // there it is; it is missed elsewhere
		}
		for name := range typed.n.Fields {
			known = append(known, name)
		}
	}))
	slices.Sort(known)
	return yamldoc.DidYouMean(word, known)
}

// DidYouMean is a hint for a word that is none of those that it may be.
func DidYouMean(word string, of []string) string { return yamldoc.DidYouMean(word, of) }
