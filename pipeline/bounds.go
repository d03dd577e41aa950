package pipeline

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm/runtime"
)

// maxMade is how many bytes of text one evaluation makes at most. The budget of the language counts items of lists alone.
const maxMade = 16 << 20

// Functions in the place of +: of anything, and of two texts.
const (
	plusName  = "__plus"
	textsName = "__texts"
)

// made counts the texts of one evaluation.
type made struct{ bytes int }

// more sees that a text of n bytes may be made.
func (m *made) more(n int) error {
	if n > maxText {
		return fmt.Errorf("a text would be longer than %d bytes", maxText)
	}
	if m.bytes += n; m.bytes > maxMade {
		return fmt.Errorf("texts of more than %d bytes would be made", maxMade)
	}
	return nil
}

func (m *made) plus(a, b any) (any, error) {
	x, left := a.(string)
	y, right := b.(string)
	if !left || !right {
		return runtime.Add(a, b), nil
	}
	return m.texts(x, y)
}

func (m *made) texts(a, b string) (string, error) {
	if err := m.more(len(a) + len(b)); err != nil {
		return "", err
	}
	return a + b, nil
}

func (m *made) replace(s, old, with string, most ...int) (string, error) {
	n := strings.Count(s, old)
	if len(most) > 0 && most[0] >= 0 {
		n = min(n, most[0])
	}
	if err := m.more(len(s) + n*(len(with)-len(old))); err != nil {
		return "", err
	}
	return strings.Replace(s, old, with, n), nil
}

func (m *made) join(list any, glue ...string) (string, error) {
	var texts []string
	switch list := list.(type) {
	case []string:
		texts = list
	case []any:
		for i, v := range list {
			s, ok := v.(string)
			if !ok {
				return "", fmt.Errorf("join: item %d is %s, and no text", i, clip(Show(v)))
			}
			texts = append(texts, s)
		}
	default:
		return "", fmt.Errorf("join: %s is no list", clip(Show(list)))
	}
	between := strings.Join(glue, "")
	n := len(between) * max(len(texts)-1, 0)
	for _, s := range texts {
		n += len(s)
	}
	if err := m.more(n); err != nil {
		return "", err
	}
	return strings.Join(texts, between), nil
}

func (m *made) json(v any) (string, error) {
	if weigh(v, maxText) < 0 {
		return "", m.more(maxText + 1)
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", err
	}
	return string(b), m.more(len(b))
}

func (m *made) text(v any) (string, error) {
	if weigh(v, maxText) < 0 {
		return "", m.more(maxText + 1)
	}
	s := fmt.Sprint(v)
	return s, m.more(len(s))
}

// weigh takes what a value is at least, written out, off a number of bytes. Below 0 it goes no further: a list of few parts
// that stand in each other again and again is long when it is written.
func weigh(v any, left int) int {
	switch v := v.(type) {
	case string:
		return left - len(v)
	case []any:
		for _, sub := range v {
			if left = weigh(sub, left-1); left < 0 {
				return left
			}
		}
		return left
	case map[string]any:
		for k, sub := range v {
			if left = weigh(sub, left-1-len(k)); left < 0 {
				return left
			}
		}
		return left
	}
	return left - 1
}

func (m *made) functions() map[string]any {
	return map[string]any{plusName: m.plus, textsName: m.texts, "replace": m.replace, "join": m.join, "toJSON": m.json, "string": m.text}
}

// bounded is an environment with the functions that count.
func bounded(env map[string]any) map[string]any {
	out := (&made{}).functions()
	maps.Copy(out, env)
	return out
}

// boundedTypes is what the checker knows of them.
func boundedTypes(env types.Map) types.Map {
	out := types.Map{}
	for name, fn := range (&made{}).functions() {
		out[name] = types.TypeOf(fn)
	}
	maps.Copy(out, env)
	return out
}

// bounds lets + of texts count, and every round of a predicate: the budget of the language counts neither.
type bounds struct{ seen map[ast.Node]bool }

// Visit implements ast.Visitor.
func (b bounds) Visit(n *ast.Node) {
	switch node := (*n).(type) {
	case *ast.BinaryNode:
		l, r := node.Left.Nature(), node.Right.Nature()
		if node.Operator != "+" || l.Kind != 0 && !l.IsString() || r.Kind != 0 && !r.IsString() {
			return
		}
		name := plusName
		if l.IsString() && r.IsString() {
			name = textsName
		}
		ast.Patch(n, &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: []ast.Node{node.Left, node.Right}})
	case *ast.PredicateNode:
		if !b.seen[node] {
			b.seen[node] = true
			one := &ast.BuiltinNode{Name: "repeat", Arguments: []ast.Node{&ast.StringNode{Value: "x"}, &ast.IntegerNode{Value: 1}}} // takes 1 of the budget
			node.Node = &ast.SequenceNode{Nodes: []ast.Node{one, node.Node}}
		}
	}
}
