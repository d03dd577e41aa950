package pipeline

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

// words checks what a step says besides its expressions.
func (c *checker) words(st *Step) {
	no := func(is bool, what, fix string) {
		if is {
			c.fail(st.at, fmt.Sprintf("step %q: %s", st.ID, what), fix)
		}
	}
	asks, group := st.Kind == AgentStep || st.Kind == ParallelStep || st.Kind == GroupStep, st.Kind == GroupStep
	no(asks && st.Prompt == nil, "an agent needs a prompt", "write for example: prompt: Review this change.")
	no(!asks && st.Prompt != nil, "a prompt is for agents", "leave it out")
	no(!asks && st.Schema != nil, "output.schema is for answers of agents", "leave it out")
	no(!asks && st.Conversation != nil, "a conversation is continued by agents", "leave it out")
	no(!asks && st.Model != nil, "a model is for agents", "leave it out")
	no(st.Repair > 0 && st.Schema == nil, "repair without a schema mends nothing", "add output.schema")
	no(st.Args != nil && st.Kind != ToolStep && st.Kind != NestedStep, "with: is for tools and pipelines", "agents are told everything by their prompt")
	no(st.Args != nil && st.Args.kind != 'm', "with: is a mapping", "write its keys below it, indented")
	no(st.Kind == ParallelStep && st.ForEach != nil, "parallel and foreach exclude each other", "run the agents in steps of their own, each with foreach")
	no(st.Kind == ParallelStep && len(st.Parallel) == 0, "parallel names no agents", "write for example: parallel: [security, clarity]")
	no(st.Repeat != nil && st.Fan() && !group, "repeat and foreach exclude each other", "repeat a pipeline of its own for each item")
	no(st.Repeat != nil && st.Kind == HumanStep, "a person is asked once", "leave repeat out")
	no(st.Kind == HumanStep && st.ForEach != nil, "a person is asked once", "leave foreach out, and show the list")
	no(st.ForEach == nil && (st.Key != nil || st.As != "item"), "as and key are for foreach", "")
	c.group(st)
	no((!st.Fan() || group) && st.Concurrency > 0, "concurrency is for foreach and parallel", "")
	no(!st.Fan() && st.Quorum > 0, "quorum is for foreach, parallel and group", "")
	no(st.Kind == ParallelStep && st.Quorum > len(st.Parallel), fmt.Sprintf("a quorum of %d among %d agents", st.Quorum, len(st.Parallel)), "")
	no(st.Approve != nil && len(st.Approve.Before) > 0 && !asks, "approve.before is for the tools of agents", "without before: the step itself waits for an answer")
	no(st.Approve != nil && len(st.Approve.Before) == 0 && st.Repeat != nil, "approve would ask before the first round alone", "ask in a step of its own that this one needs, or approve tools with before:")
	no(st.Approve != nil && st.Kind == HumanStep, "a person is asked already", "leave approve out")
	if h := st.Human; h != nil && h.OnTimeout != "" && !slices.Contains(h.Choices, h.OnTimeout) {
		no(true, fmt.Sprintf("on_timeout %q is none of its choices", h.OnTimeout), yamldoc.DidYouMean(h.OnTimeout, h.Choices))
	}
	for _, name := range slices.Concat(st.Parallel, st.Group, []string{st.Agent}) {
		c.agent(st, name)
	}
	if st.Kind == ToolStep {
		if st.Tool != WriteCSV {
			c.tools([]string{st.Tool}, "step "+st.ID)
		}
		c.arguments(st)
	}
	c.named(st.Model)
	c.schema(st)
	if st.Approve != nil {
		c.tools(st.Approve.Before, "approve")
	}
	c.budgets(st)
}

// agent sees that a name is known: to the file, or to the configuration.
func (c *checker) agent(st *Step, name string) {
	if name == "" || c.full() || c.f.Agent(name) != nil || c.o.Agents == nil || slices.Contains(c.o.Agents, name) {
		return
	}
	known := slices.Clone(c.o.Agents)
	for _, a := range c.f.Agents {
		known = append(known, a.Name)
	}
	c.fail(c.find(name, st.at), fmt.Sprintf("step %q: there is no agent %q", st.ID, name), yamldoc.DidYouMean(name, known))
}

func (c *checker) tools(names []string, of string) {
	for _, name := range names {
		if c.o.Tools != nil && !c.full() && !slices.Contains(c.o.Tools, name) && (c.o.Server == nil || !c.o.Server(name)) {
			c.fail(c.find(name, place{1, 1}), fmt.Sprintf("%s: there is no tool %q", of, name), yamldoc.DidYouMean(name, c.o.Tools))
		}
	}
}

// schema refuses slips, but not in a run that began before they were: it goes on as it is.
func (c *checker) schema(st *Step) {
	if st.Schema == nil || c.o.begun {
		return
	}
	if err := slips(st.Schema.Value, ""); err != nil {
		what, fix, _ := strings.Cut(yamldoc.Printable(err.Error()), "; ")
		c.fail(st.Schema.at, "schema: "+what, fix)
	}
}

// WriteCSV is the tool that only steps have: rows become the text of a file.
const WriteCSV = "write_csv"

// takes is the schema of a tool's arguments; nil: it is not known.
func (c *checker) takes(tool string) []byte {
	switch {
	case tool == WriteCSV && !c.o.begun:
		return []byte(`{"additionalProperties": false, "required": ["path", "rows"], "properties": {"path": {}, "rows": {}}}`)
	case c.o.Takes != nil:
		return c.o.Takes(tool)
	}
	return nil
}

// arguments holds the names of a tool's arguments against its schema.
func (c *checker) arguments(st *Step) {
	if st.Args != nil && st.Args.kind != 'm' {
		return
	}
	var schema struct {
		Properties map[string]any `json:"properties"`
		Required   []string       `json:"required"`
		Additional any            `json:"additionalProperties"`
	}
	if text := c.takes(st.Tool); text == nil || json.Unmarshal(text, &schema) != nil || schema.Additional != false {
		return
	}
	given := &Tree{}
	if st.Args != nil {
		given = st.Args
	}
	for _, name := range given.keys {
		if _, ok := schema.Properties[name]; !ok && !c.full() {
			c.fail(given.at[name], fmt.Sprintf("step %q: %s takes no argument %q", st.ID, st.Tool, yamldoc.Printable(name)), yamldoc.DidYouMean(name, slices.Collect(maps.Keys(schema.Properties))))
		}
	}
	for _, name := range schema.Required {
		if given.items[name] == nil {
			c.fail(c.find(st.Tool, st.at), fmt.Sprintf("step %q: %s needs the argument %q", st.ID, st.Tool, name), "add it below with:")
		}
	}
	if st.Tool == WriteCSV {
		c.rows(st, given.items["rows"], given.at["rows"])
	}
}

// rows sees that what write_csv gets as rows can be some, as far as that stands in the file: the rest is seen when it is written.
func (c *checker) rows(st *Step, rows *Tree, at place) {
	if rows == nil {
		return
	}
	if rows.scalar() {
		c.fail(at, fmt.Sprintf("step %q: the rows of %s are a list, and this is none", st.ID, WriteCSV), "write for example: rows: ${{ steps.X.items }}")
		return
	}
	for i, row := range rows.list {
		if row.scalar() && !c.full() {
			c.fail(at, fmt.Sprintf("step %q: row %d of %s is neither a list nor an object", st.ID, i+1, WriteCSV), "write for example: rows: [[a, b], [c, d]]")
		}
	}
	if rows.kind == 'm' {
		c.fail(at, fmt.Sprintf("step %q: the rows of %s are a list, and this is an object", st.ID, WriteCSV), "write for example: rows: [{a: 1, b: 2}]")
	}
}

// scalar says whether a tree is one value that stands in the file, and not what an expression gives.
func (t *Tree) scalar() bool {
	computed := false
	t.exprs(func(*Expr) { computed = true })
	return (t.kind == 't' || t.kind == 'v') && !computed
}
