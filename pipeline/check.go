package pipeline

import (
	"fmt"
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
	above map[string][]string // step -> all that it needs, also through others
}

func check(f *File, s *source, o Options) {
	c := &checker{source: s, f: f, o: o, above: make(map[string][]string)}
	c.ids()
	if len(s.problems) > 0 {
		return
	}
	c.cycles()
	if len(s.problems) > 0 {
		return
	}
	c.model(f.Defaults.Model)
	c.text(f.Workspace.Root, c.outer(), wantText)
	for _, a := range f.Agents {
		c.model(a.Model)
		c.tools(a.Tools, "agent "+a.Name)
	}
	for _, st := range f.Steps {
		c.step(st)
	}
	env := c.outer()
	env["steps"] = c.stepsType(f.stepIDs())
	for _, out := range f.Outputs {
		before := len(s.problems)
		if c.refer(f.stepIDs(), "", out.Value.exprs); len(s.problems) == before {
			c.text(out.Value, env, wantAny)
		}
	}
}

// ids sees that steps are told apart, and that what they need is there.
func (c *checker) ids() {
	seen := make(map[string]bool)
	for _, st := range c.f.Steps {
		switch {
		case st.ID == "":
			c.fail(st.at, "the step has no id", "write for example: id: review")
		case seen[st.ID]:
			c.fail(st.at, fmt.Sprintf("there are two steps with the id %q", st.ID), "")
		}
		seen[st.ID] = true
	}
	for _, st := range c.f.Steps {
		for _, need := range st.Needs {
			if !seen[need] {
				c.fail(c.find(need, st.at), fmt.Sprintf("step %q needs %q, and there is no such step", st.ID, need), yamldoc.DidYouMean(need, c.f.stepIDs()))
			}
		}
	}
}

// cycles follows what steps need, and refuses circles.
func (c *checker) cycles() {
	var follow func(st *Step, way []string) []string
	follow = func(st *Step, way []string) []string {
		if all, known := c.above[st.ID]; known {
			return all
		}
		if i := slices.Index(way, st.ID); i >= 0 {
			c.fail(st.at, "steps wait for each other in a circle: "+strings.Join(append(way[i:], st.ID), " needs "), "leave one of these needs out; to go round, use repeat")
			return nil
		}
		var all []string
		for _, need := range st.Needs {
			all = append(all, need)
			all = append(all, follow(c.f.step(need), append(way, st.ID))...)
			if len(c.problems) > 0 {
				return nil
			}
		}
		slices.Sort(all)
		c.above[st.ID] = slices.Compact(all)
		return c.above[st.ID]
	}
	for _, st := range c.f.Steps {
		if len(c.problems) == 0 {
			follow(st, nil)
		}
	}
}

// outer is what every expression may name.
func (c *checker) outer() types.Map {
	inputs, env := types.Map{}, types.Map{}
	for _, in := range c.f.Inputs {
		inputs[in.Name] = inputType(in)
	}
	for _, name := range c.f.Env {
		env[name] = types.Any
	}
	return types.Map{
		"inputs": inputs, "env": env, "run": types.Map{"id": types.String, "name": types.String},
		readName: types.TypeOf(reader(nil)),
	}
}

func (c *checker) stepsType(ids []string) types.Map {
	out := types.Map{}
	for _, id := range ids {
		out[id] = stepType(c.f.step(id))
	}
	return out
}

// step checks one step: its words, then its expressions in the order in which they are evaluated.
func (c *checker) step(st *Step) {
	c.words(st)
	refer := func(exprs func(func(*Expr))) { c.refer(c.above[st.ID], st.ID, exprs) }
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
	env["steps"] = c.stepsType(c.above[st.ID])
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
		c.refer(c.above[st.ID], st.ID, func(fn func(*Expr)) { fn(st.Repeat.Until) })
		c.expr(st.Repeat.Until, env, wantBool)
	}
	if st.Until != nil {
		env["output"] = types.String
		c.refer(c.above[st.ID], st.ID, func(fn func(*Expr)) { fn(st.Until) })
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
	t, fault := e.compile(env, want)
	if fault == nil {
		return t
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
func (c *checker) refer(may []string, id string, exprs func(func(*Expr))) {
	exprs(func(e *Expr) {
		tree, err := parser.Parse(e.Src)
		if err != nil {
			return // compile tells it
		}
		ast.Walk(&tree.Node, visit(func(n ast.Node) {
			m, ok := n.(*ast.MemberNode)
			if !ok {
				return
			}
			of, _ := m.Node.(*ast.IdentifierNode)
			name, _ := m.Property.(*ast.StringNode)
			if of == nil || name == nil || of.Value != "steps" || slices.Contains(may, name.Value) {
				return
			}
			pos := place{e.at.line, e.at.col + of.Location().From}
			if strings.Contains(e.Src, "\n") {
				pos = c.find("steps."+name.Value, e.at)
			}
			switch {
			case name.Value == id:
				c.fail(pos, fmt.Sprintf("step %q names itself", id), "with repeat, last is what the round before gave")
			case c.f.step(name.Value) == nil:
				c.fail(pos, fmt.Sprintf("there is no step %q", name.Value), yamldoc.DidYouMean(name.Value, c.f.stepIDs()))
			default:
				c.fail(pos, fmt.Sprintf("step %q names %q and does not need it", id, name.Value), fmt.Sprintf("add it: needs: [%s]", strings.Join(append(slices.Clone(c.f.step(id).Needs), name.Value), ", ")))
			}
		}))
	})
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
