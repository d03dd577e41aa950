package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/troupe-dev/troupe/pipeline"
)

// Pipeline is a pipeline that is being built. It is not safe for use by several goroutines.
type Pipeline struct {
	doc    document
	nested []*Pipeline
	errs   []error
}

// New begins a pipeline. Its name is what runs of it are called.
func New(name string) *Pipeline {
	return &Pipeline{doc: document{Version: 1, Name: name}}
}

// Name is what it is called.
func (p *Pipeline) Name() string { return p.doc.Name }

// Describe says what the pipeline is for.
func (p *Pipeline) Describe(text string) { p.doc.Description = text }

// Profile is an agent of this pipeline. Without Tools it has none.
type Profile struct {
	System, Model string
	Tools         []string
}

// Profile adds an agent, and returns its name.
func (p *Pipeline) Profile(name string, a Profile) string {
	tools := a.Tools
	if tools == nil {
		tools = []string{}
	}
	add(p, &p.doc.Agents, "agent", name, profileDoc{System: a.System, Model: a.Model, Tools: tools})
	return name
}

// Defaults hold for every step that says nothing else.
type Defaults struct {
	Model   string
	Timeout time.Duration
	Retry   *Retry
}

// Defaults sets what holds for every step.
func (p *Pipeline) Defaults(d Defaults) {
	p.doc.Defaults = &defaultsDoc{Model: d.Model, Timeout: span(d.Timeout), Retry: d.Retry.doc()}
}

// Budget bounds what a run, or a step of one, may use; 0 is without bound.
type Budget struct {
	USD    float64
	Tokens int64
	Wall   time.Duration
	Pause  bool // wait for more instead of ending
}

// Budget bounds each run.
func (p *Pipeline) Budget(b Budget) { p.doc.Budget = b.doc() }

func (b *Budget) doc() *budgetDoc {
	if b == nil {
		return nil
	}
	d := &budgetDoc{USD: b.USD, Tokens: b.Tokens, Wall: span(b.Wall)}
	if b.Pause {
		d.OnExceed = "pause"
	}
	return d
}

// Workspace says which folder a run works in, and with which trust: "full", "restricted" or, as the run is told, "".
func (p *Pipeline) Workspace(root Template, trust string) {
	uses := expression{of: p}
	uses.template(root)
	p.problem("workspace", uses.err)
	if len(root.steps) > 0 {
		p.problem("workspace", errors.New("no step has run when it is settled"))
	}
	p.doc.Workspace = &workspaceDoc{Root: root.raw, Trust: trust}
}

// Concurrency bounds how many items of a run are under way at once.
func (p *Pipeline) Concurrency(most int) { p.limits().Concurrency = most }

// Rate bounds how many items are begun each second, minute or hour.
func (p *Pipeline) Rate(most int, per time.Duration) {
	unit, ok := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h"}[per]
	if !ok {
		p.problem("rate", fmt.Errorf("per %s: it is per second, minute or hour", per))
	}
	p.limits().Rate = fmt.Sprintf("%d/%s", most, unit)
}

func (p *Pipeline) limits() *limitsDoc {
	if p.doc.Limits == nil {
		p.doc.Limits = &limitsDoc{}
	}
	return p.doc.Limits
}

// Param is a value that each run has to be given. Its type is that of T: a text, whole number, number, truth value, list or object.
func Param[T any](p *Pipeline, name, description string) Ref[T] {
	return param[T](p, name, paramDoc{Description: description, Required: true})
}

// ParamOr is a value that a run may be given.
func ParamOr[T any](p *Pipeline, name, description string, otherwise T) Ref[T] {
	return param[T](p, name, paramDoc{Description: description, Default: otherwise})
}

// ParamMaybe is a value that a run may be given, and that is nothing otherwise: see Or.
func ParamMaybe[T any](p *Pipeline, name, description string) Ref[T] {
	r := param[T](p, name, paramDoc{Description: description})
	r.maybe = true
	return r
}

// PathParam is a path, which each run has to be given.
func PathParam(p *Pipeline, name, description string) Ref[string] {
	return param[string](p, name, paramDoc{Type: "path", Description: description, Required: true})
}

// FileParam is the text of a file, which the command line is given the path of.
func FileParam(p *Pipeline, name, description string) Ref[string] {
	return param[string](p, name, paramDoc{Type: "file", Description: description, Required: true})
}

func param[T any](p *Pipeline, name string, d paramDoc) Ref[T] {
	if d.Type == "" {
		d.Type = typeName(reflect.TypeFor[T]())
	}
	if d.Type == "" {
		p.problem("param "+name, fmt.Errorf("no parameter has type %s", reflect.TypeFor[T]()))
	}
	add(p, &p.doc.Inputs, "param", name, d)
	return Ref[T]{src: "inputs." + name, of: p}
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.Map, reflect.Struct:
		return "object"
	default:
		return ""
	}
}

// Env is a variable of the environment that the run is given.
func Env(p *Pipeline, name string) Ref[string] {
	p.doc.Env = append(p.doc.Env, name)
	return Ref[string]{src: "env." + name, of: p}
}

// Result is an output of a pipeline.
type Result[T any] struct{ name string }

// Return makes a value an output of the runs.
func Return[T any](p *Pipeline, name string, value Ref[T]) Result[T] {
	uses := expression{of: p}
	uses.use(value)
	p.problem("output "+name, uses.err)
	add(p, &p.doc.Outputs, "output", name, value.text())
	return Result[T]{name}
}

// From reads the output of a run that succeeded, of what RunView.OutputsJson says.
func (r Result[T]) From(outputs string) (v T, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(outputs), &all); err != nil {
		return v, fmt.Errorf("read the outputs of the run: %w", err)
	}
	raw, ok := all[r.name]
	if !ok {
		return v, fmt.Errorf("the run has no output %q", r.name)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("read output %q: %w", r.name, err)
	}
	return v, nil
}

// Plan checks the pipeline. Errors are what was built wrongly, or pipeline.Problems with places in the text that Source gives.
func (p *Pipeline) Plan(o pipeline.Options) (*pipeline.Plan, error) {
	text, err := p.Source()
	if err != nil {
		return nil, err
	}
	all := make(map[string]*Pipeline)
	if err := p.collect(all); err != nil {
		return nil, err
	}
	load := o.Load
	o.Load = func(path string) ([]byte, error) {
		if n := all[path]; n != nil {
			return n.Source()
		}
		if load != nil {
			return load(path)
		}
		return nil, fmt.Errorf("there is no pipeline %s", path)
	}
	return pipeline.Parse(p.path(), string(text), o)
}

func (p *Pipeline) path() string { return p.doc.Name + ".yaml" }

// collect finds all pipelines that this one runs, by their paths.
func (p *Pipeline) collect(all map[string]*Pipeline) error {
	switch known := all[p.path()]; known {
	case p:
		return nil
	case nil:
		all[p.path()] = p
	default:
		return fmt.Errorf("pipeline %s: there are two of this name", p.doc.Name)
	}
	for _, n := range p.nested {
		if err := n.collect(all); err != nil {
			return err
		}
	}
	return nil
}

// Source is the text of the pipeline: JSON, which is YAML. Those that it runs are not in it.
func (p *Pipeline) Source() ([]byte, error) {
	if len(p.errs) > 0 {
		return nil, fmt.Errorf("pipeline %s: %w", p.doc.Name, errors.Join(p.errs...))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(&p.doc); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", p.doc.Name, err)
	}
	return b.Bytes(), nil
}

func (p *Pipeline) problem(where string, err error) {
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %w", where, err))
	}
}

// add puts a value under a name that nothing has yet.
func add[V any](p *Pipeline, to *named[V], what, name string, v V) {
	if _, taken := to.values[name]; taken {
		p.problem(what+" "+name, errors.New("this name is taken"))
		return
	}
	if to.values == nil {
		to.values = make(map[string]V)
	}
	to.names = append(to.names, name)
	to.values[name] = v
}
