package pipeline

import (
	"time"
)

// File is one pipeline as it was written.
type File struct {
	Name, Description string

	Inputs    []*Input
	Env       []string // names of variables that expressions may see
	Defaults  Defaults
	Budget    *Budget
	Workspace Workspace
	Agents    []*Agent
	Limits    Limits
	Steps     []*Step
	Outputs   []*Output
}

// Input is a value that a run is given.
type Input struct {
	Name, Type  string // string, integer, number, boolean, path, file, list, object
	Description string
	Required    bool
	Default     any // of Type; nil: none
	at          place
}

// Defaults hold for every step that does not say otherwise.
type Defaults struct {
	Model   *Text
	Timeout time.Duration
	Retry   *Retry
}

// Budget bounds what a run or a step may use.
type Budget struct {
	MicroUSD, Tokens int64
	Wall             time.Duration
	OnExceed         string // stop | pause
	at               place
}

// Workspace is the folder that a run works in.
type Workspace struct {
	Root  *Text
	Trust string // full | restricted; "": as the run is told
}

// Agent is a profile that counts in this file.
type Agent struct {
	Name, System string
	Model        *Text
	Tools        []string // none: it has no tools
}

// Limits bound a whole run.
type Limits struct {
	Concurrency int           // items under way; 0: DefaultConcurrency
	Rate        int           // items begun Per; 0: unlimited
	Per         time.Duration //
}

// Output is one value that a run gives back.
type Output struct {
	Name  string
	Value *Text
}

// Kind is what a step does.
type Kind string

// The kinds of steps.
const (
	AgentStep    Kind = "agent"
	ParallelStep Kind = "parallel"
	GroupStep    Kind = "group"
	ToolStep     Kind = "tool"
	HumanStep    Kind = "human"
	NestedStep   Kind = "pipeline"
)

// Step is one node of the graph.
type Step struct {
	ID    string
	Kind  Kind
	Needs []string
	When  *Expr

	ForEach     *Expr
	As          string
	Key         *Expr
	Concurrency int
	Repeat      *Repeat

	Agent        string
	Parallel     []string
	Group        []string // who share a conversation, in the order in which they speak
	Rounds       int      // of a group, at most
	Until        *Expr    // of a group: nobody speaks any more when it holds after a turn
	Model        *Text
	Prompt       *Text
	Conversation *Expr
	Tool         string
	Args         *Tree // of a tool, or the inputs of a nested pipeline
	Human        *Human
	Nested       string // path of the file

	Schema  *Schema
	Repair  int // how often an answer that does not fit is sent back
	OnError string
	Quorum  int
	Retry   *Retry
	Timeout time.Duration
	Budget  *Budget
	Approve *Approve

	at place
}

// Fan says whether a step has several items.
func (s *Step) Fan() bool { return s.ForEach != nil || s.Kind == ParallelStep || s.Kind == GroupStep }

// Repeat runs a step again until something holds.
type Repeat struct {
	Until *Expr
	Max   int
}

// Retry says what is tried again, and when.
type Retry struct {
	Max     int
	Backoff string // constant | linear | exponential
	Initial time.Duration
	On      []string
}

// Human asks a person.
type Human struct {
	Message   *Text
	Show      *Tree
	Choices   []string
	Timeout   time.Duration
	OnTimeout string
}

// Approve is a gate: before calls of some tools, or, naming none, before the step begins.
type Approve struct {
	Before    []string
	Message   *Text
	Timeout   time.Duration
	OnTimeout string // approve | reject
}

// DefaultConcurrency is how many items of a run are under way at once when nothing is said.
const DefaultConcurrency = 8

// step finds a step by its id.
func (f *File) step(id string) *Step {
	for _, s := range f.Steps {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Agent finds a profile of the file.
func (f *File) Agent(name string) *Agent {
	for _, a := range f.Agents {
		if a.Name == name {
			return a
		}
	}
	return nil
}

func (f *File) stepIDs() []string {
	out := make([]string, len(f.Steps))
	for i, s := range f.Steps {
		out[i] = s.ID
	}
	return out
}
