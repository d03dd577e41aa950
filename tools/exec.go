package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed exec.md
var execDoc string

// Bounds of a command.
const (
	execTimeout    = 120 * time.Second
	maxExecTimeout = 600 * time.Second
	maxCommand     = 100_000 // bytes; the system takes 128 KiB for one argument
)

// Exec is the tool that runs a shell command in the call's sandbox. A command that fails is a
// result, with its exit code; that it could not be started, was cancelled or took too long is
// an error.
func Exec() Tool {
	return &fileTool[execArgs]{
		spec: &Spec{
			Name: "exec", Description: execDoc, Effect: messages.Effect_AT_MOST_ONCE, Commands: true,
			Timeout: maxExecTimeout + 15*time.Second, // its own timeout comes first
			Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["command"],"properties":{
"command":{"type":"string","minLength":1,"maxLength":100000,"description":"Shell command (bash where there is one)."},
"cwd":{"type":"string","minLength":1,"description":"Folder to start in, relative to the working directory (default: the working directory)."},
"timeout_ms":{"type":"integer","minimum":1,"maximum":600000,"description":"Milliseconds after which it is killed (default 120000, at most 600000)."},
"background":{"type":"boolean","description":"Leave it running and return at once (default false); timeout_ms then counts only if it is given."},
"network":{"type":"boolean","description":"Whether it needs the network (default false)."},
` + workspaceArg + `}}`),
		},
		run: runExec,
	}
}

type execArgs struct {
	Command    string `json:"command"`
	Cwd        string `json:"cwd"`
	TimeoutMS  int64  `json:"timeout_ms"`
	Network    bool   `json:"network"`
	Background bool   `json:"background"`
	Workspace  string `json:"workspace_id"`
}

// previewExec shows a command as it will run: where, and whether it reaches the network.
func previewExec(spec *Spec, args json.RawMessage) (*Preview, error) {
	var a execArgs
	if err := Decode(spec, args, &a); err != nil {
		return nil, err
	}
	text := a.Command
	if a.Cwd != "" {
		text += "\n# in " + a.Cwd
	}
	if a.Background {
		text += "\n# in the background"
	}
	if a.Network {
		text += "\n# with network access"
	}
	return &Preview{Kind: PreviewCommand, Text: text}, nil
}

// errExecTimeout tells the tool's own timeout from the call's end.
var errExecTimeout = errors.New("the command took too long")

func runExec(c *fileCall, a execArgs) (*Result, error) {
	if strings.ContainsRune(a.Command, 0) {
		return nil, refuse("argument \"command\" holds a NUL")
	}
	if len(a.Command) > maxCommand {
		return nil, refuse("argument \"command\" has %d bytes; at most %d are taken: write a script and run that", len(a.Command), maxCommand)
	}
	if err := mayRun(c); err != nil {
		return nil, err
	}
	dir, err := startFolder(c, a.Cwd)
	if err != nil {
		return nil, err
	}
	cmd := Command{
		Argv: shellArgv(a.Command), Workspace: c.ws.HostDir(), Dir: dir, Env: commandEnv(c.Context),
		Temp: c.ToolTempDir, Network: a.Network, MaxOutput: maxCommandOutput,
	}
	if a.Background {
		return startJob(c, a.Command, time.Duration(a.TimeoutMS)*time.Millisecond, cmd)
	}
	timeout := execTimeout
	if a.TimeoutMS > 0 {
		timeout = time.Duration(a.TimeoutMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, timeout, errExecTimeout)
	defer cancel()
	out := &collector{exec: c.ExecID, tell: c.Progress, since: time.Now()}
	cmd.Output = out
	exit, err := c.Sandbox.Run(ctx, cmd)
	res := execResult(c, out.data, exit)
	switch {
	case err == nil:
		return res, nil
	case errors.Is(context.Cause(ctx), errExecTimeout):
		res.Meta["timed_out"] = true
		return nil, withOutput(Errorf(CodeTimeout, "Command timed out after %d ms", timeout.Milliseconds()), res)
	case ctx.Err() != nil:
		return nil, withOutput(stopped(ctx.Err()).(*Error), res) //nolint:errorlint,forcetypeassert // stopped makes one
	}
	return nil, withOutput(Errorf(CodeSandboxUnavailable, "the sandbox %s could not run the command: %v", c.Sandbox.Name(), err), res)
}

// mayRun refuses where no sandbox is, and Restricted workspaces in one that does not confine:
// it fails closed.
func mayRun(c *fileCall) error {
	if c.Sandbox == nil {
		return Errorf(CodeSandboxUnavailable, "commands cannot be run here: there is no sandbox")
	}
	if c.ws.Trust() != messages.Trust_FULL && !c.Sandbox.Confines() {
		return Errorf(CodeSandboxUnavailable, "commands cannot be run in this Restricted workspace: the sandbox %q does not confine them. "+
			"The user can install bubblewrap, use Linux 6.12 or later, or trust the folder", c.Sandbox.Name())
	}
	return nil
}

// startFolder is the host folder where the command starts. Links are followed by the
// workspace, which refuses what leads outside.
func startFolder(c *fileCall, cwd string) (string, error) {
	if err := c.ws.Ensure(); err != nil {
		return "", c.fail(".", err)
	}
	if cwd == "" {
		cwd = "."
	}
	info, err := c.ws.Stat(c.at(cwd))
	if err != nil {
		return "", c.fail(cwd, err)
	}
	if !info.IsDir() {
		return "", Errorf(CodeInvalidPath, "Invalid path: %s: it is not a folder", cleanText(cwd)).With("path", cleanText(cwd))
	}
	return filepath.Join(c.ws.HostDir(), filepath.FromSlash(info.Path)), nil
}

// shellArgv makes the command one argument after --, so that no shell takes it for an option.
func shellArgv(command string) []string {
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	return []string{shell, "-c", "--", command}
}

// commandEnv is the call's environment and the key by which the command can be known again.
func commandEnv(c *Context) []string {
	env := make([]string, 0, len(c.ProcessEnv)+1)
	for _, kv := range c.ProcessEnv {
		if !strings.HasPrefix(kv, "TROUPE_") {
			env = append(env, kv)
		}
	}
	if c.ExecID != "" {
		env = append(env, "TROUPE_EXEC_ID="+c.ExecID)
	}
	return env
}

// execResult is what the model and programs get of a command.
func execResult(c *fileCall, data []byte, exit Exit) *Result {
	text := c.clean(printable(data))
	content, cut := shorten(text)
	res := &Result{Truncated: cut || exit.Limit == "output", Meta: map[string]any{
		"exit_code": exit.Code, "signal": exit.Signal, "timed_out": false,
		"duration_ms": exit.Duration.Milliseconds(), "sandbox": c.Sandbox.Name(), "bounds": exit.Bounds, "output_bytes": len(data),
	}}
	notes := []string{}
	if cut {
		if note := spill(c.Home, c.ExecID, text); note != "" {
			notes = append(notes, note)
		}
	}
	switch {
	case exit.Limit != "":
		res.Meta["limit"] = exit.Limit
		notes = append(notes, limitNote(exit.Limit))
	case exit.Signal != "":
		notes = append(notes, fmt.Sprintf("[exit code %d: ended by %s]", exit.Code, exit.Signal))
	case exit.Code != 0:
		notes = append(notes, fmt.Sprintf("[exit code %d]", exit.Code))
	case text == "":
		notes = append(notes, "(no output)")
	}
	res.Content = content
	if len(notes) > 0 {
		if content != "" && !strings.HasSuffix(content, "\n") {
			res.Content += "\n"
		}
		res.Content += strings.Join(notes, "\n")
	}
	return res
}

func limitNote(limit string) string {
	switch limit {
	case "output":
		return fmt.Sprintf("[killed: it printed more than %d MiB; redirect long output to a file]", maxCommandOutput>>20)
	case "processes":
		return "[killed: it started too many processes]"
	}
	return "[killed: it used too much " + limit + "]"
}

// withOutput adds to a failure what the command had printed by then.
func withOutput(e *Error, res *Result) *Error {
	if res.Meta["output_bytes"] != 0 {
		e.Message += "\nOutput until then:\n" + strings.TrimRight(res.Content, "\n")
	}
	e.Details = res.Meta
	return e
}
