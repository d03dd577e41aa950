package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// Bounds of what a hook's command says.
const (
	maxHookText   = 32 << 10 // its standard output
	maxHookReason = 2 << 10  // its standard error, which is the reason of a refusal
)

// hookScript gives a command its input by a file, since a sandbox has none, and keeps its standard error apart.
const hookScript = `exec <"$TMPDIR/input.json" 2>"$TMPDIR/errors"; eval "$1"`

// hooked are the commands of section hooks. They run in the sandbox of the workspace that a call or turn is about.
type hooked struct {
	config config.Hooks
	only   string // the only workspace where they count, if a folder's own file names them; "": all
	box    tools.Sandbox
	temp   string // folder for temporary folders
	env    func(workspace string, vars []*messages.EnvVar, trust troupe.Trust) ([]string, error)
	log    *slog.Logger
}

// place is where a hook's command runs.
type place struct {
	Workspace string `json:"id,omitempty"`
	Folder    string `json:"path,omitempty"`
	Trust     string `json:"trust,omitempty"`
	trust     troupe.Trust
	env       []string
	box       tools.Sandbox
}

// hookInput is what a hook's command reads on its standard input.
type hookInput struct {
	Event     string          `json:"event"`
	Session   string          `json:"session"`
	Worker    string          `json:"worker"`
	Turn      string          `json:"turn,omitempty"`
	Agent     string          `json:"agent"`
	Model     string          `json:"model,omitempty"`
	Tool      string          `json:"tool,omitempty"`
	Call      string          `json:"call,omitempty"` // its exec id
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Workspace place           `json:"workspace"`
	Outcome   string          `json:"outcome,omitempty"`
	Text      string          `json:"text,omitempty"`       // of the turn's answer or the call's result
	ErrorCode string          `json:"error_code,omitempty"` // of the call
}

// commandHooks makes hooks of the commands in the configuration. A folder's own file counts for that folder alone, and
// only where it is trusted: elsewhere its settings were refused when they were loaded. It adds to what else is configured,
// which runs first, and takes nothing of it away.
func (a *app) commandHooks(in opening, box tools.Sandbox, env func(string, []*messages.EnvVar, troupe.Trust) ([]string, error), log *slog.Logger) (troupe.Hooks, error) {
	own := hooked{config: in.loaded.Config.Hooks, box: box, temp: filepath.Join(in.loaded.Dirs.Cache, "tmp"), env: env, log: log}
	folder := own
	folder.only = "none" // no workspace has that id
	if addr, _, err := a.folder(in.dir); err == nil {
		folder.only = addr.ID()
	}
	points := map[string]*[]string{
		"before_turn": &folder.config.BeforeTurn, "after_turn": &folder.config.AfterTurn,
		"before_call": &folder.config.BeforeCall, "after_call": &folder.config.AfterCall,
	}
	named := false
	for point, commands := range points {
		if in.loaded.Origin("hooks."+point).Source != config.FromProject {
			*commands = nil
		}
		named = named || len(*commands) > 0
	}
	for _, setting := range []string{"tools", "timeout"} {
		named = named || in.loaded.Origin("hooks."+setting).Source == config.FromProject
	}
	if !named {
		return own.hooks(), nil
	}
	rest, err := config.Load(config.Options{Env: a.env, File: a.flags.config, Cwd: a.cwd})
	if err != nil {
		return troupe.Hooks{}, fmt.Errorf("read the hooks of every folder: %w", err)
	}
	own.config = rest.Config.Hooks
	return both(own.hooks(), folder.hooks()), nil
}

// hooks are those points that have commands.
func (h *hooked) hooks() troupe.Hooks {
	var out troupe.Hooks
	if len(h.config.BeforeTurn) > 0 {
		out.BeforeTurn = h.beforeTurn
	}
	if len(h.config.AfterTurn) > 0 {
		out.AfterTurn = h.afterTurn
	}
	if len(h.config.BeforeCall) > 0 {
		out.BeforeCall = h.beforeCall
	}
	if len(h.config.AfterCall) > 0 {
		out.AfterCall = h.afterCall
	}
	return out
}

// both runs the hooks of one and then those of the other. Where the first refuses, the second is not asked.
func both(a, b troupe.Hooks) troupe.Hooks {
	out := a
	switch {
	case a.BeforeTurn == nil:
		out.BeforeTurn = b.BeforeTurn
	case b.BeforeTurn != nil:
		out.BeforeTurn = func(ctx context.Context, t troupe.Turn) (string, error) {
			first, err := a.BeforeTurn(ctx, t)
			if err != nil {
				return first, err
			}
			second, err := b.BeforeTurn(ctx, t)
			return strings.Trim(first+"\n"+second, "\n"), err
		}
	}
	switch {
	case a.BeforeCall == nil:
		out.BeforeCall = b.BeforeCall
	case b.BeforeCall != nil:
		out.BeforeCall = func(ctx context.Context, c troupe.Call, tc *tools.Context, args json.RawMessage) error {
			if err := a.BeforeCall(ctx, c, tc, args); err != nil {
				return err
			}
			return b.BeforeCall(ctx, c, tc, args)
		}
	}
	switch {
	case a.AfterTurn == nil:
		out.AfterTurn = b.AfterTurn
	case b.AfterTurn != nil:
		out.AfterTurn = func(ctx context.Context, t troupe.Turn, r *messages.TurnResult) {
			a.AfterTurn(ctx, t, r)
			b.AfterTurn(ctx, t, r)
		}
	}
	switch {
	case a.AfterCall == nil:
		out.AfterCall = b.AfterCall
	case b.AfterCall != nil:
		out.AfterCall = func(ctx context.Context, c troupe.Call, tc *tools.Context, r *messages.ToolReply) {
			a.AfterCall(ctx, c, tc, r)
			b.AfterCall(ctx, c, tc, r)
		}
	}
	return out
}

func (h *hooked) beforeTurn(ctx context.Context, t troupe.Turn) (string, error) {
	p, err := h.ofTurn(t)
	if err != nil {
		return "", err
	}
	var all []string
	err = h.each(ctx, "before_turn", h.config.BeforeTurn, p, hookInput{Session: t.Session, Worker: t.Worker, Turn: t.Turn, Agent: t.Agent, Model: t.Model}, func(text string) {
		all = append(all, text)
	})
	return strings.Join(all, "\n"), err
}

func (h *hooked) afterTurn(ctx context.Context, t troupe.Turn, r *messages.TurnResult) {
	p, err := h.ofTurn(t)
	if err == nil {
		err = h.each(ctx, "after_turn", h.config.AfterTurn, p, hookInput{
			Session: t.Session, Worker: t.Worker, Turn: t.Turn, Agent: t.Agent, Model: t.Model,
			Outcome: strings.ToLower(r.GetOutcome().String()), Text: r.GetText(),
		}, nil)
	}
	if err != nil {
		h.log.Warn("hook after a turn failed", "session", t.Session, "worker", t.Worker, "err", err)
	}
}

func (h *hooked) beforeCall(ctx context.Context, c troupe.Call, tc *tools.Context, args json.RawMessage) error {
	if !h.about(c.Tool) {
		return nil
	}
	return h.each(ctx, "before_call", h.config.BeforeCall, h.ofCall(tc), hookInput{
		Session: c.Session, Worker: c.Worker, Agent: c.Agent, Tool: c.Tool, Call: c.ExecID, Arguments: args,
	}, nil)
}

func (h *hooked) afterCall(ctx context.Context, c troupe.Call, tc *tools.Context, r *messages.ToolReply) {
	if !h.about(c.Tool) {
		return
	}
	err := h.each(ctx, "after_call", h.config.AfterCall, h.ofCall(tc), hookInput{
		Session: c.Session, Worker: c.Worker, Agent: c.Agent, Tool: c.Tool, Call: c.ExecID,
		Outcome: strings.ToLower(r.GetStatus().String()), Text: r.GetContent(), ErrorCode: r.GetErrorCode(),
	}, nil)
	if err != nil {
		h.log.Warn("hook after a call failed", "session", c.Session, "call", c.ExecID, "err", err)
	}
}

// about tells whether calls of a tool have hooks.
func (h *hooked) about(tool string) bool {
	return len(h.config.Tools) == 0 || slices.Contains(h.config.Tools, tool)
}

func (h *hooked) ofTurn(t troupe.Turn) (place, error) {
	env, err := h.env(t.Workspace, nil, t.Trust)
	return place{Workspace: t.Workspace, Folder: t.Folder, Trust: strings.ToLower(t.Trust.String()), trust: t.Trust, env: env, box: h.box}, err
}

func (h *hooked) ofCall(tc *tools.Context) place {
	p := place{Trust: strings.ToLower(tc.Trust.String()), trust: tc.Trust, env: tc.ProcessEnv, box: tc.Sandbox}
	if tc.Workspace != nil {
		p.Folder, p.Workspace = tc.Workspace.HostDir(), tc.WorkspaceID
	}
	return p
}

// each runs the commands of a point, one after the other, until one fails.
func (h *hooked) each(ctx context.Context, point string, commands []string, p place, in hookInput, say func(string)) error {
	if h.only != "" && h.only != p.Workspace {
		return nil
	}
	in.Event, in.Workspace = point, p
	input, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write the hook's input: %w", err)
	}
	for i, command := range commands {
		text, err := h.run(ctx, command, p, input)
		if err != nil {
			return fmt.Errorf("hooks.%s[%d]: %w", point, i, err)
		}
		if text = strings.TrimRight(text, "\n"); text != "" && say != nil {
			say(text)
		}
	}
	return nil
}

// run runs one command to its end and returns its standard output.
func (h *hooked) run(ctx context.Context, command string, p place, input []byte) (string, error) {
	switch {
	case p.box == nil:
		return "", errors.New("there is no sandbox to run it in")
	case p.trust != troupe.Full && !p.box.Confines():
		return "", fmt.Errorf("the folder is not trusted, and the sandbox %s does not confine commands", p.box.Name())
	case p.Folder == "":
		return "", errors.New("it is about no workspace, and a hook runs in one")
	}
	if err := errors.Join(os.MkdirAll(h.temp, 0o700), os.MkdirAll(p.Folder, 0o700)); err != nil {
		return "", fmt.Errorf("make its folder: %w", err)
	}
	temp, err := os.MkdirTemp(h.temp, "hook-*")
	if err != nil {
		return "", fmt.Errorf("make its temporary folder: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := os.WriteFile(filepath.Join(temp, "input.json"), input, 0o600); err != nil {
		return "", fmt.Errorf("write its input: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.config.Timeout, errHookTimeout)
	defer cancel()
	var out bytes.Buffer
	exit, err := p.box.Run(ctx, tools.Command{
		Argv: []string{"/bin/sh", "-c", hookScript, "sh", command}, Workspace: p.Folder, Env: p.env, Temp: temp, Output: &out, MaxOutput: maxHookText,
	})
	switch {
	case errors.Is(context.Cause(ctx), errHookTimeout):
		return "", fmt.Errorf("it took longer than %s", h.config.Timeout)
	case err != nil:
		return "", err
	case exit.Limit != "":
		return "", fmt.Errorf("it was killed: too much %s", exit.Limit)
	case exit.Code != 0:
		return "", fmt.Errorf("exit code %d%s", exit.Code, reason(filepath.Join(temp, "errors")))
	}
	return strings.ToValidUTF8(out.String(), "\uFFFD"), nil
}

var errHookTimeout = errors.New("the hook took too long")

// reason is the beginning of what a command wrote to its standard error. The command may have put anything in the place of the file.
func reason(path string) string {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, maxHookReason))
	text := strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
	if text == "" {
		return ""
	}
	return ": " + text
}
