package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Step is a step whose output is a T.
type Step[T any] struct {
	p      *Pipeline
	id     string
	maybe  bool // it may be skipped
	failed bool // it may have failed, and have no output
}

// Stepper is a step of any type.
type Stepper interface {
	step() (id string, of *Pipeline)
}

func (s *Step[T]) step() (id string, of *Pipeline) {
	if s == nil {
		return "", nil
	}
	return s.id, s.p
}

func (s *Step[T]) at(what string) expression {
	dot := "."
	if s.maybe {
		dot = "?."
	}
	return expression{src: "steps." + s.id + dot + what, steps: []string{s.id}, of: s.p}
}

// Output is what the step gives.
func (s *Step[T]) Output() Ref[T] {
	e := s.at("output")
	e.maybe = s.failed
	return Ref[T](e)
}

// Status is "succeeded", or how else the step ended.
func (s *Step[T]) Status() Ref[string] { return Ref[string](s.at("status")) }

// Error is why it failed.
func (s *Step[T]) Error() Ref[string] { return Ref[string](s.at("error")) }

// Usage is what it has used, with all of its items.
func (s *Step[T]) Usage() Ref[Usage] { return Ref[Usage](s.at("usage")) }

// Conversation is what its agent and the model said, for another step to go on with.
func (s *Step[T]) Conversation() Ref[Lineage] { return Ref[Lineage](s.at("conversation")) }

// Lineage is a conversation up to a record.
type Lineage struct {
	Conversation string `json:"conversation"`
	Seq          uint64 `json:"seq"`
}

// Item is one of the items of a step that has several.
type Item[T any] struct {
	Key    string `json:"key"`
	Index  int    `json:"index"`
	Status string `json:"status"`
	Output T      `json:"output"`
	Error  string `json:"error"`

	Usage        Usage           `json:"usage"`
	Conversation *Lineage        `json:"conversation"` // nil: it had none
	Value        json.RawMessage `json:"value"`        // of the list, or who was asked
}

// Usage is what a step or an item has used.
type Usage struct {
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	CostUSD      float64 `json:"cost_usd"`
}

// Items are the items of a step that has several, those that failed among them.
func Items[T any](s *Step[[]T]) Ref[[]Item[T]] { return Ref[[]Item[T]](s.at("items")) }

// Rules hold for steps of every kind.
type Rules struct {
	After    []Stepper     // what it waits for, besides those whose values it uses
	When     Ref[bool]     // it is skipped when this is not true; the zero value: never
	Timeout  time.Duration // of one attempt
	Retry    *Retry
	Continue bool     // a failure does not fail the run; of an item, not the step
	Approve  *Approve // somebody is asked before
	Budget   *Budget  // of all its items and attempts together, out of the run's
}

// Retry says what is tried again. The zero values are those of docs/pipelines.md.
type Retry struct {
	Max     int
	Backoff string // constant, linear or exponential
	Initial time.Duration
	On      []string // rate_limited, overloaded, timeout, truncated, schema, unknown
}

func (r *Retry) doc() *retryDoc {
	if r == nil {
		return nil
	}
	return &retryDoc{Max: r.Max, Backoff: r.Backoff, Initial: span(r.Initial), On: r.On}
}

// Approve has calls of some tools ask, or, naming none, the step before it begins.
type Approve struct {
	Before  []string
	Message Template
	Timeout time.Duration
}

// Ask is what an agent is asked.
type Ask struct {
	Rules

	Agent        string // a profile; "": default
	Prompt       Template
	Model        string
	ModelOf      Ref[string]  // a model that the run tells, instead of Model
	Conversation Ref[Lineage] // to go on with; the zero value begins anew
	Schema       any          // what the answer has to fit, instead of the schema of T
	Repair       int          // how often an answer that does not fit is sent back

	Until    Ref[bool] // it is asked again until this holds, of This and Last; the zero value: once
	MaxTimes int       // at most; 0: 10

	Key         Value // ForEach: what tells the items apart; nil: a short text itself, of an object its id, key, name or path, else their place
	Concurrency int   // ForEach and Parallel: items under way at once
	Quorum      int   // ForEach and Parallel: how many have to succeed; 0: all, or with Continue any. Group: how many members have to be left; 0: one
}

// This is the output of a step that repeats, as Until sees it.
func This[T any]() Ref[T] { return Ref[T]{src: "output"} }

// Last is the output of the time before, in the prompt of a step that repeats. The first time there is none: see Or.
func Last[T any]() Ref[T] { return Ref[T]{src: "last"} }

// Agent asks an agent. Its answer is a text when T is a string, and otherwise JSON that fits the schema of T.
func Agent[T any](p *Pipeline, id string, a Ask) *Step[T] {
	d := &stepDoc{ID: id, Agent: a.Agent}
	if d.Agent == "" {
		d.Agent = "default"
	}
	return ask[T, T](p, d, a)
}

// Parallel asks several agents the same; Ask.Agent does not count.
func Parallel[T any](p *Pipeline, id string, agents []string, a Ask) *Step[[]T] {
	return ask[T, []T](p, &stepDoc{ID: id, Parallel: agents, Concurrency: a.Concurrency, Quorum: a.Quorum}, a)
}

// Group has several agents speak in a conversation that they share, in the order of their names, Ask.MaxTimes times each at most, or until
// Ask.Until holds of This. Each answer is a text. Member and Round are who speaks and in which round. Ask.Agent does not count.
func Group(p *Pipeline, id string, members []string, a Ask) *Step[[]string] {
	var uses expression
	d := &stepDoc{ID: id, Group: members, Rounds: a.MaxTimes, Quorum: a.Quorum}
	if a.Until.set() {
		d.Until = uses.use(a.Until)
	}
	a.Until = Ref[bool]{}
	d.Needs = uses.steps
	p.problem("step "+id, uses.err)
	return ask[string, []string](p, d, a)
}

// Member is the name of who speaks, in the prompt and in Until of a group.
func Member() Ref[string] { return Ref[string]{src: "member"} }

// Round is the round in which it speaks, from 1.
func Round() Ref[int] { return Ref[int]{src: "round"} }

// ForEach asks an agent once for each item of a list.
func ForEach[I, T any](p *Pipeline, id string, list Ref[[]I], each func(item Ref[I]) Ask) *Step[[]T] {
	a := itemOf(p, id, each)
	var uses expression
	d := &stepDoc{ID: id, Agent: a.Agent, ForEach: uses.use(list), Concurrency: a.Concurrency, Quorum: a.Quorum}
	if d.Agent == "" {
		d.Agent = "default"
	}
	if a.Key != nil {
		d.Key = uses.use(a.Key)
	}
	d.Needs = uses.steps
	p.problem("step "+id, uses.err)
	return ask[T, []T](p, d, a)
}

// itemOf is what is done for an item.
func itemOf[I, A any](p *Pipeline, id string, each func(item Ref[I]) A) (a A) {
	if each == nil {
		p.problem("step "+id, errors.New("the function that says what is done for each item is nil"))
		return a
	}
	return each(Ref[I]{src: "item"})
}

func ask[T, Out any](p *Pipeline, d *stepDoc, a Ask) *Step[Out] {
	uses := expression{steps: d.Needs}
	d.Prompt, d.Model = uses.template(a.Prompt), a.Model
	if a.ModelOf.set() {
		d.Model = "${{ " + uses.use(a.ModelOf) + " }}"
	}
	if a.Conversation.set() {
		d.Conversation = "${{ " + uses.use(a.Conversation) + " }}"
	}
	if a.Until.set() {
		d.Repeat = &repeatDoc{Until: uses.use(a.Until), Max: a.MaxTimes}
	}
	if t := reflect.TypeFor[T](); a.Schema != nil {
		d.Output = &outputDoc{Schema: a.Schema, Repair: a.Repair}
	} else if t.Kind() != reflect.String {
		schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{})
		if err != nil {
			uses.err = errors.Join(uses.err, fmt.Errorf("no schema can be made of %s: %w", t, err))
		}
		d.Output = &outputDoc{Schema: schema, Repair: a.Repair}
	}
	return finish[Out](p, d, a.Rules, uses)
}

// Tool calls a tool. The arguments may be values of the run, and Texts.
func Tool(p *Pipeline, id, tool string, args map[string]any, r Rules) *Step[string] {
	var uses expression
	with, _ := uses.tree(args).(map[string]any)
	return finish[string](p, &stepDoc{ID: id, Tool: tool, With: with}, r, uses)
}

// Question is what a person is asked.
type Question struct {
	Message   Template
	Show      Value    // nil: nothing
	Choices   []string // yes and no, if there are none
	Timeout   time.Duration
	OnTimeout string // one of the choices
}

// Human asks a person. The output is the choice.
func Human(p *Pipeline, id string, q Question, r Rules) *Step[string] {
	var uses expression
	h := &humanDoc{Message: uses.template(q.Message), Choices: q.Choices, Timeout: span(q.Timeout), OnTimeout: q.OnTimeout}
	if q.Show != nil {
		h.Show = uses.tree(q.Show)
	}
	return finish[string](p, &stepDoc{ID: id, Human: h}, r, uses)
}

// Run runs another pipeline. Its inputs are in with, its outputs are the output.
func Run(p *Pipeline, id string, other *Pipeline, with map[string]any, r Rules) *Step[map[string]any] {
	var uses expression
	args, _ := uses.tree(with).(map[string]any)
	return finish[map[string]any](p, &stepDoc{ID: id, Nested: p.runs(id, other), With: args}, r, uses)
}

// runs notes a pipeline that this one runs, and gives the path that it is found by.
func (p *Pipeline) runs(id string, other *Pipeline) string {
	if other == nil {
		p.problem("step "+id, errors.New("the pipeline that it runs is nil"))
		return ""
	}
	p.nested = append(p.nested, other)
	return other.path()
}

func finish[T any](p *Pipeline, d *stepDoc, r Rules, uses expression) *Step[T] {
	uses.belong(p)
	if r.When.set() {
		d.When = uses.use(r.When)
	}
	if r.Approve != nil {
		d.Approve = &approveDoc{Before: r.Approve.Before, Message: uses.template(r.Approve.Message), Timeout: span(r.Approve.Timeout)}
	}
	d.Timeout, d.Retry, d.Budget = span(r.Timeout), r.Retry.doc(), r.Budget.doc()
	if r.Continue {
		d.OnError = "continue"
	}
	d.Needs = uses.steps
	for _, s := range r.After {
		id, of := "", (*Pipeline)(nil)
		if s != nil {
			id, of = s.step()
		}
		switch {
		case id == "":
			uses.err = errors.Join(uses.err, errors.New("a step that it comes after is nil"))
		case of != p:
			uses.err = errors.Join(uses.err, fmt.Errorf("step %s, which it comes after, is one of pipeline %s", id, of.doc.Name))
		case !slices.Contains(d.Needs, id):
			d.Needs = append(d.Needs, id)
		}
	}
	p.problem("step "+d.ID, uses.err)
	p.doc.Steps = append(p.doc.Steps, d)
	return &Step[T]{p: p, id: d.ID, maybe: p.skippable(d), failed: r.Continue}
}

// skippable says whether a step may be skipped: by itself, or with all that it needs.
func (p *Pipeline) skippable(d *stepDoc) bool {
	if d.When != "" {
		return true
	}
	for _, need := range d.Needs {
		at := slices.IndexFunc(p.doc.Steps, func(s *stepDoc) bool { return s.ID == need })
		if at < 0 || !p.skippable(p.doc.Steps[at]) {
			return false
		}
	}
	return len(d.Needs) > 0
}

func (e *expression) template(t Template) string {
	for _, s := range t.steps {
		if !slices.Contains(e.steps, s) {
			e.steps = append(e.steps, s)
		}
	}
	e.err = errors.Join(e.err, t.err)
	e.belong(t.of)
	return t.raw
}
