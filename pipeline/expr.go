package pipeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
)

// Expr is one expression. It is compiled when the file is checked.
type Expr struct {
	Src  string
	at   place // of its first character
	lead int   // spaces before it

	block []blockLine // its lines, when it is a block of text
	prog  *vm.Program
}

// reader is what read() does: it gets a path below the run's folder.
type reader = func(path string) (string, error)

// readName is the function by which expressions read a file.
const readName = "read"

// compile checks an expression against the types of what it may name, and that it gives what is wanted.
func (e *Expr) compile(env types.Map, want wanted) (types.Type, *Fault) {
	ops := []expr.Option{
		expr.Env(boundedTypes(env)), expr.DisableBuiltin("now"), expr.DisableBuiltin("repeat"),
		expr.Function(maybeName, func(args ...any) (any, error) { return args[0], nil }, new(func(any) any)), expr.Patch(maybe{}),
		expr.Patch(bounds{seen: make(map[ast.Node]bool)}),
	}
	if want == wantBool {
		ops = append(ops, expr.AsBool())
	}
	prog, err := expr.Compile(e.Src, ops...)
	if err != nil {
		return nil, e.fault(err)
	}
	e.prog = prog
	got := prog.Node().Nature()
	switch {
	case want == wantList && got.Kind != 0 && !got.IsArray():
		return nil, &Fault{at: e.start(), what: fmt.Sprintf("this gives %s, and a list is wanted", got.String())}
	case want == wantText && got.Kind != 0 && !got.IsString():
		return nil, &Fault{at: e.start(), what: fmt.Sprintf("this gives %s, and a text is wanted", got.String())}
	}
	return natural{*got}, nil
}

// maybe lets what follows a ?. be of any type: the language takes it for one that is always there, and fails
// when nothing is compared with a text.
type maybe struct{}

const maybeName = "__maybe"

// Visit implements ast.Visitor.
func (maybe) Visit(n *ast.Node) {
	if chain, ok := (*n).(*ast.ChainNode); ok {
		ast.Patch(n, &ast.CallNode{Callee: &ast.IdentifierNode{Value: maybeName}, Arguments: []ast.Node{chain}})
	}
}

// wanted is what an expression has to give.
type wanted byte

const (
	wantAny wanted = iota
	wantBool
	wantList
	wantText
)

// Fault is what is wrong with an expression, and where.
type Fault struct {
	at   place
	what string
}

func (e *Expr) start() place {
	if len(e.block) > 0 {
		return e.block[0].place
	}
	return place{e.at.line, e.at.col + e.lead}
}

// fault places an error of the language in the file.
func (e *Expr) fault(err error) *Fault {
	f := &Fault{at: e.start(), what: err.Error()}
	var bad *file.Error
	if errors.As(err, &bad) {
		f.what = bad.Message
		switch {
		case len(e.block) > 0:
			f.at = e.inBlock(bad.From)
		case bad.Line <= 1:
			f.at = place{e.at.line, e.at.col + bad.Column}
		default:
			f.at = place{e.at.line + bad.Line - 1, bad.Column + 1}
		}
	}
	f.what = "expression: " + strings.TrimSuffix(f.what, "\n")
	return f
}

// eval runs a compiled expression. Its value is plain: what JSON has.
func (e *Expr) eval(env map[string]any) (any, error) {
	v, err := e.raw(env)
	if err != nil {
		return nil, err
	}
	if v, err = plain(v); err != nil {
		return nil, fmt.Errorf("line %d: ${{ %s }}: %w", e.at.line, strings.TrimSpace(e.Src), err)
	}
	return v, nil
}

// raw is the value as the language has it. What the environment holds stands in it as it is.
func (e *Expr) raw(env map[string]any) (any, error) {
	if e.prog == nil {
		return nil, fmt.Errorf("expression %q was not compiled", e.Src)
	}
	machine := vm.VM{MemoryBudget: 1e6}
	v, err := machine.Run(e.prog, bounded(env))
	if err != nil {
		var bad *file.Error
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("line %d: ${{ %s }}: %s", e.at.line, strings.TrimSpace(e.Src), bad.Message)
		}
		return nil, fmt.Errorf("line %d: ${{ %s }}: %w", e.at.line, strings.TrimSpace(e.Src), err)
	}
	return v, nil
}

// plain turns a value into what JSON gives back, so that a value that was written down and read again is the same.
func plain(v any) (any, error) {
	switch v.(type) {
	case nil, string, bool, int:
		return v, nil
	}
	if weigh(v, maxValue) < 0 {
		return nil, fmt.Errorf("the value would be longer than %d bytes", maxValue)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the value cannot be written as JSON: %w", err)
	}
	if len(b) > maxValue {
		return nil, fmt.Errorf("the value is longer than %d bytes", maxValue)
	}
	if v, err = decodeJSON(string(b)); err == nil && tooDeep(v, maxDepth) { // what a program gives may be of any type before
		return nil, fmt.Errorf("the value is nested more than %d deep", maxDepth)
	}
	return v, err
}

// decodeJSON reads a value; whole numbers stay whole, so that they index lists and print as such.
func decodeJSON(text string) (any, error) {
	if text == "" {
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if bad := endless(v); bad != "" {
		return nil, fmt.Errorf("the number %s is too large", clip(bad))
	}
	return numbers(v), nil
}

// endless finds a number that nothing here can hold: it would be written down as nothing.
func endless(v any) (bad string) {
	switch v := v.(type) {
	case json.Number:
		if _, err := v.Float64(); err != nil {
			return v.String()
		}
	case []any:
		for i := 0; i < len(v) && bad == ""; i++ {
			bad = endless(v[i])
		}
	case map[string]any:
		for _, sub := range v {
			bad = cmp.Or(bad, endless(sub))
		}
	}
	return bad
}

// tooDeep tells whether a value is nested more than so many levels deep.
func tooDeep(v any, left int) bool {
	switch v := v.(type) {
	case []any:
		return left == 0 || slices.ContainsFunc(v, func(sub any) bool { return tooDeep(sub, left-1) })
	case map[string]any:
		for _, sub := range v {
			if left == 0 || tooDeep(sub, left-1) {
				return true
			}
		}
		return left == 0
	}
	return false
}

func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return int(n)
		}
		f, _ := v.Float64()
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 { // 1.0 is whole, as schemas have it
			return int(f)
		}
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}
