package pipeline

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
)

// stepSet is a set of the steps of a file, by their place in it. The zero value is empty, and has no room.
type stepSet []uint64

func newStepSet(steps int) stepSet { return make(stepSet, (steps+63)/64) }

func (s stepSet) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s stepSet) has(i int) bool { return i/64 < len(s) && s[i/64]&(1<<(i%64)) != 0 }

func (s stepSet) addAll(of stepSet) {
	for i := range of {
		s[i] |= of[i]
	}
}

// cycles follows what steps need, and refuses circles.
func (c *checker) cycles() {
	var follow func(i int, way []string) stepSet
	follow = func(i int, way []string) stepSet {
		st := c.f.Steps[i]
		if c.above[i] != nil {
			return c.above[i]
		}
		if at := slices.Index(way, st.ID); at >= 0 {
			c.fail(st.at, "steps wait for each other in a circle: "+strings.Join(append(way[at:], st.ID), " needs "), "leave one of these needs out; to go round, use repeat")
			return nil
		}
		all := newStepSet(len(c.f.Steps))
		for _, need := range st.Needs {
			all.add(c.index[need])
			all.addAll(follow(c.index[need], append(way, st.ID)))
			if len(c.problems) > 0 {
				return nil
			}
		}
		c.above[i] = all
		return all
	}
	c.above = make([]stepSet, len(c.f.Steps))
	for i := range c.f.Steps {
		if len(c.problems) == 0 {
			follow(i, nil)
		}
	}
}

// every is the set of all steps.
func (c *checker) every() stepSet {
	all := newStepSet(len(c.f.Steps))
	for i := range c.f.Steps {
		all.add(i)
	}
	return all
}

// naming is what an expression names of the steps.
type naming struct {
	steps []string // by steps.ID, in their order
	more  bool     // besides, the steps by other words: any may be meant
}

// names reads them out of an expression; that of one which cannot be read is empty.
func (c *checker) names(e *Expr) naming {
	if n, known := c.naming[e]; known {
		return n
	}
	var n naming
	named := 0
	if tree, err := parser.Parse(e.Src); err == nil {
		ast.Walk(&tree.Node, visit(func(node ast.Node) {
			if id, ok := node.(*ast.IdentifierNode); ok && (id.Value == "steps" || id.Value == "$env") {
				named++
			}
			if _, name := stepNamed(node); name != "" {
				n.steps = append(n.steps, name)
				named--
			}
		}))
	}
	n.more = named != 0
	c.naming[e] = n
	return n
}

// stepNamed is the step that a node names by steps.ID, and the word steps in it.
func stepNamed(n ast.Node) (*ast.IdentifierNode, string) {
	m, ok := n.(*ast.MemberNode)
	if !ok {
		return nil, ""
	}
	of, _ := m.Node.(*ast.IdentifierNode)
	name, _ := m.Property.(*ast.StringNode)
	if of == nil || name == nil || of.Value != "steps" {
		return nil, ""
	}
	return of, name.Value
}

// stepsFor is what an expression sees of the steps that it may name: those that it does, or all of them when one cannot tell. So a
// long chain of steps is not gone through for every expression in it.
func (c *checker) stepsFor(e *Expr) types.Type {
	n := c.names(e)
	if n.more {
		if c.whole == nil {
			out := types.Map{}
			for i := range c.f.Steps {
				if c.may.has(i) {
					out[c.f.Steps[i].ID] = c.stepType(i)
				}
			}
			c.whole = natural{out.Nature()}
		}
		return c.whole
	}
	out := types.Map{}
	for _, id := range n.steps {
		if i, ok := c.index[id]; ok && c.may.has(i) {
			out[id] = c.stepType(i)
		}
	}
	return out
}

// stepType is the type of a step, made once.
func (c *checker) stepType(i int) types.Type {
	if c.types[i] == nil {
		c.types[i] = natural{stepType(c.f.Steps[i]).Nature()}
	}
	return c.types[i]
}
