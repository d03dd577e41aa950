// Package troupe runs language model agents as supervised actors with durable conversations.
//
// A Runtime holds a data directory and everything that runs on it. A Session is one
// conversation space in a folder; Run and Stream send it a prompt and return when the turn is
// done. What was acknowledged survives a kill at any moment: open the runtime on the same
// directory again and the turn goes on.
//
// The package keeps no globals, starts nothing at init, never exits the process and installs no signal handlers.
package troupe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/gitclone"
	"github.com/troupe-dev/troupe/tools/workcopy"
	"github.com/troupe-dev/troupe/workspace"
)

// Names of what lives elsewhere in the house and belongs to this API.
type (
	// Event is what happens in a session, as every surface shows it.
	Event = messages.Event
	// Usage counts tokens and cost.
	Usage = messages.Usage
	// Model answers requests; package model has the port, model/openai and model/script adapters.
	Model = model.Model
	// Models finds models by name, for programs with more than one.
	Models = actors.Models
	// ResolvedModel is what Models returns.
	ResolvedModel = actors.Resolved
	// Price is in US dollars per million tokens.
	Price = actors.Price
	// Agent is a profile: what a worker is told and what it may use.
	Agent = actors.Agent
	// Limits bound turns and calls.
	Limits = actors.Limits
	// AgentLimits are tighter ones for one agent.
	AgentLimits = actors.AgentLimits
	// ProviderLimits is what the service behind a model allows.
	ProviderLimits = actors.ProviderLimits
	// Redactor takes the secrets of the program out of texts.
	Redactor = actors.Redactor
	// Call names one tool call to Options.ToolContext.
	Call = actors.Call
	// Tool is one thing that an agent can do; see NewTool for plain functions.
	Tool = tools.Tool
	// Trust is how far a folder's agents go without asking.
	Trust = messages.Trust_Level
	// Hooks are functions of the program around each turn.
	Hooks = actors.Hooks
	// Turn names one turn to Hooks.
	Turn = actors.Turn
	// Clock is where the time of day comes from, and what wakes the runtime after a while.
	Clock = act.Clock
	// Unknown is what becomes of a call of which a crash leaves unknown whether it ran.
	Unknown = policy.Unknown
	// Clones bounds the clones of git repositories that are attached.
	Clones = gitclone.Options
	// Persist is when the facts of a session are written that nothing hangs on.
	Persist = messages.Persist_Policy
	// Failure is an expected refusal, with a code.
	Failure = messages.Failure
)

// ErrBusy is found by errors.Is in refusals of code busy: there is no room for another session or input (Failure.RetryAfterMs says when to come again), or
// a turn is open. What was refused has changed nothing.
var ErrBusy = messages.ErrBusy

// The levels of trust.
const (
	Full       = messages.Trust_FULL
	Restricted = messages.Trust_RESTRICTED
)

// The persistence policies.
const (
	PersistMessage = messages.Persist_MESSAGE // with each message: a crash loses nothing (default)
	PersistTask    = messages.Persist_TASK    // at the end of each turn: a crash may lose the turn under way, which runs again
	PersistManual  = messages.Persist_MANUAL  // with the next prompt, or Save: a crash may lose the newest turn, which runs again
)

// What becomes of a call whose outcome is unknown.
const (
	UnknownReport = policy.UnknownReport // the model is told
	UnknownRetry  = policy.UnknownRetry  // it is run again, with the same exec id
	UnknownAsk    = policy.UnknownAsk    // a person settles it: see Runtime.ResolveCall
	UnknownFail   = policy.UnknownFail   // the turn ends with an error
)

// Options configure a Runtime. The zero value keeps everything in memory and has no model.
type Options struct {
	Model   Model  // answers every name; or:
	Models  Models // finds a model by name
	DataDir string // durable state; "" keeps everything in memory

	// EncryptionKey, of 16, 24 or 32 bytes, encrypts the store in DataDir. nil: it is not encrypted. An existing
	// store is opened with the key that it was made with.
	EncryptionKey []byte
	// Reserve is the free disk space, in bytes, below which nothing new is begun in DataDir (code `full`); what was
	// begun goes on while 160 MiB are free, and waits then. 0: 256 MiB.
	Reserve uint64

	Store   persistence.Store  // instead of the one in DataDir; the caller closes it
	Tools   []Tool             // besides the built-in ones
	Unknown map[string]Unknown // by tool: what becomes of calls of unknown outcome; it goes before what agents and tools say
	Agents  []Agent            // profiles; one named "default" replaces the built-in one
	Sandbox tools.Sandbox      // for commands; nil: exec is refused

	// Containers gives the sandbox for workspaces of mode container, one of containers; nil: they are refused, unless Sandbox is such a
	// one. It is asked at first use, and whenever it failed before. Modes are the modes, "local" or "container", of workspaces that are attached without
	// one, by canonical address.
	Containers func(context.Context) (tools.Sandbox, error)
	Modes      map[string]string
	Offers     map[string][]string // tools that workspaces offer, by canonical address, also of folders below; SERVER:/sessions is what sessions keep

	Reach  []netip.Prefix // addresses that the tool fetch, and clones, may reach though they are not public
	Clones Clones         // what clones of repositories may cost; Reach and Sandbox go before its own
	Limits Limits

	Budget         Budget                    // that each new session keeps to, besides its own
	ProviderLimits map[string]ProviderLimits // by the names that Models gives
	// MCP are servers whose tools agents may use, by name. Those that an agent names are connected once for all, by New, which waits
	// for them; one that fails leaves its tools out, and MCPServers says why.
	MCP          map[string]MCPServer
	WithoutTools []string                 // names of built-in tools that nobody has
	ToolTimes    map[string]time.Duration // how long a call may take, instead of what the tool says
	// IdleAfter is how long a session rests before it leaves memory: no turn, no waiting input, nobody who watches.
	// The next message brings it back, and nothing is lost by it. 0: sessions stay in memory.
	IdleAfter time.Duration
	// Still keeps agents from beginning a turn and from going on with one: for programs that look after a data directory.
	Still bool
	// Retention is how long a session is kept after its last record; then it is deleted, when nothing is open in it.
	// It is looked at when the runtime starts, and daily. 0: for ever.
	Retention time.Duration
	// Trim is the age from which on those records of a conversation are removed for good that a compaction has left behind,
	// when a snapshot is written. The session is then neither forked nor exported. 0: they stay.
	Trim time.Duration
	// Brief is for programs that do one thing and end: the store leaves its housekeeping to longer-lived ones, while that can wait.
	Brief bool
	// IgnoreTimers lets timers that are due wait: for programs that are about one session, and wake no other.
	IgnoreTimers bool

	// ToolContext adds values of the program to the context of each call, off the mailbox.
	ToolContext func(ctx context.Context, c Call) (map[any]any, error)
	// Variables gives the commands of a call further variables, for that call alone, within 10 s: tokens that do not last. It is called off the mailbox, for
	// tools that run commands and those of the program. The values are secrets: they go before those of the project, and Redact must know how to learn them
	// (config.NewRedactor does). An error ends the call.
	Variables func(ctx context.Context, c Call) (map[string]string, error)
	// Approve answers calls that ask, off the mailbox and each in a goroutine of its own, and lets those of every session
	// wait for it (also sessions that do not say so; not those with NoInput). ctx ends with the runtime; what is unanswered then is put to
	// the next one. Others may answer first. nil: nobody is asked, except in sessions that say so.
	Approve func(ctx context.Context, a *Approval) Answer
	// Rules gives the standing policy rules for sessions in a folder (its address, as in local:/srv/code; "" for
	// none). It is asked off the mailbox whenever a session comes into memory; an error keeps the session out.
	Rules func(folder string) ([]string, error)
	// Hooks are called before and after each turn and each call of a tool, off the mailbox.
	Hooks Hooks
	// FieldEffects are what edits of workspaces' fields may set off, by the names that schemas give in x-effect.
	FieldEffects map[string]FieldEffect
	// Redact takes secrets out of everything that is written, shown and sent to a model; nil: nothing
	// is secret. config.NewRedactor makes one.
	Redact Redactor
	// Env is the environment of tool calls; nil: the allow-list of package tools.
	Env    func(workspaceID string, vars []*messages.EnvVar, trust Trust) ([]string, error)
	Logger *slog.Logger     // default: nothing is logged
	Now    func() time.Time // default: time.Now
	Clock  Clock            // instead of Now; for tests
	// TracerProvider gets a trace of each turn. Its own ids of spans are used, unless it was made with TraceIDs; closing it is the
	// program's business, after Close. nil: nothing is traced.
	TracerProvider trace.TracerProvider
	// MeterProvider counts calls of models under the names of OpenTelemetry's conventions; closing it is the program's business, after Close. nil: nothing is
	// counted.
	MeterProvider metric.MeterProvider
	ServerName    string // host of server workspaces; default "troupe"
}

// Runtime is one process's house of actors. It is safe for concurrent use.
type Runtime struct {
	sys      *actor.ActorSystem
	svc      *actors.Services
	audits   *actors.Audits
	root     *actor.PID
	traces   trace.TracerProvider // nil: nothing is traced
	ownStore bool
	dataDir  string
	began    time.Time

	asking     context.Context //nolint:containedctx // of Options.Approve: it ends with the runtime
	stopAsking context.CancelFunc

	projects sync.Mutex // one change of them at a time
	access   tokenBook

	retention     sync.WaitGroup
	stopRetention context.CancelFunc // nil: nothing is deleted for its age

	mcp []*connected // in the order of their names

	mu     sync.Mutex
	closed bool
	failed chan error
}

// New opens the data directory and starts the actors. ctx bounds the opening only.
func New(ctx context.Context, o Options) (*Runtime, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ServerName == "" {
		o.ServerName = workspace.DefaultServerName
	}
	if _, err := registryOf(&o, nil); err != nil {
		return nil, err
	}
	if err := checkUnknown(&o); err != nil {
		return nil, err
	}
	for _, a := range o.Agents {
		for _, text := range a.Rules {
			if _, err := policy.ParseRule(text); err != nil {
				return nil, fmt.Errorf("read the rules of agent %s: %w", a.Name, err)
			}
		}
		if err := actors.CheckFields(a, o.FieldEffects); err != nil {
			return nil, err
		}
	}
	rt := &Runtime{failed: make(chan error, 1), dataDir: o.DataDir, traces: o.TracerProvider, began: time.Now()}
	store, err := rt.openStore(ctx, &o)
	if err != nil {
		return nil, err
	}
	rt.connectMCP(ctx, &o)
	registry, err := registryOf(&o, rt.mcp)
	if err != nil {
		if rt.ownStore {
			err = errors.Join(err, store.Close())
		}
		rt.closeMCP()
		return nil, err
	}
	rt.svc, rt.audits = services(&o, store, registry), actors.NewAudits(store)
	rt.svc.Fatal = rt.fatal
	if o.Approve != nil {
		rt.asking, rt.stopAsking = context.WithCancel(context.WithoutCancel(ctx)) // Close ends it
		rt.svc.Asks, rt.svc.Asked = true, func(v *messages.ApprovalView) { rt.approve(o.Approve, v) }
	}
	if err := rt.settle(ctx); err != nil {
		rt.closeMCP()
		return nil, errors.Join(err, rt.closeStore())
	}
	workcopy.ResumeAll(filepath.Join(o.DataDir, "copies"), o.Logger)
	rt.sys = act.NewSystem(o.Logger)
	rt.root, err = actors.Start(rt.sys, rt.svc) //nolint:contextcheck // what is read there is read whole
	if err != nil {
		rt.closeMCP()
		return nil, errors.Join(fmt.Errorf("start the actors: %w", err), rt.closeStore())
	}
	if o.Retention > 0 && !o.Still {
		keeping, stop := context.WithCancel(context.WithoutCancel(ctx)) // Close ends it
		rt.stopRetention = stop
		rt.retention.Go(func() { rt.retain(keeping, o.Retention) })
	}
	return rt, nil
}

// registryOf are all tools of a runtime.
func registryOf(o *Options, servers []*connected) (*tools.Registry, error) {
	without := func(t Tool) bool { return slices.Contains(o.WithoutTools, t.Spec().Name) }
	own := append(tools.Builtin(), actors.NewDelegate(agentNames(o)), actors.NewHandoff(o.Agents), actors.NewSend())
	all, taken := append(slices.DeleteFunc(own, without), o.Tools...), make(map[string]string)
	for _, t := range all {
		if t != nil && t.Spec() != nil { // NewRegistry says what is wrong with others
			taken[t.Spec().Name] = "a tool of this program"
		}
	}
	for _, s := range servers {
		all = append(all, slices.DeleteFunc(s.offers(o.Logger, taken), without)...)
	}
	registry, err := tools.NewRegistry(all...)
	if err != nil {
		return nil, fmt.Errorf("register tools: %w", err)
	}
	return registry, nil
}

func agentNames(o *Options) (names []string) {
	for _, a := range o.Agents {
		names = append(names, a.Name)
	}
	return names
}

// checkUnknown refuses words that mean nothing: what is misspelt here would be found out after a crash.
func checkUnknown(o *Options) error {
	said := maps.Clone(o.Unknown)
	if said == nil {
		said = make(map[string]Unknown)
	}
	for _, a := range o.Agents {
		if a.Unknown != "" {
			said["of agent "+a.Name] = a.Unknown
		}
	}
	for what, u := range said {
		if _, ok := u.Outcome(); !ok {
			return fmt.Errorf("options: unknown outcomes %s: %q is none of report, retry, ask, fail", what, u)
		}
	}
	return nil
}

func (rt *Runtime) openStore(ctx context.Context, o *Options) (persistence.Store, error) {
	switch {
	case o.Store != nil && o.DataDir == "":
		return nil, errors.New("options: Store needs a DataDir for homes and temporary folders")
	case o.Store != nil:
		return o.Store, os.MkdirAll(o.DataDir, 0o700)
	case o.DataDir == "":
		dir, err := os.MkdirTemp("", "troupe-")
		if err != nil {
			return nil, fmt.Errorf("make a temporary data directory: %w", err)
		}
		o.DataDir, rt.ownStore = dir, true
		return memory.New(), nil
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory %q: %w", o.DataDir, err)
	}
	o.DataDir, rt.dataDir, rt.ownStore = dir, dir, true
	s, err := badger.Open(ctx, badger.Options{Dir: StoreDir(dir), Logger: o.Logger, Failed: rt.fatal, EncryptionKey: o.EncryptionKey, RefuseTurnsBelow: o.Reserve, Brief: o.Brief})
	if err != nil {
		return nil, fmt.Errorf("open data directory %s: %w", dir, err)
	}
	return s, nil
}

// StoreDir is where the store of a data directory lies.
func StoreDir(dataDir string) string { return filepath.Join(dataDir, "store") }

func services(o *Options, store persistence.Store, registry *tools.Registry) *actors.Services {
	agents := map[string]Agent{actors.DefaultAgent: defaultAgent()}
	for _, a := range o.Agents {
		agents[a.Name] = a
	}
	models := o.Models
	if models == nil {
		models = &oneModel{m: o.Model, providers: []string{"default"}}
	}
	env := o.Env
	if env == nil {
		base := tools.BaseEnv(os.Environ(), nil)
		env = func(_ string, vars []*messages.EnvVar, trust Trust) ([]string, error) {
			if len(vars) == 0 {
				return base, nil
			}
			return tools.MergeEnv(base, vars, trust)
		}
	}
	var budget *messages.Budget
	if o.Budget.bounds() {
		budget = o.Budget.message()
	}
	clones := o.Clones
	clones.Reach, clones.Sandbox = append(slices.Clone(o.Reach), clones.Reach...), o.Sandbox
	return &actors.Services{
		Cloner: gitclone.New(clones), Copies: workcopy.New(workcopy.Options{}),
		Store: store, Models: models, Tools: registry, Unknown: o.Unknown, Agents: agents, Sandbox: o.Sandbox, Containers: o.Containers, Modes: o.Modes, Offers: o.Offers, Reach: o.Reach, Log: o.Logger, Limits: o.Limits,
		Now: o.Now, Clock: o.Clock, FieldEffects: o.FieldEffects, Node: nodeName(), ServerName: o.ServerName, DataDir: o.DataDir, TempDir: filepath.Join(o.DataDir, "tmp"),
		Env: env, Values: o.ToolContext, Variables: o.Variables, Hooks: o.Hooks, Rules: o.Rules, IdleAfter: o.IdleAfter, Still: o.Still, IgnoreTimers: o.IgnoreTimers, Redact: o.Redact,
		ProviderLimits: o.ProviderLimits, ToolTimes: o.ToolTimes, Trim: o.Trim, Budget: budget, Tracer: tracer(o.TracerProvider), Measures: measures(o),
	}
}

func nodeName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// fatal reports that the store failed: nothing more is answered.
func (rt *Runtime) fatal(err error) {
	select {
	case rt.failed <- err:
	default:
	}
}

// ended says whether the runtime was closed: then nobody comes back.
func (rt *Runtime) ended() bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.closed
}

// Failed delivers the error after which the runtime answers nothing more: its store failed. Only
// the program decides to exit.
func (rt *Runtime) Failed() <-chan error { return rt.failed }

// Close stops the actors in order, then the store. Turns that are open stay open: they
// go on when the directory is opened again. It returns at the end of ctx at the latest.
func (rt *Runtime) Close(ctx context.Context) error {
	rt.mu.Lock()
	if rt.closed {
		rt.mu.Unlock()
		return nil
	}
	rt.closed = true
	rt.mu.Unlock()
	done := make(chan error, 1)
	if rt.stopAsking != nil {
		rt.stopAsking()
	}
	if rt.stopRetention != nil {
		rt.stopRetention()
	}
	go func() {
		rt.retention.Wait()
		err := rt.sys.Root.StopFuture(rt.root).Wait()
		rt.svc.Stop()
		drained := make(chan struct{})
		rt.svc.Drain(func() { close(drained) })
		<-drained
		rt.closeMCP()
		done <- errors.Join(err, rt.closeStore())
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("close the runtime: %w", context.Cause(ctx))
	}
}

func (rt *Runtime) closeStore() error {
	if !rt.ownStore || rt.svc == nil {
		return nil
	}
	err := rt.svc.Store.Close()
	if rt.dataDir == "" {
		err = errors.Join(err, os.RemoveAll(rt.svc.DataDir))
	}
	return err
}

// defaultAgent is the profile of a worker that names none.
func defaultAgent() Agent {
	return Agent{
		Name: actors.DefaultAgent,
		System: "You are an agent that works in a folder with tools. Look before you change anything, make the smallest change that " +
			"does what was asked, check it by running what there is to run, and report what you did and what you saw. " +
			"When a tool refuses, say so instead of working around it.",
	}
}
