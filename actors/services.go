// Package actors holds the actors of the house, one file each: Supervisor, Session, Worker,
// ToolExecutor, Workspace and Limiter. They meet the stores, models and tools through
// Services, and each other through messages.
package actors

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
)

// Models finds the model behind a name. It is asked at every generation, so that clients are
// rebuilt at load and a missing one blocks only what needs it.
type Models interface {
	Resolve(name string) (*Resolved, error)
	Providers() []string // every name that Resolve may return as a provider
}

// Resolved is a model that can be asked.
type Resolved struct {
	Model    model.Model
	Provider string // whose permits a call needs
	Name     string // the provider's own name of the model
	Price    Price
	Context  int64  // tokens that its window holds; 0: not known
	XML      bool   // it has no function calling: tools are offered and called in text
	Fallback string // the model that is asked while the service of this one does not answer; "": none
	Free     bool   // no service runs it: it costs nothing, and needs no price
}

// Price is in US dollars per million tokens; zero when it is not known.
type Price struct{ Input, Output, Cached float64 }

// Agent is a profile: what a worker is told and what it may use.
type Agent struct {
	Name   string
	System string
	// Description says for other agents what it is for.
	Description string
	Model       string
	// Fallback names the models that are asked, in order, when the worker's own does not answer, wants a pause, or fails for good (its key is refused, or it
	// does not exist); nil: the one that the model itself names (Resolved.Fallback), which is not asked for the last two.
	Fallback []string
	Tools    []string // nil: every built-in tool; a name here also adds it to the Restricted toolset
	// Unknown is what becomes of its calls of which a crash left unknown whether they ran; "": what the tool says.
	Unknown policy.Unknown
	// Context names files of the primary workspace that stand in the system prompt, as they are when a turn begins;
	// nil: AGENTS.md. One that does not exist is left out, one over 32 KiB is named and not read.
	Context []string
	Rules   []string // policy rules for this agent alone
	// Handoff names the agents to which it may give its conversation (handoff).
	Handoff []string
	MCP     []string // names of the MCP servers whose tools it has, besides its own
	Fields  string   // a JSON schema: the fields that its sessions give their primary workspace, unless somebody else declared some
	Isolate bool     // workers of it, but for steps of pipelines, work in a copy of their own of the primary folder
	XML     bool     // tools are offered and called in text, whatever the model
	Limits  AgentLimits
}

// Services is what the actors share. It is built once per process and never changed; nothing
// in it holds a conversation.
type Services struct {
	Store   persistence.Store
	Models  Models
	Tools   *tools.Registry
	Unknown map[string]policy.Unknown // by tool: what becomes of calls of unknown outcome, before what agents and tools say
	Agents  map[string]Agent          // by name; "default" always exists
	Sandbox tools.Sandbox             // nil: commands are refused

	// Containers gives the sandbox of workspaces of mode container; nil: there are none. It may take seconds, and is asked off the
	// mailbox. Modes are the modes of workspaces that nobody says otherwise of, by their canonical addresses.
	Containers func(context.Context) (tools.Sandbox, error)
	Modes      map[string]string
	Offers     map[string][]string // the tools that workspaces offer, by canonical address (ConfiguredTools); others offer all

	Cloner Cloner         // of git repositories; nil: their addresses are refused
	Owners Owners         // of workspaces on other machines
	Copies Copies         // working copies of folders; nil: there are none
	Reach  []netip.Prefix // addresses that fetch may reach though they are not public
	Log    *slog.Logger
	Tracer trace.Tracer // nil: nobody collects traces
	// Measures counts model calls; nil: nobody does.
	Measures *Measures
	Limits   Limits
	Now      func() time.Time // of Clock, when that is set
	Clock    act.Clock        // nil: the machine's
	// ToolTimes holds how long a call of single tools may take, instead of what the tools say.
	ToolTimes map[string]time.Duration
	// ProviderLimits holds what single providers allow, by their names.
	ProviderLimits map[string]ProviderLimits
	// Budget is what each new session may spend at most; nil: as much as it was made with.
	Budget *messages.Budget
	// IdleAfter is how long a session rests before it leaves memory; 0: it stays. The next message brings it back.
	IdleAfter time.Duration
	// Trim is the age from which on records go that a compaction has left behind; 0: they stay.
	Trim time.Duration
	// Still keeps workers from beginning a turn and from going on with one. What ends a turn, or changes nothing but what
	// is written down, is done: for programs that look after a store without running agents.
	Still bool
	// Asks lets calls of every session wait for an approval, not only of those that say so.
	Asks bool
	// Asked is told of each approval, off the mailbox; it does not panic, and returns when the runtime stops. May be nil.
	Asked func(*messages.ApprovalView)
	// IgnoreTimers lets timers that are due wait for another process.
	IgnoreTimers bool
	Node         string // name of this process

	ServerName string // host of server workspaces
	DataDir    string // homes of sessions
	TempDir    string // temporary folders of calls
	Env        func(workspaceID string, grant []*messages.EnvVar, trust messages.Trust_Level) ([]string, error)
	Values     func(ctx context.Context, c Call) (map[any]any, error) // of the host program (row 94); may be nil
	// Variables gives further variables of a call's commands, for that call alone; they are secrets. May be nil.
	Variables func(ctx context.Context, c Call) (map[string]string, error)
	// Rules gives the standing rules for sessions in a folder ("" for none), whenever one comes into memory; may be nil.
	Rules  func(folder string) ([]string, error)
	Hooks  Hooks
	Redact Redactor // nil: nothing is secret
	// FieldEffects are what edits of fields may set off, by the names that schemas use.
	FieldEffects map[string]FieldEffect
	Fatal        func(error) // the store failed: nothing is answered any more
	Sent         func(any)   // sees every message between actors before it is taken, for tests; may be nil

	props  struct{ worker, executor, run, conversation *actor.Props }
	offers sync.Map // joined tool names -> []model.ToolDef: one slice for all workers with that toolset
	// equipments are those of agents, by their names: one for all workers of an agent.
	equipments sync.Map
	folders    *Folders
	limiters   sync.Map // provider -> *actor.PID
	away       awayJobs // that run on machines of workspaces' owners
	rules      ruleBook // that outlast a session
	fields     fielded  // which workspaces have fields
	shown      showings
	ledger     *tools.FileLedger
	crashed    bool // the last process on the data directory did not end in order
	pool       *act.Pool
	tokens     atomic.Uint64   // leases given since the start, of all workspaces: a token is never given twice
	running    *sync.WaitGroup // goroutines of ours
	stopped    chan struct{}   // closed when the house stops: nobody waits for an answer any more
	sys        *actor.ActorSystem
	rootPID    *actor.PID // the Supervisor's

	dataOnce sync.Once // see realData
	dataReal string
}

// Stop ends the waits for answers that may never come, of goroutines of the house and of its callers. It is for
// when the tree has stopped; Drain follows.
func (s *Services) Stop() {
	close(s.stopped)
	act.EndAsks(s.sys, messages.Fail(messages.CodeUnavailable, "the runtime has stopped", "start it again"))
}

// spawn runs fn off the mailbox and pipes what it returns to an actor; see act.Pipe. Close waits for it.
func (s *Services) spawn(sys *actor.ActorSystem, to *actor.PID, failed func(*act.Panic) any, fn func() any) {
	s.running.Add(1)
	s.pool.Go(func() {
		defer s.running.Done()
		act.Deliver(sys, to, failed, fn)
	})
}

// spawnTask is spawn for what is a task already.
func (s *Services) spawnTask(sys *actor.ActorSystem, to *actor.PID, t act.Task) {
	s.running.Add(1)
	s.pool.Go(func() {
		msg := act.Run(t)
		s.running.Done()
		sys.Root.Send(to, msg)
	})
}

// pause waits a while off the mailbox; false: the house stops.
func (s *Services) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stopped:
		return false
	}
}

// aside runs fn, which does not panic, off the mailbox. Close waits for it.
func (s *Services) aside(fn func()) {
	s.running.Add(1)
	s.pool.Go(func() {
		defer s.running.Done()
		fn()
	})
}

// job runs what a call left running. Close waits for it; that it ends, who made it sees to.
func (s *Services) job(fn func()) {
	s.aside(func() {
		if p := act.Guard(fn); p != nil {
			s.Log.Error("a job panicked", "err", p.Error(), "stack", p.Stack)
		}
	})
}

// Call names one tool call to the host program.
type Call struct{ Session, Worker, Agent, Tool, ExecID string }

// offer returns the definitions of tools. Workers with the same toolset share the slice, so
// that adapters encode it once.
func (s *Services) offer(names []string) []model.ToolDef {
	key := strings.Join(names, " ")
	if defs, ok := s.offers.Load(key); ok {
		return defs.([]model.ToolDef) //nolint:forcetypeassert // only this function stores
	}
	defs := make([]model.ToolDef, 0, len(names))
	for _, spec := range s.Tools.Defs(names) {
		defs = append(defs, model.ToolDef{Name: spec.Name, Description: spec.Description, Schema: spec.Schema})
	}
	if names == nil {
		defs = []model.ToolDef{}
	}
	kept, _ := s.offers.LoadOrStore(key, defs)
	return kept.([]model.ToolDef) //nolint:forcetypeassert // only this function stores
}

// agent returns a profile by name, the default one for "".
func (s *Services) agent(name string) (Agent, bool) {
	if name == "" {
		name = DefaultAgent
	}
	a, ok := s.Agents[name]
	return a, ok
}

// DefaultAgent is the profile of a worker that names none.
const DefaultAgent = "default"

// Names of the actors below the Supervisor, so that ids rather than PIDs are kept.
const root = "troupe"

// supervisor is the address of the root: one for all, so that who is behind it is looked up once.
func (s *Services) supervisor(sys *actor.ActorSystem) *actor.PID {
	if s.rootPID == nil {
		return sys.NewLocalPID(root)
	}
	return s.rootPID
}

func limiterName(provider string) string { return "limiter-" + provider }

func limiterPID(sys *actor.ActorSystem, provider string) *actor.PID {
	return sys.NewLocalPID(root + "/" + limiterName(provider))
}

// peers keeps the PIDs that an actor sends to again and again: a PID remembers the process behind it, and looks it up
// anew when that has ended. There are few of them.
type peers struct{ limiters, workspaces []peer }

type peer struct {
	name string
	pid  *actor.PID
}

// limiter is that of a provider, with one PID for all who ask.
func (p *peers) limiter(svc *Services, sys *actor.ActorSystem, provider string) *actor.PID {
	return recall(&p.limiters, provider, func() *actor.PID {
		pid, _ := svc.limiters.LoadOrStore(provider, limiterPID(sys, provider))
		return pid.(*actor.PID) //nolint:forcetypeassert // nothing else is stored
	})
}

func (p *peers) workspace(sys *actor.ActorSystem, id string) *actor.PID {
	return recall(&p.workspaces, id, func() *actor.PID { return workspacePID(sys, id) })
}

func recall(known *[]peer, name string, find func() *actor.PID) *actor.PID {
	for _, one := range *known {
		if one.name == name {
			return one.pid
		}
	}
	pid := find()
	*known = append(*known, peer{name, pid})
	return pid
}

func workspacePID(sys *actor.ActorSystem, id string) *actor.PID {
	return sys.NewLocalPID(root + "/" + workspaceName(id))
}
