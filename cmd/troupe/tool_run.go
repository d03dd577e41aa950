package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// toolFlags are the flags of `troupe tool run`.
type toolFlags struct {
	args, dir, trust string
	allow            []string
}

func newToolRun(a *app) *cobra.Command {
	f := &toolFlags{}
	cmd := formats(&cobra.Command{
		Use:   "run NAME",
		Short: "Run one tool alone; one result envelope on stdout",
		Long: `Run one tool alone, as a fresh caller: no session, no journal, no model.

The call is checked, decided about and confined like an agent's; only the rule that a file must have
been read before it is changed is off. stdout gets one result envelope, also when the call is
refused. It ends with 0 when the call went well, else with 1.`,
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runTool(cmd.Context(), f, args[0]) },
	}, "json", "yaml")
	folderFlag(cmd, &f.dir)
	cmd.Flags().StringVar(&f.args, "args", "{}", "arguments as a `JSON` object; - reads stdin")
	cmd.Flags().StringVar(&f.trust, "trust", "", "`LEVEL` of trust in the folder for this call: full or restricted")
	cmd.Flags().StringArrayVar(&f.allow, "allow", nil, "`RULE` of what needs no question; may be repeated")
	return cmd
}

// runTool prints the envelope of one call.
func (a *app) runTool(ctx context.Context, f *toolFlags, name string) error {
	if err := oneOf("--trust", f.trust, []string{"full", "restricted"}); err != nil {
		return err
	}
	if err := checkRules(f.allow); err != nil {
		return err
	}
	raw := f.args
	if raw == "-" {
		var err error
		if raw, err = readStdin(ctx, a.in, "the arguments", tools.MaxArguments, ""); err != nil {
			return err
		}
	}
	addr, real, err := a.folder(f.dir)
	if err != nil {
		return err
	}
	loaded, err := a.load(f.dir)
	if err != nil {
		return err
	}
	if err := servable(loaded); err != nil {
		return err
	}
	loaded.Config.Server.URL = "" // a call of this machine, and rules of its data directory
	c := &loneCall{a: a, loaded: loaded, addr: addr, dir: real, raw: json.RawMessage(raw), trust: messages.Trust_RESTRICTED}
	if f.trust == "full" || f.trust == "" && a.trusted(addr) {
		c.trust = messages.Trust_FULL
	}
	modes, offers, err := places(loaded)
	if err != nil {
		return err
	}
	c.mode, c.offers = actors.ConfiguredMode(modes, addr.Canonical), actors.ConfiguredTools(offers, addr.Canonical)
	if c.rules, err = configRules(loaded); err != nil {
		return err
	}
	c.rules = append(c.rules, f.allow...)
	if err := c.recall(ctx); err != nil {
		return err
	}
	res, err := c.run(ctx, name)
	if own := new(exitError); errors.As(err, &own) {
		return err
	}
	e := tools.NewEnvelope(messages.NewID("call_"), name, res, err)
	a.clean(e)
	if e.ErrorCode == tools.CodeInternalError && a.flags.verbose {
		a.note("troupe: %v", err)
	}
	if err := a.emit(e, nil); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !e.OK {
		return silent(exitFailed)
	}
	return nil
}

// loneCall is a call without a session.
type loneCall struct {
	a      *app
	loaded *config.Loaded
	addr   *workspace.Address
	dir    string
	raw    json.RawMessage
	trust  messages.Trust_Level
	rules  []string
	mode   string   // where its commands run
	offers []string // the tools of the folder; nil: all

	remembered []string // what answers left behind for every agent, or the default one, in this folder
}

// recall reads the rules that were remembered for the folder, those of single sessions left out. Where nothing was kept yet there
// are none.
func (c *loneCall) recall(ctx context.Context) error {
	return c.a.look(ctx, c.loaded, func() error { return nil }, func(ctx context.Context, n node) error {
		found, err := ask[*messages.Rules](ctx, n, &messages.ListRules{})
		if err != nil {
			return err
		}
		for _, v := range found.GetRules() {
			mine := v.GetScope() == string(policy.Always) || v.GetScope() == string(policy.Agent) && v.GetAgent() == actors.DefaultAgent
			if mine && v.GetWorkspace() == c.addr.Canonical {
				c.remembered = append(c.remembered, v.GetRule())
			}
		}
		return nil
	})
}

// run does what a worker and its executor do: look up, check, decide, run.
func (c *loneCall) run(ctx context.Context, name string) (*tools.Result, error) {
	registry, err := tools.NewRegistry(slices.DeleteFunc(builtin(), func(t tools.Tool) bool {
		return c.loaded.Config.Tools[t.Spec().Name].Disabled
	})...)
	if err != nil {
		return nil, err
	}
	tool, err := registry.Lookup(name)
	if err != nil {
		return nil, err
	}
	var args map[string]any
	if err := tools.Decode(tool.Spec(), c.raw, &args); err != nil {
		return nil, err
	}
	ws, err := workspace.Open(workspace.Options{Dir: c.dir, Address: c.addr, Trust: c.trust})
	if err != nil {
		return nil, tools.Errorf(tools.CodeWorkspaceNotAvailable, "No active project: %v", err)
	}
	defer func() { _ = ws.Close() }() // nothing can be lost by it
	named, _ := args["workspace_id"].(string)
	if named != "" && named != c.addr.ID() && named != c.addr.Canonical && named != filepath.Base(c.dir) {
		return nil, tools.Errorf(tools.CodeWorkspaceNotFound, "Workspace '%s' not found; there are: %s", named, filepath.Base(c.dir))
	}
	if named != "" {
		named = filepath.Base(c.dir) // as a session calls it
	}
	if err := actors.Offered(c.offers, tool.Spec(), named); err != nil {
		return nil, err
	}
	if err := c.permitted(tool.Spec(), ws, args); err != nil {
		return nil, err
	}
	return c.execute(ctx, tool, ws)
}

// permitted puts the call to the policy. Nobody can be asked: what would ask is denied.
func (c *loneCall) permitted(spec *tools.Spec, ws *workspace.Workspace, args map[string]any) error {
	v, err := judged(policy.Question{Trust: c.trust}, spec, ws, args, c.rules, c.remembered)
	switch {
	case err != nil:
		return err
	case v.Action == policy.Allow:
		return nil
	}
	e := tools.Errorf(tools.CodePermissionDenied, "Access denied: %s", v.Reason)
	if v.Decision != "" {
		e = e.With("decision", v.Decision)
	}
	return e
}

// judged puts a call in a folder to the policy. q says how far the folder is trusted, and whether somebody can be asked.
func judged(q policy.Question, spec *tools.Spec, ws *workspace.Workspace, args map[string]any, rules, remembered []string) (policy.Verdict, error) {
	about := actors.Question(spec, args)
	about.Trust, about.CanAsk, about.Flag = q.Trust, q.CanAsk, q.Flag
	about.InToolset = q.Trust == messages.Trust_FULL || slices.Contains(tools.Restricted(), spec.Name)
	for i, text := range slices.Concat(rules, remembered) {
		r, err := policy.ParseRule(text)
		if err != nil {
			return policy.Verdict{}, fmt.Errorf("read rule %q: %w", text, err)
		}
		r.Remembered = i >= len(rules)
		about.Rules = append(about.Rules, r)
	}
	if about.Trust != messages.Trust_FULL || len(about.Rules) > 0 {
		actors.ResolvePaths(ws, about.Paths)
	}
	return policy.Decide(about), nil
}

// sandbox is what runs commands in the folder, as the configuration says of it.
func (c *loneCall) sandbox(ctx context.Context) (tools.Sandbox, error) {
	data := c.loaded.Config.Data.Dir
	if c.mode != tools.ModeContainer || c.loaded.Config.Sandbox.Exec == tools.ModeContainer {
		return detectSandbox(ctx, c.loaded, data)
	}
	box, err := containers(c.loaded, data)(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, tools.Errorf(tools.CodeSandboxUnavailable, "No container can be made: %v", err)
	}
	return box, nil
}

func (c *loneCall) execute(ctx context.Context, tool tools.Tool, ws *workspace.Workspace) (*tools.Result, error) {
	spec := tool.Spec()
	var box tools.Sandbox
	if spec.Commands || c.loaded.Config.Hooks.AroundCalls() { // its probe is no part of the call's time
		var err error
		if box, err = c.sandbox(ctx); err != nil {
			return nil, err
		}
	}
	timeout := tools.DefaultTimeout
	if spec.Timeout > 0 {
		timeout = spec.Timeout
	}
	if most := c.loaded.Config.Tools[spec.Name].Timeout; most > 0 {
		timeout = most
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	in := opening{loaded: c.loaded, dir: c.dir}
	envOf := c.a.callEnv(in)
	env, err := envOf(c.addr.ID(), nil, c.trust)
	if err != nil {
		return nil, err
	}
	tc := &tools.Context{
		Signal: ctx, Agent: "default", ProcessEnv: env, Redact: c.a.secrets.String, Sandbox: box, Reach: reach(c.loaded), Workspace: ws, ExecID: messages.NewID(messages.ExecPrefix), Trust: c.trust, Fresh: true, WorkspaceID: c.addr.ID(),
		WorkspaceInfo: &messages.WorkspaceInfo{Mode: c.mode, WorkingDirectory: c.dir, ProjectDir: c.dir, ClonePath: c.dir},
	}
	tc.Enter()
	if !spec.NoTemp {
		temp := filepath.Join(c.loaded.Dirs.Cache, "tmp")
		err := os.MkdirAll(temp, 0o700)
		if err == nil {
			tc.ToolTempDir, err = os.MkdirTemp(temp, "call-*")
		}
		if err != nil {
			return nil, &exitError{code: exitIO, what: "make a folder for temporary files: " + err.Error(), err: err}
		}
		defer func() { _ = os.RemoveAll(tc.ToolTempDir) }() // what stays is only in the cache
	}
	var last time.Time
	tc.Progress = func(p *messages.Progress) { // on a terminal, at most once a second
		if now := time.Now(); c.a.errTerm && now.Sub(last) > time.Second {
			last = now
			c.a.note("troupe: %d %s so far", p.GetDone(), p.GetUnit())
		}
	}
	if !c.loaded.Config.Hooks.AroundCalls() {
		return tool.Run(tc, c.raw)
	}
	hooks, err := c.a.commandHooks(in, box, envOf, slog.New(slog.NewTextHandler(c.a.err, nil)))
	if err != nil {
		return nil, err
	}
	return c.hooked(ctx, hooks, tool, tc)
}

// hooked runs a call between its hooks, as a session does.
func (c *loneCall) hooked(ctx context.Context, hooks troupe.Hooks, tool tools.Tool, tc *tools.Context) (*tools.Result, error) {
	call := troupe.Call{Agent: tc.Agent, Tool: tool.Spec().Name, ExecID: tc.ExecID}
	if hooks.BeforeCall != nil {
		if err := hooks.BeforeCall(ctx, call, tc, c.raw); err != nil {
			return nil, tools.Errorf(tools.CodePermissionDenied, "Access denied: a hook refused the call: %v", err).With(actors.RefusedBy, actors.Hook)
		}
	}
	res, err := tool.Run(tc, c.raw)
	if hooks.AfterCall != nil && ctx.Err() == nil {
		e := tools.NewEnvelope(tc.ExecID, call.Tool, res, err)
		c.a.clean(e)
		reply := &messages.ToolReply{Status: messages.ToolFinished_OK, Content: e.Content, ErrorCode: e.ErrorCode}
		if !e.OK {
			reply.Status = messages.ToolFinished_ERROR
		}
		hooks.AfterCall(ctx, call, tc, reply)
	}
	return res, err
}

// clean takes the secrets that this process knows out of an envelope.
func (a *app) clean(e *tools.Envelope) {
	e.Content = a.secrets.String(e.Content)
	e.Details, e.Meta = a.cleanValues(e.Details), a.cleanValues(e.Meta)
}

func (a *app) cleanValues(in map[string]any) map[string]any {
	for key, v := range in {
		if text, ok := v.(string); ok {
			in[key] = a.secrets.String(text)
		}
	}
	return in
}
