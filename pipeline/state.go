package pipeline

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Statuses of runs, steps and items.
const (
	Pending   = "pending"
	Running   = "running"
	Waiting   = "waiting" // for a person, or for the time of another attempt
	Succeeded = "succeeded"
	Failed    = "failed"
	Skipped   = "skipped"
	Cancelled = "cancelled"
)

// State is what the facts of a run come to. It belongs to whoever applies them.
type State struct {
	Plan      *Plan
	ID        string
	Started   *messages.RunStarted
	Finished  *messages.RunFinished // nil while it goes on
	Cancel    *messages.RunCancelled
	Changed   bool // the plan is not the one that the run began with
	Usage     *messages.Usage
	Seq       uint64 // of the newest record
	AtMs      int64  // of the first
	UpdatedMs int64
	Again     int   // how often it was begun again after it had ended
	AgainMs   int64 // when that was last; 0: never
	Scripted  bool  // a turn of it that ended was answered by a script

	top     *scope
	paths   map[string]*StepState // every step by its path
	options Options
	changes int             // of the plan
	items   int             // that there are, of all steps
	gone    *messages.Usage // of steps that a changed plan has no more
	bounded bool            // it may not name models that are files of the machine
	begun   []int64         // when items began, the newest ones, for the rate
}

// scope is one pipeline at work: the run's own, or that of an item of a step that runs another one.
type scope struct {
	file   *File
	prefix string // of the paths of its steps
	inputs map[string]any
	steps  map[string]*StepState
	owner  *ItemState // nil: the run's own
	depth  int        // how many pipelines are around it
	salt   string     // tells its steps from those of the same paths, of another attempt of its owner
}

// StepState is what a step has come to.
type StepState struct {
	Step   *Step
	Path   string
	Status string
	Items  []*ItemState
	Output any
	Error  string

	scope *scope
	pace  paced
	tally tally
	seen  map[string]any // what expressions see of it, once it is over and somebody has looked; nil: to be made
	again int            // items of a group that were there when its run was resumed last
	salt  string         // tells it from another step of its path, of the plan before
}

// name is what ids are made of: the path, and which of those it is that have had it.
func (ss *StepState) name() string { return ss.Path + ss.scope.salt + ss.salt }

// ItemState is what an item of a step has come to. A step without foreach has one.
type ItemState struct {
	Key       string
	Index     int
	Value     any
	Status    string
	Attempt   int
	Repairs   int
	Repair    string                    // the newest prompt, when it is not the first of the attempt
	Start     *messages.StepItemStarted // of its newest attempt; nil before
	Input     string                    // id of the newest prompt
	Asked     *messages.HumanAsked      // nil: nobody is asked
	Answer    *messages.HumanAnswered
	NotBefore int64 // ms: of the next attempt
	Deadline  int64 // ms: when the attempt has taken too long; 0: never
	Output    any
	Error     string
	Class     string
	Usage     *messages.Usage
	Lineage   *messages.Lineage

	step  *StepState
	inner *scope
}

// NewState is a run of which nothing is known yet. The options are those of the plan that its first fact holds.
func NewState(o Options) *State {
	o.begun = true
	return &State{Usage: &messages.Usage{}, options: o}
}

// Apply folds one more fact. Facts that fit nothing change nothing: the fold is total. The only errors are those of plans that
// this version does not read.
func (s *State) Apply(fact proto.Message, r *messages.Record) error {
	s.Seq, s.UpdatedMs = r.GetSeq(), r.GetAtUnixMs()
	switch f := fact.(type) {
	case *messages.RunStarted:
		s.AtMs = r.GetAtUnixMs()
		return s.start(f)
	case *messages.PlanChanged:
		return s.change(f)
	case *messages.RunResumed:
		if s.Finished != nil {
			s.Again, s.AgainMs = s.Again+1, r.GetAtUnixMs()
		}
		s.resume(r.GetAtUnixMs())
		s.unpaced()
	case *messages.RunActivated:
		s.unpaced()
	case *messages.RunCancelled:
		s.Cancel = f
	case *messages.RunFinished:
		s.Finished = f
	default:
		s.applyStep(fact, r)
	}
	return nil
}

func (s *State) start(f *messages.RunStarted) error {
	plan, err := FromSources(f.GetSources(), s.options)
	if err != nil {
		return fmt.Errorf("read the plan of run %s: %w", f.GetRunId(), err)
	}
	inputs, err := decodeMap(f.GetInputsJson())
	if err != nil {
		return fmt.Errorf("read the inputs of run %s: %w", f.GetRunId(), err)
	}
	s.Plan, s.ID, s.Started, s.bounded = plan, f.GetRunId(), f, f.GetBounded()
	s.top, s.paths = newScope(plan.Root, "", inputs), make(map[string]*StepState)
	s.place(s.top)
	return nil
}

func decodeMap(text string) (map[string]any, error) {
	v, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	m, _ := v.(map[string]any)
	if m == nil {
		m = make(map[string]any)
	}
	return m, nil
}

func newScope(f *File, prefix string, inputs map[string]any) *scope {
	sc := &scope{file: f, prefix: prefix, inputs: inputs, steps: make(map[string]*StepState)}
	for _, st := range f.Steps {
		sc.steps[st.ID] = &StepState{Step: st, Path: prefix + st.ID, Status: Pending, scope: sc}
	}
	return sc
}

// change takes over a changed file: steps that are there still keep what they have come to.
func (s *State) change(f *messages.PlanChanged) error {
	if s.top == nil {
		return nil
	}
	plan, err := FromSources(f.GetSources(), s.options)
	if err != nil {
		return fmt.Errorf("read the changed plan of run %s: %w", s.ID, err)
	}
	s.Plan, s.Changed, s.bounded = plan, true, f.GetBounded()
	s.changes++
	s.move(s.top, plan.Root)
	s.paths = make(map[string]*StepState)
	s.items = 0
	s.top.each(func(ss *StepState) {
		s.paths[ss.Path], ss.seen = ss, nil
		s.items += len(ss.Items)
	})
	return nil
}

func (s *State) move(sc *scope, f *File) {
	old := sc.steps
	sc.file, sc.steps, sc.inputs = f, make(map[string]*StepState), f.refill(sc.inputs)
	for _, st := range f.Steps {
		ss := old[st.ID]
		if ss == nil || ss.Step.another(st) {
			ss = &StepState{Path: sc.prefix + st.ID, Status: Pending, scope: sc, salt: fmt.Sprintf("#change %d", s.changes)}
		} else {
			delete(old, st.ID)
		}
		ss.Step = st
		sc.steps[st.ID] = ss
		for _, it := range ss.Items {
			if it.inner != nil {
				s.move(it.inner, s.Plan.nested(f, st))
			}
		}
	}
	for _, ss := range old {
		s.gone = addUsage(s.gone, ss.whole())
	}
}

// Gone is what steps have used that a changed plan has no more, or of another kind.
func (s *State) Gone() *messages.Usage { return s.gone }

// whole is what a step has used, with those of the pipelines that it runs.
func (ss *StepState) whole() *messages.Usage {
	sum := ss.Usage()
	for _, it := range ss.Items {
		if it.inner != nil {
			it.inner.each(func(in *StepState) { sum = addUsage(sum, in.Usage()) })
		}
	}
	return sum
}

// another says whether a step of the same id has items of another kind: what one has come to means nothing to the other.
func (s *Step) another(now *Step) bool {
	return s.Kind != now.Kind || (s.ForEach == nil) != (now.ForEach == nil) || (s.Repeat == nil) != (now.Repeat == nil) || !slices.Equal(s.Parallel, now.Parallel)
}

// Changes is how often the plan has changed.
func (s *State) Changes() int { return s.changes }

// Given is what the run was given, as its plan sees it.
func (s *State) Given() map[string]any {
	if s.top == nil {
		return nil
	}
	return s.top.inputs
}

// resume lets what failed be tried again, and keeps what succeeded.
func (s *State) resume(atMs int64) {
	s.Finished, s.Cancel = nil, nil
	if s.top != nil {
		s.top.resume(atMs)
	}
}

func (sc *scope) resume(atMs int64) {
	for _, ss := range sc.steps {
		ss.seen = nil
		if ss.Status == Succeeded || ss.Status == Failed && ss.Step.OnError == Continue && !ss.Step.Fan() {
			continue // that is how it ended
		}
		if ss.again = len(ss.Items); ss.Step.Kind == GroupStep && ss.again > 0 { // what was said stays said, and whoever spoke last speaks again if that failed
			ss.Status, ss.Error = Running, ""
			continue
		}
		again := ss.Status == Failed
		for _, it := range ss.Items {
			switch {
			case it.inner != nil && it.Status != Succeeded:
				it.inner.resume(atMs)
				it.to(Running)
				again = true
				if it.Deadline = 0; ss.Step.Timeout > 0 { // its time begins anew, else it would be over at once
					it.Deadline = atMs + ss.Step.Timeout.Milliseconds()
				}
			case it.Status == Failed || it.Status == Cancelled:
				it.to(Pending)
				it.Asked, it.Answer, again = nil, nil, true
				it.Repairs, it.NotBefore = 0, 0
			}
		}
		switch {
		case again && len(ss.Items) == 0:
			ss.Status, ss.Error = Pending, ""
		case again:
			ss.Status, ss.Error = Running, ""
		}
	}
}

// find is the step of a path, nil if there is none.
func (s *State) find(path string) *StepState { return s.paths[path] }

// place lets the steps of a scope be found by their paths.
func (s *State) place(sc *scope) {
	for _, ss := range sc.steps {
		s.paths[ss.Path] = ss
	}
}

// each visits every step, those of nested pipelines after the one that runs them.
func (sc *scope) each(fn func(*StepState)) {
	for _, st := range sc.file.Steps {
		ss := sc.steps[st.ID]
		fn(ss)
		if st.Kind != NestedStep {
			continue
		}
		for _, it := range ss.Items {
			if it.inner != nil {
				it.inner.each(fn)
			}
		}
	}
}

// Steps are all steps in the order of the files.
func (s *State) Steps() (out []*StepState) {
	if s.top != nil {
		s.top.each(func(ss *StepState) { out = append(out, ss) })
	}
	return out
}

// Item finds an item by its step's path and its place.
func (s *State) Item(path string, index int) *ItemState {
	ss := s.find(path)
	if ss == nil || index < 0 || index >= len(ss.Items) {
		return nil
	}
	return ss.Items[index]
}

// Step is what the item belongs to.
func (it *ItemState) Step() *StepState { return it.step }

// File is where the step stands.
func (ss *StepState) File() *File { return ss.scope.file }

// Asks says whether an item waits for the word of a person.
func (it *ItemState) Asks() bool { return it.Status == Waiting && it.Asked != nil && it.Answer == nil }

// open says whether an item is not over.
func (it *ItemState) open() bool {
	return it.Status == Pending || it.Status == Running || it.Status == Waiting
}

// over says whether a step has come to its end, one way or another.
func (ss *StepState) over() bool {
	return ss.Status == Succeeded || ss.Status == Failed || ss.Status == Skipped
}

// fatal says whether a step's failure ends its pipeline.
func (ss *StepState) fatal() bool {
	return ss.Status == Failed && (ss.Step.OnError != Continue || ss.Step.Fan())
}

// MostWait is the longest pause before another attempt.
const MostWait = 10 * time.Minute
