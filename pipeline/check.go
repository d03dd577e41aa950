package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

// checker holds one file against itself.
type checker struct {
	*source
	f     *File
	o     Options
	index map[string]int // of the steps in the file
	above []stepSet      // of each step, all that it needs, also through others

	base   types.Map    // what every expression may name
	may    stepSet      // what the expressions that are checked may name; nil: no steps
	whole  types.Type   // of all of may; nil: not made yet
	types  []types.Type // of the steps; nil: not made yet
	naming map[*Expr]naming
}

func check(f *File, s *source, o Options) {
	c := &checker{source: s, f: f, o: o, index: make(map[string]int), types: make([]types.Type, len(f.Steps)), naming: make(map[*Expr]naming)}
	c.ids()
	if len(s.problems) > 0 {
		return
	}
	c.cycles()
	if len(s.problems) > 0 {
		return
	}
	c.inputs()
	c.model(f.Defaults.Model)
	c.text(f.Workspace.Root, c.outer(), wantText)
	for _, a := range f.Agents {
		c.model(a.Model)
		c.tools(a.Tools, "agent "+a.Name)
	}
	for i, st := range f.Steps {
		c.may, c.whole = c.above[i], nil
		c.step(st)
	}
	c.may, c.whole = c.every(), nil
	for _, out := range f.Outputs {
		before := len(s.problems)
		if c.refer("", out.Value.exprs); len(s.problems) == before {
			c.text(out.Value, c.outer(), wantAny)
		}
	}
}

// inputs sees that a type that is said is one. Without it no value would fit; a run that began so was given none.
func (c *checker) inputs() {
	for _, in := range c.f.Inputs {
		if in.Type == "" && !c.o.begun {
			c.fail(in.at, fmt.Sprintf("the type of input %q is empty", in.Name), "one of "+strings.Join(inputTypes(), ", "))
		}
	}
}

// ids sees that steps are told apart, and that what they need is there.
func (c *checker) ids() {
	for i, st := range c.f.Steps {
		_, twice := c.index[st.ID]
		switch {
		case st.ID == "":
			c.fail(st.at, "the step has no id", "write for example: id: review")
		case twice:
			c.fail(st.at, fmt.Sprintf("there are two steps with the id %q", st.ID), "")
		}
		c.index[st.ID] = i
	}
	for _, st := range c.f.Steps {
		for _, need := range st.Needs {
			if _, ok := c.index[need]; !ok && !c.full() {
				c.fail(c.find(need, st.at), fmt.Sprintf("step %q needs %q, and there is no such step", st.ID, need), yamldoc.DidYouMean(need, c.f.stepIDs()))
			}
		}
	}
}

// outer is what every expression may name, besides the steps.
func (c *checker) outer() types.Map {
	if c.base == nil {
		inputs, env := types.Map{}, types.Map{}
		for _, in := range c.f.Inputs {
			inputs[in.Name] = inputType(in)
		}
		for _, name := range c.f.Env {
			env[name] = types.Any
		}
		c.base = types.Map{
			"inputs": natural{inputs.Nature()}, "env": natural{env.Nature()}, "run": types.Map{"id": types.String, "name": types.String},
			readName: types.TypeOf(reader(nil)),
		}
	}
	return maps.Clone(c.base)
}

// step checks one step: its words, then its expressions in the order in which they are evaluated.
func (c *checker) step(st *Step) {
	c.words(st)
	refer := func(exprs func(func(*Expr))) { c.refer(st.ID, exprs) }
	before := len(c.problems)
	for _, e := range []*Expr{st.When, st.ForEach, st.Key, st.Conversation} {
		refer(func(fn func(*Expr)) {
			if e != nil {
				fn(e)
			}
		})
	}
	refer(st.texts)
	if len(c.problems) > before {
		return // what is named and not there is told better than by its type
	}
	env := c.outer()
	c.expr(st.When, env, wantBool)
	env["index"], env["key"] = types.Int, types.String
	if st.ForEach != nil {
		env[st.As] = elem(c.expr(st.ForEach, env, wantList))
	}
	if st.Repeat != nil {
		env["last"] = types.Any
	}
	if st.Kind == GroupStep {
		env["member"], env["round"] = types.String, types.Int
	}
	keyed := types.Map{}
	for k, v := range env {
		if k != "key" {
			keyed[k] = v
		}
	}
	c.expr(st.Key, keyed, wantAny)
	c.expr(st.Conversation, env, wantAny)
	st.texts(func(e *Expr) { c.expr(e, env, wantAny) })
	if st.Repeat != nil {
		env["output"] = outputType(st)
		c.refer(st.ID, func(fn func(*Expr)) { fn(st.Repeat.Until) })
		c.expr(st.Repeat.Until, env, wantBool)
	}
	if st.Until != nil {
		env["output"] = types.String
		c.refer(st.ID, func(fn func(*Expr)) { fn(st.Until) })
		c.expr(st.Until, env, wantBool)
	}
}

// texts calls fn for every expression within the texts of a step.
func (st *Step) texts(fn func(*Expr)) {
	st.Prompt.exprs(fn)
	st.Model.exprs(fn)
	st.Args.exprs(fn)
	if st.Human != nil {
		st.Human.Message.exprs(fn)
		st.Human.Show.exprs(fn)
	}
	if st.Approve != nil {
		st.Approve.Message.exprs(fn)
	}
}

func (c *checker) text(t *Text, env types.Map, want wanted) {
	if e := t.whole(); e != nil {
		c.expr(e, env, want)
		return
	}
	t.exprs(func(e *Expr) { c.expr(e, env, wantAny) })
}

func (c *checker) expr(e *Expr, env types.Map, want wanted) types.Type {
	if e == nil {
		return types.Any
	}
	if c.may != nil {
		env["steps"] = c.stepsFor(e)
	}
	t, fault := e.compile(env, want)
	switch {
	case fault == nil:
		return t
	case c.full():
		return types.Any
	}
	c.fail(fault.at, strings.TrimSpace(fault.what), e.hint(fault.what, env))
	return types.Any
}

func keysIn(env types.Map) (out []string) {
	for k := range env {
		out = append(out, k)
	}
	return out
}

// refer sees that expressions name only steps that have ended when they are evaluated.
func (c *checker) refer(id string, exprs func(func(*Expr))) {
	exprs(func(e *Expr) {
		wrong := func(name string) bool {
			i, ok := c.index[name]
			return !ok || !c.may.has(i)
		}
		if !slices.ContainsFunc(c.names(e).steps, wrong) || c.full() {
			return // what cannot be read, compile tells
		}
		tree, err := parser.Parse(e.Src)
		if err != nil {
			return
		}
		ast.Walk(&tree.Node, visit(func(n ast.Node) {
			if of, name := stepNamed(n); of != nil && wrong(name) && !c.full() {
				c.unnamed(e, of, name, id)
			}
		}))
	})
}

// unnamed tells of a step that an expression names and may not.
func (c *checker) unnamed(e *Expr, of *ast.IdentifierNode, name, id string) {
	pos := place{e.at.line, e.at.col + of.Location().From}
	if strings.Contains(e.Src, "\n") {
		pos = c.find("steps."+name, e.at)
	}
	_, known := c.index[name]
	switch {
	case name == id:
		c.fail(pos, fmt.Sprintf("step %q names itself", id), "with repeat, last is what the round before gave")
	case !known:
		c.fail(pos, fmt.Sprintf("there is no step %q", name), yamldoc.DidYouMean(name, c.f.stepIDs()))
	default:
		c.fail(pos, fmt.Sprintf("step %q names %q and does not need it", id, name), fmt.Sprintf("add it: needs: [%s]", strings.Join(append(slices.Clone(c.f.Steps[c.index[id]].Needs), name), ", ")))
	}
}

// model checks the name of one, as far as it is one before anything runs.
func (c *checker) model(t *Text) {
	c.text(t, c.outer(), wantText)
	c.named(t)
}

// named sees that a model that is named as it is exists.
func (c *checker) named(t *Text) {
	if t == nil || c.o.Model == nil || slices.ContainsFunc(t.parts, func(p part) bool { return p.expr != nil }) || t.Raw == "" {
		return
	}
	if what, fix := c.o.Model(t.Raw); what != "" {
		c.fail(t.at, what, fix)
	}
}

type visit func(ast.Node)

// Visit implements ast.Visitor.
func (v visit) Visit(n *ast.Node) { v(*n) }
