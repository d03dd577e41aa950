package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

// runtimeOptions is the configuration as the runtime takes it. Without work nobody runs commands,
// and no sandbox is looked for.
func (a *app) runtimeOptions(ctx context.Context, in opening, log *slog.Logger) (troupe.Options, error) {
	loaded, c := in.loaded, in.loaded.Config
	o := troupe.Options{
		Models: in.models, Redact: a.secrets, DataDir: c.Data.Dir, Logger: log, ServerName: c.Server.Name, Env: a.callEnv(in),
		Limits: troupe.Limits{
			Steps: int(c.Limits.Steps), Wall: c.Limits.Turn, CompactAt: int(c.Limits.CompactAt), CompactKeep: int(c.Limits.CompactKeep),
		},
		IdleAfter: c.Limits.Idle, Still: !in.work,
		IgnoreTimers: true, // a command is about what it was told to do
	}
	for name, agent := range c.Agents {
		own := troupe.Agent{Name: name, System: agent.System, Model: agent.Model, Unknown: troupe.Unknown(agent.Policy.Unknown)}
		if len(agent.Context) > 0 {
			own.Context = agent.Context
		}
		if len(agent.Tools) > 0 {
			own.Tools = agent.Tools
		}
		o.Agents = append(o.Agents, own)
	}
	o.Unknown = a.unknownOutcomes(loaded)
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
	if !in.work {
		return o, nil
	}
	o.Sandbox, err = detectSandbox(ctx, loaded, c.Data.Dir)
	return o, err
}

// unknownOutcomes is what tools.NAME.unknown says. A name that no built-in tool has may be of an MCP server; without one it is
// most likely misspelt, which would be found out after a crash.
func (a *app) unknownOutcomes(loaded *config.Loaded) map[string]troupe.Unknown {
	out := make(map[string]troupe.Unknown)
	for name, t := range loaded.Config.Tools {
		if t.Unknown == "" {
			continue
		}
		out[name] = troupe.Unknown(t.Unknown)
		known := slices.ContainsFunc(tools.Builtin(), func(b tools.Tool) bool { return b.Spec().Name == name })
		if !known && len(loaded.Config.MCP) == 0 {
			path := "tools." + name + ".unknown"
			a.note("troupe: warning: %s (%s): there is no tool %s", path, loaded.Origin(path), name)
		}
	}
	return out
}

func notYet(loaded *config.Loaded, path, value string) error {
	return &exitError{code: exitConfig, what: fmt.Sprintf("%s: %s (%s) is not served yet", path, value, loaded.Origin(path)), hint: "leave it out for the default"}
}

// detectSandbox finds the back end of sandbox.exec. The data directory is shown to no command.
func detectSandbox(ctx context.Context, loaded *config.Loaded, hide ...string) (tools.Sandbox, error) {
	c := loaded.Config.Sandbox
	if c.Exec == "landlock" || c.Exec == "container" {
		return nil, notYet(loaded, "sandbox.exec", c.Exec)
	}
	box, err := sandbox.Detect(ctx, sandbox.Mode(c.Exec), sandbox.Options{
		CacheDir: filepath.Join(loaded.Dirs.Cache, "sandbox"), Read: c.Read, Hide: hide, Reexec: true,
	})
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

// noNetwork gives no command the network, whatever it asks for (sandbox.network: deny). A sandbox
// that does not confine cannot keep that, and runs nothing.
type noNetwork struct{ tools.Sandbox }

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
	var out []string
	for i, r := range loaded.Config.Approvals.Rules {
		rule := policy.Rule{Tool: r.Tool, Arg: policy.Arg(r.Arg), Pattern: r.Pattern, Action: policy.Action(r.Action), Unknown: policy.Unknown(r.Unknown)}
		text := rule.String()
		if r.Arg == "" && r.Pattern != "" { // what the pattern is about follows from the tool
			text = fmt.Sprintf("%s %s(%s)", r.Action, r.Tool, r.Pattern)
			if r.Unknown != "" {
				text += " unknown=" + r.Unknown
			}
		}
		if _, err := policy.ParseRule(text); err != nil {
			return nil, &exitError{code: exitConfig, what: fmt.Sprintf("approvals.rules[%d]: %v", i, err), hint: "see troupe config show --origin", err: err}
		}
		out = append(out, text)
	}
	return out, nil
}
