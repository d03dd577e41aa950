package pipeline

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

func (s *source) steps(f *File, node ast.Node) {
	s.list(node, "steps", func(n ast.Node) {
		st := &Step{As: "item", OnError: failWord, at: at(n)}
		var kinds []string
		is := func(k Kind, take func(ast.Node)) func(ast.Node) {
			return func(n ast.Node) { st.Kind, kinds = k, append(kinds, string(k)); take(n) }
		}
		keys := s.stepKeys(st)
		keys["agent"] = is(AgentStep, func(n ast.Node) { st.Agent = s.word(n, "agent") })
		keys["parallel"] = is(ParallelStep, func(n ast.Node) { st.Parallel = s.words(n, "parallel") })
		keys["group"] = is(GroupStep, func(n ast.Node) { st.Group = s.words(n, "group") })
		keys["tool"] = is(ToolStep, func(n ast.Node) { st.Tool = s.word(n, "tool") })
		keys["human"] = is(HumanStep, func(n ast.Node) { st.Human = s.human(n) })
		keys["pipeline"] = is(NestedStep, func(n ast.Node) { st.Nested = s.word(n, "pipeline") })
		s.mapping(n, "a step", keys)
		if len(kinds) != 1 {
			what := "does nothing"
			if len(kinds) > 1 {
				what = "is more than one thing: " + strings.Join(kinds, ", ")
			}
			s.fail(st.at, fmt.Sprintf("step %q %s", st.ID, what), "a step has one of agent, parallel, group, tool, human, pipeline")
			return
		}
		f.Steps = append(f.Steps, st)
	})
}

func (s *source) stepKeys(st *Step) keyed {
	return keyed{
		"id": func(n ast.Node) {
			if st.ID = s.word(n, "id"); !isName(st.ID) {
				s.failAt(n, fmt.Sprintf("id %q is no name", yamldoc.Printable(st.ID)), "a name has up to 64 letters, digits and _ and begins with a letter")
			}
			st.at = at(n)
		},
		"needs":       func(n ast.Node) { st.Needs = s.words(n, "needs") },
		"when":        func(n ast.Node) { st.When = s.bare(n, "when") },
		"foreach":     func(n ast.Node) { st.ForEach = s.bare(n, "foreach") },
		"as":          func(n ast.Node) { st.As = s.as(n) },
		"key":         func(n ast.Node) { st.Key = s.bare(n, "key") },
		"concurrency": func(n ast.Node) { st.Concurrency = s.count(n, "concurrency", 1) },
		"repeat":      func(n ast.Node) { st.Repeat = s.repeat(n) },
		"rounds":      func(n ast.Node) { st.Rounds = s.count(n, "rounds", 1) },
		"until":       func(n ast.Node) { st.Until = s.bare(n, "until") },
		"model":       func(n ast.Node) { st.Model = s.textOf(n, "model") },
		"prompt":      func(n ast.Node) { st.Prompt = s.textOf(n, "prompt") },
		"conversation": func(n ast.Node) {
			st.Conversation = s.textOf(n, "conversation").whole()
			s.wholeOnly(n, st.Conversation)
		},
		"with":     func(n ast.Node) { st.Args = s.tree(n, "with") },
		"output":   func(n ast.Node) { s.output(st, n) },
		"on_error": func(n ast.Node) { st.OnError = s.oneOf(n, "on_error", failWord, Continue) },
		"quorum":   func(n ast.Node) { st.Quorum = s.count(n, "quorum", 1) },
		"retry":    func(n ast.Node) { st.Retry = s.retry(n) },
		"timeout":  func(n ast.Node) { st.Timeout = s.duration(n, "timeout") },
		"budget":   func(n ast.Node) { st.Budget = s.budget(n) },
		"approve":  func(n ast.Node) { st.Approve = s.approve(n) },
	}
}

func (s *source) wholeOnly(n ast.Node, e *Expr) {
	if e == nil {
		s.failAt(n, "conversation is one expression and nothing else", "write for example: conversation: ${{ steps.draft.conversation }}")
	}
}

func (s *source) as(n ast.Node) string {
	w := s.word(n, "as")
	if !isName(w) || takenNames()[w] {
		s.failAt(n, fmt.Sprintf("as: %q cannot name an item", yamldoc.Printable(w)), "take a word of its own, for example: as: file")
		return "item"
	}
	return w
}

// takenNames are the names that expressions have already.
func takenNames() map[string]bool {
	return map[string]bool{"inputs": true, "env": true, "steps": true, "run": true, "index": true, "key": true, "last": true, "output": true, readName: true}
}

func (s *source) repeat(node ast.Node) *Repeat {
	r := &Repeat{Max: 10}
	s.mapping(node, "repeat", keyed{
		"until": func(n ast.Node) { r.Until = s.bare(n, "until") },
		"max":   func(n ast.Node) { r.Max = s.count(n, "max", 1) },
	})
	if r.Until == nil {
		s.failAt(node, "repeat does not say until when", "write for example: until: output.done")
	}
	return r
}

func (s *source) output(st *Step, node ast.Node) {
	s.mapping(node, "output", keyed{
		"schema": func(n ast.Node) {
			v := s.constant(n, "schema")
			resolved, err := resolveSchema(v)
			if err != nil {
				s.failAt(n, "schema: "+yamldoc.Printable(err.Error()), "see https://json-schema.org")
				return
			}
			st.Schema = &Schema{v, at(n), resolved}
		},
		"repair": func(n ast.Node) { st.Repair = s.count(n, "repair", 0) },
	})
}

func (s *source) human(node ast.Node) *Human {
	h := &Human{}
	s.mapping(node, "human", keyed{
		"message":    func(n ast.Node) { h.Message = s.textOf(n, "message") },
		"show":       func(n ast.Node) { h.Show = s.tree(n, "show") },
		"choices":    func(n ast.Node) { h.Choices = s.words(n, "choices") },
		"timeout":    func(n ast.Node) { h.Timeout = s.duration(n, "timeout") },
		"on_timeout": func(n ast.Node) { h.OnTimeout = s.word(n, "on_timeout") },
	})
	if h.Message == nil {
		s.failAt(node, "human has no message", "say what is asked")
	}
	if len(h.Choices) == 0 {
		h.Choices = []string{"yes", "no"}
	}
	for _, c := range append([]string{h.OnTimeout}, h.Choices...) {
		if c != "" && !isName(c) {
			s.failAt(node, fmt.Sprintf("choice %q is no name", yamldoc.Printable(c)), "a choice has letters, digits and _ and begins with a letter")
		}
	}
	return h
}

func (s *source) approve(node ast.Node) *Approve {
	a := &Approve{OnTimeout: "reject"}
	s.mapping(node, "approve", keyed{
		"before":     func(n ast.Node) { a.Before = s.words(n, "before") },
		"message":    func(n ast.Node) { a.Message = s.textOf(n, "message") },
		"timeout":    func(n ast.Node) { a.Timeout = s.duration(n, "timeout") },
		"on_timeout": func(n ast.Node) { a.OnTimeout = s.oneOf(n, "on_timeout", "reject") },
	})
	return a
}
