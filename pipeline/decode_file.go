package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

// decode reads a file's text, collecting every problem rather than the first.
func decode(path, text string) (*File, *source) {
	src := yamldoc.Trim([]byte(text))
	s := newSource(path, string(src))
	f := &File{}
	doc, fault := yamldoc.Parse(src, MaxFile, "a pipeline")
	switch {
	case fault != nil:
		s.fail(place{fault.Line, fault.Col}, fault.What, fault.Fix)
	case doc == nil:
		s.fail(place{}, "the file is empty", "a pipeline has at least: version: 1, name and steps")
	default:
		s.file(f, doc)
	}
	return f, s
}

func (s *source) file(f *File, doc ast.Node) {
	version := ""
	s.mapping(doc, "the pipeline", keyed{
		"version": func(n ast.Node) {
			if version = strings.TrimSpace(n.GetToken().Value); version != "1" {
				s.failAt(n, fmt.Sprintf("version %q is not known", yamldoc.Printable(version)), "write: version: 1")
			}
		},
		"name":        func(n ast.Node) { f.Name = s.word(n, "name") },
		"description": func(n ast.Node) { f.Description = s.word(n, "description") },
		"inputs":      func(n ast.Node) { s.inputs(f, n) },
		"env":         func(n ast.Node) { f.Env = s.words(n, "env") },
		"defaults":    func(n ast.Node) { s.defaults(f, n) },
		"budget":      func(n ast.Node) { f.Budget = s.budget(n) },
		"workspace":   func(n ast.Node) { s.workspace(f, n) },
		"agents":      func(n ast.Node) { s.agents(f, n) },
		"limits":      func(n ast.Node) { s.limits(f, n) },
		"steps":       func(n ast.Node) { s.steps(f, n) },
		"outputs": func(n ast.Node) {
			s.named(n, "outputs", func(name string, _, v ast.Node) {
				f.Outputs = append(f.Outputs, &Output{name, s.textOf(v, "output "+name)})
			})
		},
	})
	if version == "" {
		s.fail(place{1, 1}, "the pipeline says no version", "begin it with: version: 1")
	}
	if f.Name == "" {
		s.fail(place{1, 1}, "the pipeline has no name", "write for example: name: triage")
	}
	if len(f.Steps) == 0 && len(s.problems) == 0 {
		s.fail(place{1, 1}, "the pipeline has no steps", "")
	}
}

// inputTypes are the types of inputs.
func inputTypes() []string {
	return []string{"string", "integer", "number", "boolean", "path", "file", "list", "object"}
}

func (s *source) inputs(f *File, node ast.Node) {
	s.named(node, "inputs", func(name string, _, v ast.Node) {
		in := &Input{Name: name, Type: "string"}
		var def ast.Node
		s.mapping(v, "input "+name, keyed{
			"type":        func(n ast.Node) { in.Type, in.at = s.oneOf(n, "type", inputTypes()...), at(n) },
			"description": func(n ast.Node) { in.Description = s.word(n, "description") },
			"required":    func(n ast.Node) { in.Required = s.flag(n, "required") },
			"default":     func(n ast.Node) { def = n },
		})
		if def != nil && in.Type != "" {
			in.Default = s.constant(def, "the default of "+name)
			if _, err := in.check(in.Default); err != nil {
				s.failAt(def, "default: "+err.Error(), "")
			}
		}
		f.Inputs = append(f.Inputs, in)
	})
}

func (s *source) flag(node ast.Node, what string) bool {
	b, ok := node.(*ast.BoolNode)
	if !ok {
		s.mismatch(node, what, "true or false", "")
		return false
	}
	return b.Value
}

func (s *source) defaults(f *File, node ast.Node) {
	s.mapping(node, "defaults", keyed{
		"model":   func(n ast.Node) { f.Defaults.Model = s.textOf(n, "model") },
		"timeout": func(n ast.Node) { f.Defaults.Timeout = s.duration(n, "timeout") },
		"retry":   func(n ast.Node) { f.Defaults.Retry = s.retry(n) },
	})
}

func (s *source) budget(node ast.Node) *Budget {
	b := &Budget{OnExceed: "stop", at: at(node)}
	s.mapping(node, "budget", keyed{
		"usd":       func(n ast.Node) { b.MicroUSD = s.dollars(n, "usd") },
		"tokens":    func(n ast.Node) { b.Tokens = int64(s.count(n, "tokens", 1)) },
		"wall":      func(n ast.Node) { b.Wall = s.duration(n, "wall") },
		"on_exceed": func(n ast.Node) { b.OnExceed = s.oneOf(n, "on_exceed", "stop", "pause") },
	})
	return b
}

func (s *source) workspace(f *File, node ast.Node) {
	s.mapping(node, "workspace", keyed{
		"root":  func(n ast.Node) { f.Workspace.Root = s.textOf(n, "root") },
		"trust": func(n ast.Node) { f.Workspace.Trust = s.oneOf(n, "trust", "full", "restricted") },
	})
}

func (s *source) agents(f *File, node ast.Node) {
	s.named(node, "agents", func(name string, _, v ast.Node) {
		a := &Agent{Name: name}
		s.mapping(v, "agent "+name, keyed{
			"system": func(n ast.Node) { a.System = s.word(n, "system") },
			"model":  func(n ast.Node) { a.Model = s.textOf(n, "model") },
			"tools":  func(n ast.Node) { a.Tools = s.words(n, "tools") },
		})
		f.Agents = append(f.Agents, a)
	})
}

func (s *source) limits(f *File, node ast.Node) {
	s.mapping(node, "limits", keyed{
		"concurrency": func(n ast.Node) { f.Limits.Concurrency = s.count(n, "concurrency", 1) },
		"rate": func(n ast.Node) {
			number, unit, _ := strings.Cut(s.word(n, "rate"), "/")
			per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
			var many int
			if _, err := fmt.Sscanf(number, "%d", &many); err != nil || many < 1 || per == 0 {
				s.failAt(n, "rate: this is no rate", "write for example 60/m: at most so many items begun each second (s), minute (m) or hour (h)")
				return
			}
			f.Limits.Rate, f.Limits.Per = many, per
		},
	})
}

// Unknown is the class of a tool's call that a crash cut off, and that may have run.
const Unknown = "unknown"

// retryClasses are what can be tried again.
func retryClasses() []string {
	return []string{"rate_limited", "overloaded", "timeout", "truncated", "schema", Unknown}
}

func (s *source) retry(node ast.Node) *Retry {
	r := &Retry{Max: 1, Backoff: "exponential", Initial: time.Second, On: []string{"rate_limited", "overloaded", "timeout", "truncated"}}
	s.mapping(node, "retry", keyed{
		"max":     func(n ast.Node) { r.Max = s.count(n, "max", 0) },
		"backoff": func(n ast.Node) { r.Backoff = s.oneOf(n, "backoff", "constant", "linear", "exponential") },
		"initial": func(n ast.Node) { r.Initial = s.duration(n, "initial") },
		"on": func(n ast.Node) {
			r.On = nil
			s.list(n, "on", func(v ast.Node) {
				if w := s.oneOf(v, "on", retryClasses()...); w != "" && !slices.Contains(r.On, w) {
					r.On = append(r.On, w)
				}
			})
		},
	})
	return r
}
