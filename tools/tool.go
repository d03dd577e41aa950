// Package tools holds what agents can do: the Tool contract, the registry and the built-in
// tools. A tool sees a Context value and nothing else of the program: no session, no actor.
package tools

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// Tool is one thing that an agent can do.
type Tool interface {
	// Spec describes it; the same value each time.
	Spec() *Spec
	// Run does it. args were checked against the schema and decoded strictly once before
	// (see Decode). An expected failure is an *Error; any other error is a defect
	// and reaches people as `Unexpected error: M`.
	Run(tc *Context, args json.RawMessage) (*Result, error)
}

// Reconciler is a RECONCILABLE tool's answer to "did this call happen?".
type Reconciler interface {
	// Reconcile tells from the world alone: (result, nil) when it happened, ErrNotDone when
	// it certainly did not, and any other error when it cannot tell.
	Reconcile(tc *Context, args json.RawMessage, pre []*messages.FileHash) (*Result, error)
}

// Preparer names the state of the files that a call is about to change, before it is dispatched.
type Preparer interface {
	Prepare(tc *Context, args json.RawMessage) ([]*messages.FileHash, error)
}

// Previewer shows a person what a call would do, for an approval. Like a Preparer it changes nothing, and fails as the call would.
type Previewer interface {
	Preview(tc *Context, args json.RawMessage) (*Preview, error)
}

// Preview is what a person is shown of a call that asks.
type Preview struct {
	Kind  string // one of the Preview constants
	Text  string
	Files []*messages.FileHash // those that it shows, as they are now
}

// The kinds of previews.
const (
	PreviewDiff      = "diff"
	PreviewCommand   = "command"
	PreviewArguments = "arguments" // the tool's name and what it was called with
)

// Spec describes a tool to models, people and the runtime.
type Spec struct {
	Name        string // snake_case
	Description string // the tool's x.md
	Schema      json.RawMessage
	Effect      messages.Effect_Class
	Unknown     messages.UnknownOutcome_Policy
	Timeout     time.Duration // 0: DefaultTimeout
	NoWorkspace bool          // runs without any workspace (plain tool)
	Commands    bool          // runs commands, in the call's sandbox
	Server      string        // the MCP server that it is of: offered to those agents that name it; "": one of ours
	NoTemp      bool          // needs no folder for temporary files: none is made for its calls

	compiled *schema // of Schema; set by who makes the spec, before it is shared
	builtin  bool    // one of Builtin
}

// Builtin says whether the tool is one of Builtin, and not another one of that name.
func (s *Spec) Builtin() bool { return s.builtin }

// compile reads the schema once, for all calls to come. A spec that was not compiled is read anew by
// each call.
func (s *Spec) compile() error {
	c, err := parseSchema(s)
	if err == nil {
		s.compiled = c
	}
	return err
}

// DefaultTimeout bounds a call whose tool does not say otherwise.
const DefaultTimeout = 60 * time.Second

// Context is everything that a tool may know about its call: a plain value (acceptance row 4).
// All fields but Signal are optional.
type Context struct {
	Signal           context.Context // ends with the call, the turn or the executor
	WorkingDirectory string          // where the call starts, relative to the workspace root
	Agent            string
	ProcessEnv       []string // NAME=value: the allow-list and the project's variables, never the server's own
	ToolTempDir      string   // removed after the call
	WorkspaceInfo    *messages.WorkspaceInfo
	Workspace        *workspace.Workspace // the one workspace that the call was routed to
	WorkspaceID      string               // of its address
	Home             *workspace.Workspace // the session's own, for spilled output
	Fields           Fields               // of Workspace; nil: it has none, as with a lone caller

	ExecID   string // idempotency key (TROUPE_EXEC_ID of commands)
	Trust    messages.Trust_Level
	Fresh    bool              // a lone caller: the rule "must have been read" is off
	Known    map[string]string // path -> sha256 of files that this conversation has read
	Sandbox  Sandbox           // nil: commands are refused
	Paths    Paths             // between the machine's paths and a container's; nil in mode local
	Jobs     *Jobs             // the agent's; nil: none may be left running
	Reach    []netip.Prefix    // addresses that fetch may reach though they are not public (`sandbox.fetch`)
	Values   map[any]any       // of the host program, typed by their keys
	Progress func(*messages.Progress)
	// Hold keeps the workspace for what a call leaves running under an id, until release is called. end may be called to ask
	// for its end, with the reason. nil: nothing may be left running.
	Hold func(id string, end func(why string)) (release func(), err error)
	// WriteAccess raises the trust in the call's workspace for the session, as a person allowed. nil: there is no session.
	WriteAccess func() error
	Redact      func(string) string // takes secrets out of a text; nil: none are known. Results are redacted anyway: tools call it where they cut or keep text
}

// Fields are what a workspace holds besides its files.
type Fields interface {
	// Set sets a field to a JSON value, null clears it, and returns what that led to once it is durable. An edit of a call that
	// runs again with its exec id, in the same order, is the same edit: it gets the same answer. A refusal is an *Error.
	Set(ctx context.Context, name string, value json.RawMessage) (*messages.FieldSet, error)
}

// clean gives text that may be cut or kept: half a secret is not recognised any more.
func (c *Context) clean(text string) string {
	if c.Redact == nil {
		return text
	}
	return c.Redact(text)
}

// Result is what a call came to. The model sees Content alone.
type Result struct {
	Content   string
	Truncated bool
	Meta      map[string]any
	Details   map[string]any
	Files     []*messages.FileHash // files read or left behind, with their hashes
	Diff      string               // for people
}
