package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/mcp"
	"github.com/troupe-dev/troupe/tools/sandbox"
	"github.com/troupe-dev/troupe/workspace"
)

// runtimeOptions is the configuration as the runtime takes it. Without work nobody runs commands,
// no sandbox is looked for, and nothing is refused for not being supported.
func (a *app) runtimeOptions(ctx context.Context, in opening, log *slog.Logger) (troupe.Options, error) {
	loaded, c := in.loaded, in.loaded.Config
	o := troupe.Options{
		Models: in.models, Redact: a.secrets, DataDir: c.Data.Dir, Logger: log, ServerName: c.Server.Name, Env: a.callEnv(in),
		Limits: waits(commonLimits(c.Limits), c), IdleAfter: c.Limits.Idle, Still: !in.work, Brief: !in.serve,
		IgnoreTimers:   !in.serve, // a command is about what it was told to do
		ProviderLimits: map[string]troupe.ProviderLimits{}, ToolTimes: map[string]time.Duration{}, Unknown: map[string]troupe.Unknown{},
		Containers: containers(loaded, c.Data.Dir),
	}
	if !in.alone { // the tour knows no configuration
		o.Rules = a.rulesOf
	}
	for name, p := range c.Providers {
		o.ProviderLimits[name] = troupe.ProviderLimits{
			Calls: unbounded(p.Limits.Concurrency), Requests: p.Limits.RequestsPerMinute, Tokens: p.Limits.TokensPerMinute,
		}
	}
	for name, t := range c.Tools {
		if t.Disabled {
			o.WithoutTools = append(o.WithoutTools, name)
		}
		o.ToolTimes[name] = t.Timeout
		if t.Unknown != "" {
			o.Unknown[name] = troupe.Unknown(t.Unknown)
		}
	}
	o.Retention, o.Trim, o.Budget = c.Data.Retention, c.Data.Trim, budgetOption(c.Budgets)
	o.Reserve = uint64(max(c.Data.Reserve, 1)) // never less than appends need
	var err error
	if o.EncryptionKey, err = loaded.StoreKey(ctx); err != nil {
		return o, err
	}
	switch c.Data.Store {
	case "memory":
		o.Store = memory.New()
	case "postgres":
		return o, notYet(loaded, "data.store", c.Data.Store)
	}
	if err := addAgents(&o, loaded); err != nil {
		return o, err
	}
	addServers(&o, c)
	var lost error // who works is refused
	o.Modes, o.Offers, lost = places(loaded)
	if !in.work {
		return o, nil
	}
	if err := servable(loaded); err != nil {
		return o, err
	}
	o.Reach = reach(loaded)
	if lost != nil {
		return o, lost
	}
	if o.Sandbox, err = detectSandbox(ctx, loaded, c.Data.Dir); err != nil {
		return o, err
	}
	o.Hooks, err = a.commandHooks(in, o.Sandbox, o.Env, log)
	if in.count != nil {
		o.Hooks = in.count(o.Hooks)
	}
	return o, err
}

// servable refuses a configuration that asks for what this version does not do, or has not.
func servable(loaded *config.Loaded) error {
	if problems := append(loaded.NotYet(), unknownTools(loaded)...); len(problems) > 0 {
		return problems
	}
	return nil
}

// unknownTools reports names of tools that there are not: a rule or a hook for one of them would guard nothing.
func unknownTools(loaded *config.Loaded) config.Problems {
	var known []string
	for _, t := range builtin() {
		known = append(known, t.Spec().Name)
	}
	var out config.Problems
	check := func(path, at, name string) {
		if slices.Contains(known, name) || ofServer(loaded.Config, name) {
			return
		}
		p := &config.Problem{What: fmt.Sprintf("%s%s: there is no tool %q", path, at, name), Path: path, Origin: loaded.Origin(path), Fix: "troupe tool ls lists them"}
		if near := config.Near(name, known); len(near) > 0 {
			p.Fix = "did you mean " + strings.Join(near, " or ") + "?"
		}
		out = append(out, p)
	}
	for _, name := range slices.Sorted(maps.Keys(loaded.Config.Tools)) {
		check("tools."+name, "", name)
	}
	for _, name := range loaded.Config.Hooks.Tools {
		check("hooks.tools", "", name)
	}
	rules := func(path string, all []config.Rule) {
		for i, r := range all {
			if r.Tool != "*" && !strings.HasPrefix(r.Tool, "@") { // all tools, and all of a kind
				check(path, fmt.Sprintf("[%d]", i), r.Tool)
			}
		}
	}
	rules("approvals.rules", loaded.Config.Approvals.Rules)
	for _, agent := range slices.Sorted(maps.Keys(loaded.Config.Agents)) {
		for _, name := range loaded.Config.Agents[agent].Tools {
			check("agents."+agent+".tools", "", name)
		}
		rules("agents."+agent+".policy.rules", loaded.Config.Agents[agent].Policy.Rules)
	}
	for _, place := range slices.Sorted(maps.Keys(loaded.Config.Workspaces)) {
		for _, name := range loaded.Config.Workspaces[place].Tools {
			check("workspaces."+place+".tools", "", name)
		}
	}
	return out
}

// ofServer says whether a name may be that of an MCP server's tool: which there are is known once the server is connected.
func ofServer(c *config.Config, name string) bool {
	for server := range c.MCP {
		if strings.HasPrefix(name, mcp.Prefix(server)) {
			return true
		}
	}
	return false
}

// commonLimits are those of every turn. 0 stands for no limit in the configuration, and for the default
// in the runtime.
func commonLimits(l config.Limits) troupe.Limits {
	out := troupe.Limits{
		Steps: int(l.Steps), Wall: l.Turn, Repeats: int(l.Repeats), Sessions: int(l.Sessions), Workers: int(l.Workers), Queue: int(l.Queue), Jobs: int(l.Jobs), Children: int(l.Children),
		CompactAt: int(l.CompactAt), CompactKeep: int(l.CompactKeep), Handoffs: orNone(l.Handoffs), Sends: orNone(l.Sends), Unasked: orNone(l.Unasked), Outbox: orNone(l.Outbox), Spoken: int(l.Spoken),
	}
	if l.Jobs == 0 {
		out.Jobs = -1
	}
	if l.Children == 0 {
		out.Children = -1
	}
	if l.Steps == 0 {
		out.Steps = -1
	}
	if l.Turn == 0 {
		out.Wall = -1
	}
	return out
}

// waits adds how long a turn waits for people.
func waits(l troupe.Limits, c *config.Config) troupe.Limits {
	l.Hold, l.Approval, l.Owner = c.Lease.Hold, c.Approvals.Timeout, c.Lease.Grace
	if l.Owner == 0 {
		l.Owner = -1 // not at all
	}
	if l.Hold == 0 {
		l.Hold = -1 // given back at once
	}
	return l
}

// unbounded is a number of calls at the same time; 0 is no limit.
func unbounded(n int64) int {
	if n == 0 {
		return math.MaxInt32
	}
	return int(n)
}

// orNone is a limit of which 0 allows nothing.
func orNone(n int64) int {
	if n == 0 {
		return -1
	}
	return int(n)
}

// addAgents adds the profiles.
func addAgents(o *troupe.Options, loaded *config.Loaded) error {
	for name, agent := range loaded.Config.Agents {
		own := troupe.Agent{Name: name, System: agent.System, Model: agent.Model, Unknown: troupe.Unknown(agent.Policy.Unknown), XML: agent.Protocol == "xml", Isolate: agent.Isolate, Description: agent.Description, Handoff: agent.Handoff, MCP: enabled(loaded.Config, agent.MCP), Limits: troupe.AgentLimits{
			Steps: int(agent.Limits.Steps), Wall: agent.Limits.Turn, Repeats: int(agent.Limits.Repeats), Children: int(agent.Limits.Children),
		}}
		own.Fallback = agent.Fallback
		if len(agent.Context) > 0 {
			own.Context = agent.Context
		}
		if len(agent.Tools) > 0 {
			own.Tools = agent.Tools
		}
		if agent.Fields != "" {
			schema, err := schemaFile(agent.Fields)
			if err != nil {
				return fmt.Errorf("agents.%s.fields: %w", name, err)
			}
			own.Fields = schema
		}
		var err error
		if own.Rules, err = ruleTexts(fmt.Sprintf("agents.%s.policy.rules", name), agent.Policy.Rules); err != nil {
			return err
		}
		o.Agents = append(o.Agents, own)
	}
	return nil
}

// addServers adds the MCP servers.
func addServers(o *troupe.Options, c *config.Config) {
	o.MCP = make(map[string]troupe.MCPServer)
	for name, s := range c.MCP {
		own := troupe.MCPServer{Command: s.Command, URL: s.URL, Timeout: s.Timeout, Headers: make(map[string]string)}
		for _, key := range slices.Sorted(maps.Keys(s.Env)) {
			own.Env = append(own.Env, key+"="+s.Env[key].Reveal())
		}
		for key, value := range s.Headers {
			own.Headers[key] = value.Reveal()
		}
		o.MCP[name] = own
	}
}

// enabled leaves out the servers that are disabled.
func enabled(c *config.Config, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return c.MCP[name].Disabled })
}

func notYet(loaded *config.Loaded, path, value string) error {
	return &exitError{code: exitConfig, what: fmt.Sprintf("%s: %s (%s) is not served yet", path, value, loaded.Origin(path)), hint: "leave it out for the default"}
}

// detectSandbox finds the back end of sandbox.exec. The data directory is shown to no command.
func detectSandbox(ctx context.Context, loaded *config.Loaded, hide ...string) (tools.Sandbox, error) {
	c := loaded.Config.Sandbox
	box, err := sandbox.Detect(ctx, sandbox.Mode(c.Exec), sandboxOptions(loaded, hide))
	var missing *sandbox.Unavailable
	switch {
	case errors.As(err, &missing):
		return nil, &exitError{code: exitConfig, what: fmt.Sprintf("sandbox.exec: %s (%s): %v", c.Exec, loaded.Origin("sandbox.exec"), missing), hint: missing.Hint, err: err}
	case err != nil:
		return nil, err
	case c.Network == "deny":
		return noNetwork{box}, nil
	}
	return box, nil
}

// containers finds the sandbox of mode container when it is asked for first, so that nobody waits for an engine that nobody wants.
func containers(loaded *config.Loaded, hide ...string) func(context.Context) (tools.Sandbox, error) {
	var mu sync.Mutex
	var found tools.Sandbox
	return func(ctx context.Context) (tools.Sandbox, error) {
		mu.Lock()
		defer mu.Unlock()
		if found != nil {
			return found, nil
		}
		box, err := sandbox.Detect(ctx, sandbox.Container, sandboxOptions(loaded, hide))
		switch {
		case err != nil:
			return nil, err
		case loaded.Config.Sandbox.Network == "deny":
			box = noNetwork{box}
		}
		found = box
		return found, nil
	}
}

// places are the modes and the tools of the section workspaces, by canonical address. One that is to be confined, or to offer less, and cannot be found
// is refused: under the name by which it is there it would not be.
func places(loaded *config.Loaded) (modes map[string]string, offers map[string][]string, err error) {
	modes, offers = make(map[string]string), make(map[string][]string)
	var problems config.Problems
	for _, name := range slices.Sorted(maps.Keys(loaded.Config.Workspaces)) {
		w := loaded.Config.Workspaces[name]
		addr, err := workspace.Parse(w.URI, loaded.Config.Server.Name)
		if dir, local := strings.CutPrefix(w.URI, workspace.LocalHost+":"); local || filepath.IsAbs(w.URI) {
			addr, _, err = workspace.Local(dir) // links followed, as where it is attached
		}
		switch {
		case err == nil:
			modes[addr.Canonical] = w.Mode
			if len(w.Tools) > 0 {
				offers[addr.Canonical] = w.Tools
			}
		case w.Mode == tools.ModeContainer || len(w.Tools) > 0:
			path := "workspaces." + name + ".uri"
			problems = append(problems, &config.Problem{
				What: fmt.Sprintf("%s: %q cannot be found, so that its mode and tools would not count: %v", path, w.URI, err),
				Path: path, Origin: loaded.Origin(path), Fix: "correct the address, or take the section out",
			})
		}
	}
	if len(problems) > 0 {
		return modes, offers, problems
	}
	return modes, offers, nil
}

// reach are the addresses of sandbox.fetch.
func reach(loaded *config.Loaded) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range loaded.Config.Sandbox.Fetch {
		if p, err := netip.ParsePrefix(text); err == nil { // it was checked when it was loaded
			all = append(all, p)
		}
	}
	return all
}

func sandboxOptions(loaded *config.Loaded, hide []string) sandbox.Options {
	c := loaded.Config.Sandbox
	return sandbox.Options{
		CacheDir: filepath.Join(loaded.Dirs.Cache, "sandbox"), Read: c.Read, Image: c.Image, Hide: hide, Reexec: true,
		NoGroups: c.Cgroups == "none",
		Limits: sandbox.Limits{
			Processes: int(c.Limits.Processes), Memory: int64(c.Limits.Memory), CPUs: int(c.Limits.CPUs),
			FileSize: int64(c.Limits.FileSize), Scratch: int64(c.Limits.Scratch),
		},
	}
}

// noNetwork gives no command the network, whatever it asks for (sandbox.network: deny). A sandbox
// that does not confine cannot keep that, and runs nothing.
type noNetwork struct{ tools.Sandbox }

// Unwrap is the sandbox whose commands get no network.
func (n noNetwork) Unwrap() tools.Sandbox { return n.Sandbox }

// Run runs a command without the network.
func (n noNetwork) Run(ctx context.Context, cmd tools.Command) (tools.Exit, error) {
	if !n.Confines() {
		return tools.Exit{}, errors.New("the configuration denies the network (sandbox.network), and there is no sandbox that could")
	}
	cmd.Network = false
	return n.Sandbox.Run(ctx, cmd)
}

// callEnv is the environment of tool calls. What env.inherit names is handed on only in a trusted
// folder, and only in the one that this process was started for when a folder's own file says so.
func (a *app) callEnv(in opening) func(string, []*messages.EnvVar, troupe.Trust) ([]string, error) {
	loaded, environ := in.loaded, a.environ()
	plain := append(tools.BaseEnv(environ, nil), in.env...)
	wide := append(tools.BaseEnv(environ, loaded.Config.Env.Inherit), in.env...)
	only := ""
	if loaded.Origin("env.inherit").Source == config.FromProject {
		if addr, _, err := a.folder(in.dir); err == nil {
			only = addr.ID()
		}
	}
	return func(workspaceID string, vars []*messages.EnvVar, trust troupe.Trust) ([]string, error) {
		base := plain
		if trust == troupe.Full && (only == "" || only == workspaceID) {
			base = wide
		}
		if len(vars) == 0 {
			return base, nil
		}
		return tools.MergeEnv(base, vars, trust)
	}
}

// environ is the process's environment as package tools takes it.
func (a *app) environ() []string {
	out := make([]string, 0, len(a.env))
	for name, value := range a.env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// configRules are the standing decisions of the configuration, as texts of package policy.
func configRules(loaded *config.Loaded) ([]string, error) {
	return ruleTexts("approvals.rules", loaded.Config.Approvals.Rules)
}

// ruleTexts writes rules as texts of package policy. path is where they stand.
func ruleTexts(path string, rules []config.Rule) ([]string, error) {
	var out []string
	for i, r := range rules {
		rule := policy.Rule{Tool: r.Tool, Arg: policy.Arg(r.Arg), Pattern: r.Pattern, Action: policy.Action(r.Action), Unknown: policy.Unknown(r.Unknown), Timeout: r.Timeout}
		text := rule.String()
		if r.Arg == "" && r.Pattern != "" { // what the pattern is about follows from the tool
			plain := policy.Rule{Tool: r.Tool, Action: rule.Action}.String()
			text = fmt.Sprintf("%s(%s)%s", plain, r.Pattern, strings.TrimPrefix(rule.String(), plain))
		}
		if _, err := policy.ParseRule(text); err != nil {
			return nil, &exitError{code: exitConfig, what: fmt.Sprintf("%s[%d]: %v", path, i, err), hint: "see troupe config show --origin", err: err}
		}
		out = append(out, text)
	}
	return out, nil
}
