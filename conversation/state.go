// Package conversation is the pure heart of a worker: facts in, conversation out, and what may
// come next. It starts nothing, waits for nothing and reads no clock; the Worker actor
// asks it what to do, makes that durable, and only then applies it here.
//
// The message invariant is held by construction. A model's answer and the results of its
// tool calls enter the history together, when the last call is finished, and a
// [Ready], which alone can render a prompt, exists only while no call is open.
package conversation

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// State is one conversation: the fold of a worker's journal. Its zero value is the state
// before the first fact. It is not safe for concurrent use: one Worker owns it.
type State struct {
	created *messages.WorkerCreated
	model   string
	system  string
	agent   string
	tools   []string // nil: the agent's own
	noMCP   bool     // the tools of its MCP servers are not offered
	seq     uint64
	epoch   uint64
	closed  bool
	atMs    int64 // of the newest record

	head []byte // record id of the newest record

	history kept              // finished exchanges only: never a dangling call
	sources []source          // of history: which record each message came from
	borders []border          // where each turn of the history ends
	chain   [sha256.Size]byte // over history, in order
	tokens  int               // of history, as estimated
	lead    int               // how many messages at its beginning stand for what was compacted

	forgets      bool                // what is compacted; else it is kept aside
	aside        []*messages.Message // what is no longer sent
	asideBorders []border            // where its turns end

	estimated, reported int64 // tokens of a request, and what its provider counted

	inputs  []*Input             // staged, in order of acceptance
	known   map[string]*accepted // every input id ever accepted
	turn    *Turn                // the open one
	last    *Turn                // the newest completed one
	turns   int
	usage   *messages.Usage
	files   map[string]map[string]string // workspace -> path -> sha256 of what was read
	timers  map[string]*Timer            // every one ever set
	panics  int                          // since the last progress
	deaths  int                          // of activations in an open turn since the last progress, the newest one's not counted
	fell    bool                         // the newest activation has said how it ended: in a panic, or in order
	barred  string                       // why it is quarantined; "" when it is not
	resumed int                          // activations

	bounds   []*messages.Bounds         // that handoffs left behind, its own and its parent's
	handed   bool                       // its agent is another one than it began with
	outbox   []*messages.OutboxEnqueued // not acknowledged, in order
	children []*messages.ChildSpawned   // that work in the background, and have not told what became of their task
	unasked  int                        // messages taken and tasks delegated in the background since anybody but a worker said something

	spent    *messages.Amounts        // of a budget, as settled
	reserved *messages.BudgetReserved // for the model call under way, or one that a crash cut off
}

// source is where a message stands in the journal.
type source struct {
	seq uint64 // of the record
	at  int    // of several from one record, which

	tokens int // as estimated
}

type border struct {
	end     int // index into history
	outcome messages.TurnCompleted_Outcome
	seq     uint64 // of the record that ended the turn
}

// accepted remembers an input, so that the same id gets the same answer.
type accepted struct {
	hash   []byte
	cursor uint64
	turn   string // "" while staged
	done   bool   // withdrawn or its turn completed
}

// Input is one accepted input that no turn has committed yet.
type Input struct {
	*messages.InputAccepted
	Seq  uint64
	AtMs int64

	late bool // of mode steer: the turn that it was to join is over
}

// Turn is one generation cycle: from its inputs to its outcome.
type Turn struct {
	ID        string
	Inputs    []*Input
	Leases    []*messages.LeaseToken
	StartedMs int64
	WorkedMs  int64 // that activations have spent on it, by their records: neither the time between two of them, nor a wait for a person's word on a call, its approval or more budget, nor a clock set back counts

	Steps     int // generations completed
	Attempts  int // of the step that is under way
	Gen       *messages.GenerationStarted
	Failed    *messages.GenerationFailed // of the newest attempt
	FailedMs  int64                      // when it failed
	Failures  int                        // attempts of the step that failed, crashes not counted
	Tries     Tries                      // what they were
	Calls     []*Call                    // of the newest generation, in call order
	AllCalls  []*Call                    // of the whole turn
	Gens      []*messages.GenerationCompleted
	Text      string // of the newest generation
	Finish    string
	FinalSeq  uint64
	Usage     *messages.Usage
	Scripted  bool
	Model     string
	Cancelled *messages.CancelRequested
	Compacted bool  // the history before it was compacted since it began
	BilledMs  int64 // of WorkedMs: settled
	Cut       bool  // the newest answer had less room than is usually set aside, for want of budget

	Suspended *messages.Suspended     // with what had arrived of an answer, until it is asked for again or the turn ends; else nil
	Completed *messages.TurnCompleted // nil while open
	DoneMs    int64
	DoneSeq   uint64

	heard     int // of the inputs, the first: they stand in the history
	mark      int // length of the history when the turn began
	assistant *messages.Message
	genSeqs   []uint64 // of Gens: their records

	suspendedSeq uint64 // record of Suspended
}

// Call is one tool call of a turn, from its plan to its result.
type Call struct {
	Plan       *messages.ToolPlanned
	Name       string
	Arguments  string // as it runs: the model's, or what the approver made of them
	Requested  *messages.ApprovalRequested
	Resolved   *messages.ApprovalResolved
	Dispatched *messages.ToolDispatched
	Answer     *messages.CallResolved // a person's newest word on an outcome that nobody knew
	Finished   *messages.ToolFinished
	AtMs       int64

	finishedSeq uint64 // record of Finished
	doubted     bool   // a person is asked what became of it
	redo        bool   // a person said to run it again
}

// Open says whether the call has no result yet.
func (c *Call) Open() bool { return c.Finished == nil }

// Cleared says whether nobody's answer stands between the call and its running: it needs no
// approval, or the one that was asked for was given.
func (c *Call) Cleared() bool {
	if !c.Plan.GetNeedsApproval() && c.Requested == nil {
		return c.Resolved == nil || c.Resolved.GetDecision() == messages.Decision_APPROVED
	}
	return c.Requested != nil && c.Resolved.GetDecision() == messages.Decision_APPROVED &&
		c.Resolved.GetApprovalId() == c.Requested.GetApprovalId()
}

// Program says whether program code made the call (row 90): it is no part of the history.
func (t *Turn) Program() bool { return len(t.Inputs) > 0 && t.Inputs[0].GetCall() != nil }

// OpenCalls returns the calls without a result, in call order.
func (t *Turn) OpenCalls() []*Call {
	var open []*Call
	for _, c := range t.Calls {
		if c.Open() {
			open = append(open, c)
		}
	}
	return open
}

// Pending says whether a call has no result.
func (t *Turn) Pending() bool { return slices.ContainsFunc(t.Calls, (*Call).Open) }

// OneOpen says whether exactly one call has no result.
func (t *Turn) OneOpen() bool {
	n := 0
	for _, c := range t.Calls {
		if c.Open() {
			n++
		}
	}
	return n == 1
}

// Call returns the call with an exec id, nil when the turn has none.
func (t *Turn) Call(execID string) *Call {
	for _, c := range t.AllCalls {
		if c.Plan.GetExecId() == execID {
			return c
		}
	}
	return nil
}

// ID is the worker's id and the conversation's (row 29).
func (s *State) ID() string { return s.created.GetWorkerId() }

// Session is the id of the session that the worker belongs to.
func (s *State) Session() string { return s.created.GetSessionId() }

// Parent is the worker that delegated to this one; "" when nobody did.
func (s *State) Parent() string { return s.created.GetParent() }

// Alias is what its agent is called where the worker was made; "" for the name of its profile.
func (s *State) Alias() string {
	if s.handed {
		return ""
	}
	return s.created.GetAlias()
}

// Rules are policy rules for this worker alone, and how long what its calls ask may wait, in ms, and why they ask.
func (s *State) Rules() (rules []string, waitMs int64, reason string) {
	return s.created.GetRules(), s.created.GetApprovalMs(), s.created.GetApprovalReason()
}

// Agent is the profile that later generations use.
func (s *State) Agent() string { return s.agent }

// FirstAgent is the profile that the conversation began with.
func (s *State) FirstAgent() string { return s.created.GetAgent() }

// Model is what later generations ask, as PROVIDER/NAME or an alias.
func (s *State) Model() string { return s.model }

// System is the agent's own prompt, without the workspace section.
func (s *State) System() string { return s.system }

// Tools lists the toolset set by ConfigChanged, nil for the agent's own.
func (s *State) Tools() []string { return s.tools }

// NoMCP says that ConfigChanged has switched the tools of the agent's MCP servers off.
func (s *State) NoMCP() bool { return s.noMCP }

// Seq is the newest record applied.
func (s *State) Seq() uint64 { return s.seq }

// At is when the newest record was written, in milliseconds since 1970.
func (s *State) At() int64 { return s.atMs }

// Exists says whether the stream held a WorkerCreated.
func (s *State) Exists() bool { return s.created != nil }

// Closed says whether the worker was deleted.
func (s *State) Closed() bool { return s.closed }

// Turn is the open turn, nil when there is none.
func (s *State) Turn() *Turn { return s.turn }

// Last is the newest completed turn, nil when there is none.
func (s *State) Last() *Turn { return s.last }

// Turns counts completed turns.
func (s *State) Turns() int { return s.turns }

// Usage sums what all generations used.
func (s *State) Usage() *messages.Usage { return addUsage(nil, s.usage) }

// Staged lists the inputs that no turn has begun with, in order.
func (s *State) Staged() []*Input { return append([]*Input(nil), s.inputs...) }

// Panics counts the worker's own panics since it last made progress.
func (s *State) Panics() int { return s.panics }

// Deaths counts how often the process has ended in the middle of the open turn since the worker last made progress, as
// far as a later activation has written it down.
func (s *State) Deaths() int { return s.deaths }

// Died says whether the newest activation, if it has ended, died in the middle of a turn: without a word of its own.
func (s *State) Died() bool { return s.turn != nil && !s.fell }

// Quarantined is why the worker must not go on until it is released; "" when it may.
func (s *State) Quarantined() string { return s.barred }

// progress forgets what went wrong before.
func (s *State) progress() { s.panics, s.deaths = 0, 0 }

// Answer returns what was said when an input id was accepted: the session cursor, whether the
// content is the same, and whether the id is known at all.
func (s *State) Answer(inputID string, hash []byte) (cursor uint64, same, known bool) {
	a := s.known[inputID]
	if a == nil {
		return 0, false, false
	}
	return a.cursor, string(a.hash) == string(hash), true
}

// SetCursor remembers the session cursor that an input was accepted at: stores assign it, so the
// record alone does not know it.
func (s *State) SetCursor(inputID string, cursor uint64) {
	if a := s.known[inputID]; a != nil {
		a.cursor = cursor
	}
}

// TurnOf returns the id of the turn that an input belongs to: "" while it is staged.
// known is false for an id that was never accepted, done says that nothing will come of it any more.
func (s *State) TurnOf(inputID string) (turn string, done, known bool) {
	a := s.known[inputID]
	if a == nil {
		return "", false, false
	}
	return a.turn, a.done, true
}

// KnownFiles returns the files of a workspace that this conversation has read or written,
// with the hash of what it saw, by path.
func (s *State) KnownFiles(workspace string) []*messages.FileHash {
	m := s.files[workspace]
	out := make([]*messages.FileHash, 0, len(m))
	for p, h := range m {
		out = append(out, &messages.FileHash{Path: p, Sha256: h})
	}
	slices.SortFunc(out, func(a, b *messages.FileHash) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	return out
}

// ContentHash is what tells two inputs with the same id apart.
func ContentHash(parts []*messages.Part, call *messages.ToolCall) []byte {
	h := sha256.New()
	opt := proto.MarshalOptions{Deterministic: true}
	var n [8]byte
	write := func(m proto.Message) {
		b, err := opt.Marshal(m)
		if err != nil {
			b = []byte(err.Error()) // invalid UTF-8: the text of the error tells it apart from valid content
		}
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, p := range parts {
		write(p)
	}
	if call != nil {
		write(call)
	}
	return h.Sum(nil)
}

func addUsage(sum, u *messages.Usage) *messages.Usage {
	if sum == nil {
		sum = &messages.Usage{}
	}
	sum.InputTokens += u.GetInputTokens()
	sum.OutputTokens += u.GetOutputTokens()
	sum.CachedTokens += u.GetCachedTokens()
	sum.ReasoningTokens += u.GetReasoningTokens()
	sum.CostMicroUsd += u.GetCostMicroUsd()
	return sum
}
