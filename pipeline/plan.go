package pipeline

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/troupe-dev/troupe/internal/yamldoc"
	"github.com/troupe-dev/troupe/messages"
)

// Plan is a pipeline that was checked, with all that it runs.
type Plan struct {
	Root    *File
	Sources []*messages.PlanSource // the pipeline's own first
	Hash    []byte                 // of what the files say: comments and layout do not count

	files map[string]*File // by path, as steps name them from the root's folder
	from  map[*File]string // the path of each
	steps int              // of all of them
}

// Options say what is known besides the files.
type Options struct {
	Agents []string                             // of the configuration, besides those of the files; nil: any name may be one
	Tools  []string                             // that there are; nil: any name may be one
	Server func(name string) bool               // says whether a name that is none of Tools may be a tool all the same, of a server that is not connected yet; nil: none
	Takes  func(tool string) []byte             // the JSON schema of a tool's arguments; nil, and none: not known here
	Model  func(name string) (what, fix string) // refuses a model that there is not; nil: any name may be one
	begun  bool                                 // the plan is that of a run, and was checked when that began
	Load   func(path string) ([]byte, error)    // reads the file of a nested pipeline; nil: there are none
}

// maxNested is how many files a plan has at most, and maxSteps how many steps they have together: what each of them may name is all those before it.
const (
	maxNested = 32
	maxSteps  = 500
)

// Parse reads and checks a pipeline. Errors are Problems, but for files that cannot be read.
func Parse(name, text string, o Options) (*Plan, error) {
	p := &Plan{files: make(map[string]*File), from: make(map[*File]string)}
	f, err := p.add(name, text, o, nil)
	if err != nil {
		return nil, err
	}
	p.Root = f
	h := sha256.New()
	for _, src := range p.Sources {
		b, err := canonical(src.GetText())
		if err != nil {
			return nil, err
		}
		h.Write(b)
	}
	p.Hash = h.Sum(nil)
	return p, nil
}

// FromSources is Parse for a plan that was written down.
func FromSources(sources []*messages.PlanSource, o Options) (*Plan, error) {
	if len(sources) == 0 {
		return nil, errors.New("the plan of the run is empty")
	}
	o.Load = func(path string) ([]byte, error) {
		for _, s := range sources {
			if s.GetPath() == path {
				return []byte(s.GetText()), nil
			}
		}
		return nil, fmt.Errorf("%s is not in the plan", path)
	}
	return Parse(sources[0].GetPath(), sources[0].GetText(), o)
}

// add reads one file and those that it runs.
func (p *Plan) add(name, text string, o Options, above []string) (*File, error) {
	f, s := decode(name, text)
	p.files[name], p.from[f] = f, name
	p.Sources = append(p.Sources, &messages.PlanSource{Path: name, Text: text})
	if p.steps += len(f.Steps); p.steps > maxSteps && len(s.problems) == 0 {
		s.fail(f.Steps[0].at, fmt.Sprintf("with this file the pipeline has %d steps; it has at most %d", p.steps, maxSteps), "go over a list with foreach")
	}
	if len(s.problems) == 0 {
		check(f, s, o)
	}
	if len(s.problems) > 0 {
		return nil, s.problems
	}
	for _, st := range f.Steps {
		if st.Kind != NestedStep {
			continue
		}
		if err := p.nest(f, s, st, o, append(above, name)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// nest reads the file of a step that runs another pipeline.
func (p *Plan) nest(f *File, s *source, st *Step, o Options, above []string) error {
	full := p.nestedPath(f, st)
	if slices.Contains(above, full) {
		s.fail(st.at, fmt.Sprintf("step %q runs %s, which is under way already", st.ID, full), "a pipeline cannot run itself; to go round, use repeat")
		return s.problems
	}
	if p.files[full] == nil {
		if len(p.files) >= maxNested || o.Load == nil {
			s.fail(st.at, fmt.Sprintf("step %q: %s cannot be run from here", st.ID, full), fmt.Sprintf("a pipeline consists of at most %d files", maxNested))
			return s.problems
		}
		text, err := o.Load(full)
		if err != nil {
			s.fail(s.find(st.Nested, st.at), fmt.Sprintf("step %q: %s", st.ID, err), "pipeline: names a file, from the folder of the one that it stands in")
			return s.problems
		}
		if _, err := p.add(full, string(text), o, above); err != nil {
			return err
		}
	}
	given := &Tree{}
	if st.Args != nil {
		given = st.Args
	}
	for _, in := range p.files[full].Inputs {
		if !s.full() && in.Required && in.Default == nil && given.items[in.Name] == nil {
			s.fail(s.find(st.Nested, st.at), fmt.Sprintf("step %q gives %s no input %q", st.ID, full, in.Name), "add it below with:")
		}
	}
	for _, name := range given.keys {
		if f := p.files[full]; !s.full() && f.input(name) == nil {
			s.fail(given.at[name], fmt.Sprintf("step %q gives %s an input %q that it does not have", st.ID, full, name), yamldoc.DidYouMean(name, f.inputNames()))
		}
	}
	if len(s.problems) > 0 {
		return s.problems
	}
	return nil
}

func (p *Plan) nestedPath(f *File, st *Step) string {
	return path.Join(path.Dir(p.from[f]), st.Nested)
}

// canonical is what a file says, without comments and layout.
func canonical(text string) ([]byte, error) {
	v, err := decodeAny(text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// nested is the file that a step runs.
func (p *Plan) nested(f *File, st *Step) *File { return p.files[p.nestedPath(f, st)] }

// Vars are the variables that expressions of the plan may see.
func (p *Plan) Vars() (out []string) {
	for _, src := range p.Sources {
		for _, name := range p.files[src.GetPath()].Env {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// Budgeted says whether anything besides the pipeline as a whole has a budget of its own.
func (p *Plan) Budgeted() bool {
	for _, src := range p.Sources {
		f := p.files[src.GetPath()]
		if f != p.Root && f.Budget != nil || slices.ContainsFunc(f.Steps, func(st *Step) bool { return st.Budget != nil }) {
			return true
		}
	}
	return false
}

// Folder is the folder that the pipeline says for a run, from the one that it is run in; "" if it says none.
func (p *Plan) Folder(run *messages.RunStarted) (string, error) {
	s := NewState(Options{})
	if err := s.Apply(run, &messages.Record{}); err != nil || p.Root.Workspace.Root == nil {
		return "", err
	}
	d := &decider{s: s}
	return s.Plan.Root.Workspace.Root.string(d.base(s.top))
}

// Complete fills in what a run that was asked for leaves to its plan, and checks its inputs.
func (p *Plan) Complete(r *messages.RunStarted) error {
	given, err := decodeMap(r.GetInputsJson())
	if err != nil {
		return fmt.Errorf("read the inputs: %w", err)
	}
	inputs, err := p.Root.Fill(given, nil)
	if err != nil {
		return err
	}
	r.InputsJson, r.Name, r.PlanHash = encodeJSON(inputs), p.Root.Name, p.Hash
	return nil
}

// Bounds refuses models that the files name and that are files of the machine, where who asks may not name those. What an expression gives is looked at
// when it is there.
func (p *Plan) Bounds(bounded bool) error {
	for _, name := range p.Models() {
		if bounded && messages.ModelInFile(name) {
			return outOfBounds(name)
		}
	}
	return nil
}

func outOfBounds(name string) *messages.Failure {
	return messages.Fail(messages.CodeForbidden, "model "+name+" is a file of the server: it needs scope admin of the default tenant", "name a model of the configuration")
}

// Models are the models that the files name, as they are written.
func (p *Plan) Models() (out []string) {
	add := func(t *Text) {
		if t != nil {
			out = append(out, t.Raw)
		}
	}
	for _, src := range p.Sources {
		f := p.files[src.GetPath()]
		add(f.Defaults.Model)
		for _, a := range f.Agents {
			add(a.Model)
		}
		for _, st := range f.Steps {
			add(st.Model)
		}
	}
	return out
}

// NamesModels says whether every agent of the pipeline has a model by what the files say, or there are none.
func (p *Plan) NamesModels() bool {
	for _, src := range p.Sources {
		f := p.files[src.GetPath()]
		for _, st := range f.Steps {
			if (st.Kind == AgentStep || st.Kind == ParallelStep || st.Kind == GroupStep) && st.Model == nil && f.Defaults.Model == nil {
				return false
			}
		}
	}
	return true
}
