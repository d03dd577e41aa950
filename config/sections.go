package config

import "time"

// Sandbox is the section sandbox.
type Sandbox struct {
	Exec    string   `yaml:"exec" default:"auto" enum:"auto,bwrap,landlock,container,none" doc:"How commands are confined; auto takes the strongest that works of bwrap, landlock, none; container needs podman or docker and an image."`
	Read    []string `yaml:"read" kind:"path" doc:"Folders that commands may read besides the workspace and the usual tool chains."`
	Network string   `yaml:"network" later:"allow" default:"ask" enum:"ask,allow,deny" doc:"Whether a command that asks for the network gets it."`
	Fetch   []string `yaml:"fetch" kind:"cidr" doc:"Address ranges that fetch may reach though they are not public, for example 10.1.0.0/16."`
	Image   string   `yaml:"image" doc:"Image for exec: container, with the project's tools in it. It must be there: nothing is fetched."`

	Cgroups string        `yaml:"cgroups" default:"auto" enum:"auto,none" doc:"Whether each command gets a control group of its own, which the kernel bounds, where one can be made; none: what it takes is counted by looking."`
	Limits  SandboxLimits `yaml:"limits" doc:"What one command and all that it starts may take."`
}

// SandboxLimits bound one command. 0 is the default.
type SandboxLimits struct {
	Processes int64 `yaml:"processes" default:"512" min:"1" max:"1000000" doc:"Processes at the same time, and four times as many threads."`
	Memory    Size  `yaml:"memory" default:"0" doc:"Memory together; 0: half of the machine's."`
	CPUs      int64 `yaml:"cpus" default:"0" min:"0" max:"100000" doc:"Processors' worth of time, in a control group or a container; 0: all there is."`
	FileSize  Size  `yaml:"file_size" default:"8GiB" doc:"The largest file that may be written."`
	Scratch   Size  `yaml:"scratch" default:"1GiB" doc:"/tmp, which is memory; not where it cannot be mounted."`
}

// Hooks is the section hooks.
type Hooks struct {
	BeforeTurn []string      `yaml:"before_turn" doc:"Before each turn: what they print is added to its system prompt; one that fails ends it."`
	AfterTurn  []string      `yaml:"after_turn" doc:"After each turn."`
	BeforeCall []string      `yaml:"before_call" doc:"Before each call of a tool: one that fails refuses it, and what it writes to standard error is the reason."`
	AfterCall  []string      `yaml:"after_call" doc:"After each call of a tool."`
	Tools      []string      `yaml:"tools" doc:"Tools whose calls have hooks; empty: all."`
	Timeout    time.Duration `yaml:"timeout" default:"30s" min:"1s" max:"1m" doc:"How long one of them may take; those of one turn or call together at most 1m."`
}

// AroundCalls says whether commands run before or after calls of tools.
func (h Hooks) AroundCalls() bool { return len(h.BeforeCall)+len(h.AfterCall) > 0 }

// Approvals is the section approvals.
type Approvals struct {
	Timeout       time.Duration `yaml:"timeout" default:"0s" doc:"How long a question waits for a person; 0s: for ever."`
	ClientTimeout time.Duration `yaml:"client_timeout" default:"300s" doc:"The same for a call that a client makes over the WebSocket without announcing that it shows questions; 0s: as any."`
	Rules         []Rule        `yaml:"rules" project:"deny" doc:"Standing decisions. Rules of all files count; any deny wins."`
}

// Rule decides calls that match it.
type Rule struct {
	Tool    string        `yaml:"tool" need:"yes" doc:"Tool, or * for all."`
	Arg     string        `yaml:"arg" enum:"path,command,host" doc:"Which argument the pattern is held against."`
	Pattern string        `yaml:"pattern" doc:"Glob over that argument; empty matches all."`
	Action  string        `yaml:"action" need:"yes" enum:"allow,ask,deny" doc:"The decision."`
	Scope   string        `yaml:"scope" later:"session,agent" instead:"agents.NAME.policy.rules for one agent, --allow or an answer that is remembered for one session" default:"always" enum:"session,agent,always" doc:"How far it reaches."`
	Timeout time.Duration `yaml:"timeout" default:"0s" doc:"How long a question of this rule waits, which has to be one that asks; 0s: approvals.timeout."`
	Unknown string        `yaml:"unknown" enum:"report,retry,ask,fail" doc:"What happens to a call that it is about when a crash left its outcome unknown; empty: as tools or agents say."`
}

// Lease is the section lease.
type Lease struct {
	Hold  time.Duration `yaml:"hold" default:"60s" doc:"How long a workspace stays locked while its holder waits for a person."`
	TTL   time.Duration `yaml:"ttl" later:"*" default:"30s" min:"1s" doc:"After this long without a sign of life a remote holder has lost its lock."`
	Grace time.Duration `yaml:"grace" default:"60s" doc:"How long a call waits for the owner of its workspace whose connection was lost."`
}

// Budget bounds what may be spent. 0 is no limit.
type Budget struct {
	USD      USD           `yaml:"usd" default:"0" project:"narrow" doc:"US dollars; needs a price for each model."`
	Tokens   int64         `yaml:"tokens" default:"0" project:"narrow" doc:"Tokens, input and output."`
	Calls    int64         `yaml:"tool_calls" default:"0" project:"narrow" doc:"Calls of tools that models ask for."`
	Wall     time.Duration `yaml:"wall" default:"0s" project:"narrow" doc:"Time of turns; waits for people are not counted."`
	Answer   int64         `yaml:"answer" default:"0" max:"1048576" doc:"Tokens set aside for each answer, where there is a budget; 0: 4096."`
	OnExceed string        `yaml:"on_exceed" default:"stop" enum:"stop,pause" doc:"End the turn, or wait for more budget."`
}

// Limits bound a session or an agent. 0 is no limit; for an agent, the common one.
type Limits struct {
	Steps   int64         `yaml:"steps" default:"0" project:"narrow" doc:"Model calls in one turn."`
	Turn    time.Duration `yaml:"turn" default:"0s" project:"narrow" doc:"Duration of one turn."`
	Repeats int64         `yaml:"repeats" default:"0" project:"narrow" doc:"Identical tool calls in a row, or rounds of two or three of them, with identical results, before a turn counts as stuck; so it does when twice as many steps in a row have failed."`
	Workers int64         `yaml:"workers" default:"0" project:"narrow" doc:"Agents of one session at the same time."`

	Sessions int64 `yaml:"sessions" default:"0" project:"deny" doc:"Sessions in memory at the same time; one more waits for one that rests to leave, or is refused as busy."`

	Depth int64 `yaml:"depth" later:"*" default:"0" project:"narrow" doc:"How deep agents may delegate: those who were delegated to may not."`
	Jobs  int64 `yaml:"jobs" default:"0" project:"narrow" doc:"Background jobs of one agent."`
	Queue int64 `yaml:"queue" default:"0" project:"narrow" doc:"Inputs that may wait for one agent, and turns that may wait in one shared conversation; one more is refused as busy."`

	Children int64 `yaml:"children" default:"0" project:"narrow" doc:"Agents that one agent may have delegated to at the same time; 0: agents do not delegate, and for one agent, the common number."`

	Handoffs int64 `yaml:"handoffs" default:"0" project:"narrow" doc:"How often one turn goes from agent to agent. Only the common one counts; 0: agents do not hand over."`
	Sends    int64 `yaml:"sends" default:"0" project:"narrow" doc:"Messages that one turn sends to other agents. Only the common one counts; 0: agents do not write to each other."`
	Unasked  int64 `yaml:"unasked" default:"0" project:"narrow" doc:"Messages taken, and tasks delegated in the background, without a person's word between. Only the common one counts; 0: none."`

	Outbox int64 `yaml:"outbox" default:"0" project:"narrow" doc:"Messages of one agent to others that have not arrived yet. Only the common one counts; 0: agents do not write to each other."`

	Spoken int64 `yaml:"spoken" default:"0" project:"narrow" doc:"Turns of one conversation that agents share, words from outside and turns that were cut off or taken back among them. Only the common one counts; 0: no limit."`

	CompactAt   int64 `yaml:"compact_at" default:"0" min:"0" max:"95" project:"narrow" doc:"Percent of a model's context at which the older turns are compacted before the next one; 0: 80."`
	CompactKeep int64 `yaml:"compact_keep" default:"0" min:"0" max:"80" project:"narrow" doc:"Percent of a model's context that the newest turns may fill and be kept as they were; 0: 30."`

	Idle time.Duration `yaml:"idle" default:"0s" project:"deny" doc:"How long a session rests before it leaves memory; the next message brings it back. Only the common one counts; 0s: it stays."`
}

// Cluster is the section cluster.
type Cluster struct {
	Enabled   bool     `yaml:"enabled" default:"false" doc:"Join other nodes."`
	Name      string   `yaml:"name" default:"troupe" doc:"Nodes of the same name find each other."`
	Etcd      []string `yaml:"etcd" doc:"Endpoints of etcd, which holds the membership."`
	Listen    string   `yaml:"listen" kind:"address" doc:"Address for other nodes."`
	Advertise string   `yaml:"advertise" kind:"address" doc:"The same as other nodes see it."`
	TLS       TLS      `yaml:"tls" doc:"Certificate between nodes; without it a cluster does not start."`
}

// Telemetry is the section telemetry.
type Telemetry struct {
	OTLPEndpoint string `yaml:"otlp_endpoint" kind:"url" doc:"Where traces are sent, over OTLP (HTTP), without /v1/traces; empty: where OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER say, else nowhere."`
	Metrics      bool   `yaml:"metrics" default:"true" doc:"Serve /metrics."`
}

// UI is the section ui.
type UI struct {
	Color string `yaml:"color" default:"auto" enum:"auto,always,never" project:"free" doc:"Colours on a terminal."`
	Theme string `yaml:"theme" later:"*" default:"auto" enum:"auto,dark,light" project:"free" doc:"Theme of the console."`
}

// commonLimits are the defaults of the section limits: as an agent's own limits, the same fields
// mean "the common ones" when 0, so that they cannot carry the numbers in their tags.
func commonLimits() map[string]string {
	return map[string]string{
		"limits.steps":    "200",
		"limits.turn":     "1h",
		"limits.repeats":  "5",
		"limits.workers":  "64",
		"limits.sessions": "10000",
		"limits.depth":    "1",
		"limits.children": "4",
		"limits.jobs":     "16",
		"limits.queue":    "1000",
		"limits.handoffs": "8",
		"limits.sends":    "8",
		"limits.unasked":  "32",
		"limits.outbox":   "32",
		"limits.spoken":   "10000",
		"limits.idle":     "10m",
	}
}
