package config

import "time"

// Config is the whole configuration. The zero value is not useful: Load fills the defaults.
//
// The tags are the contract: yaml names the key, doc describes it in the schema, default, enum,
// min and max bound it, project says what an untrusted folder may do with it (free: set it,
// model: choose one that runs, narrow: lower it, deny: add denying rules, new: define entries that
// nobody else has, nothing: not touch it, never: not even when trusted), later names the values that
// have no effect and are refused by NotYet (* for all but the default): who makes one count removes it there; instead says what does
// it in the place of one that will not come.
type Config struct {
	Model      string                  `yaml:"model" project:"model" doc:"Default model: PROVIDER/NAME or an alias of models. Also TROUPE_MODEL."`
	Server     Server                  `yaml:"server" doc:"The server: its name, address and access."`
	Data       Data                    `yaml:"data" doc:"Where conversations are kept, and how."`
	Log        Log                     `yaml:"log" doc:"Logging, to stderr unless a file is named."`
	Env        Inherit                 `yaml:"env" doc:"What commands inherit from the environment."`
	Providers  map[string]Provider     `yaml:"providers" doc:"Language model services, by name. OPENAI_API_KEY and OPENAI_BASE_URL define openai."`
	Models     map[string]Alias        `yaml:"models" doc:"Short names for models, with price and context size."`
	Agents     map[string]Agent        `yaml:"agents" project:"new" doc:"Agent profiles, by name."`
	Tools      map[string]ToolSettings `yaml:"tools" doc:"Settings of single tools, by tool name."`
	MCP        map[string]MCPServer    `yaml:"mcp" doc:"MCP servers whose tools agents may use, by name."`
	Workspaces map[string]Workspace    `yaml:"workspaces" doc:"What holds for workspaces wherever they are attached, by name."`
	Sandbox    Sandbox                 `yaml:"sandbox" doc:"Confinement of commands."`
	Hooks      Hooks                   `yaml:"hooks" doc:"Shell commands around turns and calls of tools, run in the workspace's sandbox with JSON on standard input."`
	Approvals  Approvals               `yaml:"approvals" doc:"Who is asked what, and for how long."`
	Lease      Lease                   `yaml:"lease" doc:"Locks on workspaces."`
	Budgets    Budget                  `yaml:"budgets" doc:"What each new session may spend, with all its workers; 0 is no limit."`
	Limits     Limits                  `yaml:"limits" doc:"Bounds that keep a session from running away; 0 is no limit."`
	Cluster    Cluster                 `yaml:"cluster" later:"*" doc:"Several nodes as one server."`
	Telemetry  Telemetry               `yaml:"telemetry" doc:"Traces and metrics. Nothing is sent unless an endpoint is set."`
	UI         UI                      `yaml:"ui" doc:"The terminal and the console."`
}

// Server is the section server.
type Server struct {
	Name   string           `yaml:"name" default:"troupe" kind:"host" doc:"Host of this server's workspace addresses; an address is ours only if it equals this exactly."`
	URL    string           `yaml:"url" kind:"url" doc:"Server that commands talk to; empty: this process. Also TROUPE_SERVER and --server."`
	Listen string           `yaml:"listen" default:"127.0.0.1:7777" kind:"address" doc:"Address of troupe serve; port 0 takes a free one. Anything but loopback needs TLS and a token."`
	Admin  string           `yaml:"admin" kind:"address" doc:"Address, on loopback, for profiles of the server (pprof); empty: none. Whoever is on this machine may read them."`
	Grace  time.Duration    `yaml:"grace" default:"10s" doc:"How long a server that stops lets turns end; what is open then goes on at the next start."`
	Conns  int64            `yaml:"connections" default:"4096" min:"1" max:"1000000" doc:"Connections to troupe serve at a time, and as many to the socket of its data directory; one more is closed."`
	PerIP  int64            `yaml:"connections_per_address" default:"256" min:"0" max:"1000000" doc:"The same from one address, of IPv6 from one /64; loopback is not counted, where a proxy sits. 0: no bound of its own."`
	TLS    TLS              `yaml:"tls" doc:"Certificate of the server, read anew when it changes; ca: whom commands that talk to a server trust besides the system's authorities."`
	Roots  []string         `yaml:"roots" kind:"path" doc:"Folders below which tokens without scope admin may attach workspaces."`
	Tokens map[string]Token `yaml:"tokens" doc:"Access tokens, by name, besides those of troupe token."`
}

// TLS names a certificate and its key, both PEM files. CA, where used, verifies the other side.
type TLS struct {
	Cert string `yaml:"cert" kind:"path" doc:"Certificate, PEM file."`
	Key  string `yaml:"key" kind:"path" doc:"Private key, PEM file."`
	CA   string `yaml:"ca" kind:"path" doc:"Authority that peers' certificates must come from, PEM file."`
}

// Token is one access token. Exactly one source is set; the token itself is never in a file of ours.
type Token struct {
	Env    string   `yaml:"token_env" only:"token" kind:"variable" doc:"Variable that holds the token."`
	File   string   `yaml:"token_file" only:"token" kind:"path" doc:"File that holds the token."`
	Scopes []string `yaml:"scopes" enum:"read,prompt,approve,admin" doc:"What it allows; none includes another one."`
	Tenant string   `yaml:"tenant" doc:"Whose sessions it sees; empty: the default tenant."`
}

// Data is the section data.
type Data struct {
	Dir     string `yaml:"dir" kind:"path" project:"never" doc:"Data directory; default: troupe below XDG_DATA_HOME. Also TROUPE_DATA and --data."`
	Store   string `yaml:"store" later:"postgres" default:"badger" enum:"badger,postgres,memory" doc:"Where journals live. memory forgets everything at exit."`
	DSNEnv  string `yaml:"dsn_env" later:"*" kind:"variable" doc:"Variable that holds the PostgreSQL connection string."`
	Persist string `yaml:"persist" default:"message" enum:"message,task,manual" doc:"When a conversation is written: after each message, at the end of a turn, or with the next prompt or save. Prompts and effects always are."`
	Reserve Size   `yaml:"reserve" default:"256MiB" doc:"Free disk space below which nothing new is begun; at least 160MiB."`

	Retention  time.Duration `yaml:"retention" default:"0s" project:"never" doc:"How long a session is kept after it was last written to, for example 90d; 0s: for ever."`
	Trim       time.Duration `yaml:"trim" default:"0s" project:"never" doc:"Age from which on records go that a compaction has left behind, for example 30d. Such a session is neither forked nor exported. 0s: they stay."`
	Encryption Encryption    `yaml:"encryption" project:"never" doc:"Key that the store is encrypted with; none: it is not."`
}

// Encryption names where the key of the store is. At most one source is set; the key itself is never in
// a file of ours.
type Encryption struct {
	KeyEnv     string `yaml:"key_env" only:"key" kind:"variable" project:"never" doc:"Variable that holds the key: 16, 24 or 32 bytes in base64 or hex."`
	KeyFile    string `yaml:"key_file" only:"key" kind:"path" project:"never" doc:"File that holds the key."`
	KeyCommand string `yaml:"key_command" only:"key" project:"never" doc:"Shell command that prints the key, within 10 s."`
}

// Log is the section log.
type Log struct {
	Level  string `yaml:"level" default:"warn" enum:"debug,info,warn,error" project:"free" doc:"Least level that is written."`
	Format string `yaml:"format" default:"text" enum:"text,json" project:"free" doc:"Form of a line."`
	File   string `yaml:"file" kind:"path" doc:"File instead of stderr."`
}

// Inherit is the section env.
type Inherit struct {
	Inherit []string `yaml:"inherit" doc:"Variables passed on to commands, besides PATH, LANG, LC_ALL and TZ."`
}

// Provider is a language model service that speaks the OpenAI protocol. At most one api_key
// source is set; a service with a base_url may do without.
type Provider struct {
	BaseURL       string         `yaml:"base_url" kind:"url" doc:"Address of the API, up to and without /chat/completions."`
	APIKeyEnv     string         `yaml:"api_key_env" only:"api_key" kind:"variable" doc:"Variable that holds the key."`
	APIKeyFile    string         `yaml:"api_key_file" only:"api_key" kind:"path" doc:"File that holds the key."`
	APIKeyCommand string         `yaml:"api_key_command" only:"api_key" doc:"Shell command that prints the key, within 10 s."`
	API           string         `yaml:"api" default:"chat" enum:"chat,responses" doc:"Which of the two APIs is spoken."`
	Limits        ProviderLimits `yaml:"limits" doc:"What the service allows."`
}

// ProviderLimits bound the calls to one provider, over all sessions. 0 is no limit.
type ProviderLimits struct {
	Concurrency       int64         `yaml:"concurrency" default:"64" doc:"Calls at the same time."`
	RequestsPerMinute int64         `yaml:"requests_per_minute" default:"0" doc:"Requests in a minute."`
	TokensPerMinute   int64         `yaml:"tokens_per_minute" default:"0" doc:"Tokens in a minute."`
	Timeout           time.Duration `yaml:"timeout" default:"10m" doc:"Longest time of one call."`
	Attempts          int64         `yaml:"attempts" default:"5" min:"1" max:"20" doc:"How often a request is sent that nothing comes of (5xx, no connection, cut off, timeout), the first time included, for one of the three attempts that a step has; it holds no place meanwhile. One that is refused for the number of requests (429) is repeated for as long as its turn has time, whatever this says."`
}

// Alias is a short name for a model, with what its provider does not tell.
type Alias struct {
	Provider string `yaml:"provider" doc:"Name of an entry of providers."`
	Name     string `yaml:"name" doc:"The provider's own name of the model."`
	Price    Price  `yaml:"price" doc:"Price of a million tokens."`
	Context  int64  `yaml:"context" default:"0" doc:"Context size in tokens; 0: unknown."`
	Fallback string `yaml:"fallback" doc:"Model that is asked while the service of this one does not answer, or wants a pause: an alias or PROVIDER/NAME."`
	Protocol string `yaml:"protocol" default:"native" enum:"native,xml" doc:"How tools are offered to it: xml (in the text) where it has no function calling."`
}

// Price is what a million tokens cost.
type Price struct {
	Input  USD `yaml:"input" default:"0" doc:"US dollars for a million input tokens."`
	Cached USD `yaml:"cached" default:"0" doc:"US dollars for a million cached input tokens."`
	Output USD `yaml:"output" default:"0" doc:"US dollars for a million output tokens."`
}

// Agent is the profile of an agent.
type Agent struct {
	Description string      `yaml:"description" project:"free" doc:"What it is for: other agents choose by it."`
	System      string      `yaml:"system" project:"free" doc:"System prompt."`
	Model       string      `yaml:"model" project:"model" doc:"Model; empty: the session's."`
	Fallback    []string    `yaml:"fallback" doc:"Models that are asked, in order, when its own does not answer, wants a pause, or fails for good (no such model, key refused); empty: the fallback of the model."`
	Context     []string    `yaml:"context" project:"free" doc:"Files of the folder that stand in the system prompt; empty: AGENTS.md."`
	Fields      string      `yaml:"fields" kind:"path" doc:"File with a JSON schema: the fields that its sessions give their primary workspace, unless others were declared there."`
	Tools       []string    `yaml:"tools" doc:"Tools it has; empty: those of the workspace's trust."`
	MCP         []string    `yaml:"mcp" doc:"MCP servers whose tools it has, besides its own."`
	Handoff     []string    `yaml:"handoff" doc:"Agents to which it may give its conversation; empty: to none."`
	Limits      Limits      `yaml:"limits" doc:"Tighter bounds for this agent; 0: the common ones."`
	Policy      AgentPolicy `yaml:"policy" doc:"Approvals and unknown outcomes of this agent."`
	Isolate     bool        `yaml:"isolate" default:"false" project:"free" doc:"It works in a copy of its own of the folder: the first agent of a session, those that are added, and those that are delegated to; not steps of pipelines. troupe diff and apply bring the changes back."`
	Protocol    string      `yaml:"protocol" default:"native" enum:"native,xml" project:"free" doc:"How tools are offered to the model; xml: in the text, for models without function calling."`
}

// AgentPolicy is what differs for one agent.
type AgentPolicy struct {
	Unknown string `yaml:"unknown" enum:"report,retry,ask,fail" doc:"What happens to a call whose outcome a crash left unknown; empty: report."`
	Rules   []Rule `yaml:"rules" project:"deny" doc:"Rules for this agent only."`
}

// ToolSettings change one tool.
type ToolSettings struct {
	Disabled bool          `yaml:"disabled" default:"false" doc:"Nobody has this tool."`
	Timeout  time.Duration `yaml:"timeout" default:"0s" doc:"Longest time of one call; 0s: the tool's own."`
	Unknown  string        `yaml:"unknown" enum:"report,retry,ask,fail" doc:"What happens to a call whose outcome a crash left unknown; empty: report."`
}

// MCPServer is an MCP server: a command (stdio) or a URL (streamable HTTP).
type MCPServer struct {
	Command  []string          `yaml:"command" only:"transport" doc:"Program and arguments; spoken to over stdio."`
	URL      string            `yaml:"url" only:"transport" kind:"url" doc:"Address; spoken to over HTTP."`
	Env      map[string]Secret `yaml:"env" doc:"Variables of the command. Never shown."`
	Headers  map[string]Secret `yaml:"headers" doc:"Headers of each request. Never shown."`
	Disabled bool              `yaml:"disabled" default:"false" doc:"Kept, but not used."`
	Timeout  time.Duration     `yaml:"timeout" default:"60s" doc:"Longest time of one call."`
}

// Workspace says how a place is worked in, in every session that has it. It attaches nothing.
type Workspace struct {
	URI      string   `yaml:"uri" doc:"Address, for example git:github.com/owner/repo or local:/srv/code."`
	Trust    string   `yaml:"trust" later:"*" instead:"troupe trust DIR, or --trust of troupe run" default:"restricted" enum:"full,restricted" doc:"Full runs every tool unasked."`
	ReadOnly bool     `yaml:"read_only" later:"*" instead:"tools of the place that only read, as tools: [read_file, list_files, glob, grep]" default:"false" doc:"No tool may change it."`
	Mode     string   `yaml:"mode" default:"local" enum:"local,container" doc:"Where its commands run: in the sandbox of sandbox.exec, or each in a container of sandbox.image."`
	Image    string   `yaml:"image" later:"*" instead:"sandbox.image" doc:"Image of the container."`
	Tools    []string `yaml:"tools" doc:"Tools offered there, and in folders below; empty: those of its trust. NAME:/sessions, with the server's name, stands for what sessions keep."`
}
