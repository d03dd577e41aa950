// Package owner runs tool calls where their workspaces are: on the machine of whoever owns them, for a server elsewhere. It keeps a ledger, so that
// a call that is delivered again after a lost connection does not run again, and its owner has the last word on each.
package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// Options describe what an owner shares. Ledger is required.
type Options struct {
	Folders map[string]string // address (`laptop:~/dev/monad`) -> folder of this machine
	Trust   messages.Trust_Level
	Ledger  *tools.FileLedger
	Sandbox tools.Sandbox // for commands; nil: they are refused
	Env     []string      // of commands
	Temp    string        // where calls get folders for temporary files; "": they get none
	// Jobs is a folder for notes about what calls leave running, of this place alone; "": nothing may be left running. MostJobs may run of one agent; 0: any number.
	Jobs     string
	MostJobs int
	// JobEnded is told of each job that ends; may be nil.
	JobEnded func(*messages.OwnedJob)
	// Redact takes secrets of this machine out of what goes to the server; nil: none are known.
	Redact func(string) string
	// Allow is asked before each call that was not seen before, with the folder that it is for; nil: all are allowed. A refusal is a *tools.Error.
	Allow func(ctx context.Context, call *messages.Execute, ws *workspace.Workspace) error
	// Shows is asked before what a call would change is shown to the server; nil: all is. It asks nobody: who is refused sees the arguments alone.
	Shows func(ctx context.Context, call *messages.Execute, ws *workspace.Workspace) error
	// Began and Ended are told of each call that runs; may be nil.
	Began func(call *messages.Execute)
	Ended func(call *messages.Execute, reply *messages.ToolReply)
	// Before runs before each call that Allow let through, with what the call gets; what it says is a refusal. After is told of what the call came to,
	// unless it was cancelled. nil: nothing runs.
	Before func(ctx context.Context, call *messages.Execute, tc *tools.Context) error
	After  func(ctx context.Context, call *messages.Execute, tc *tools.Context, reply *messages.ToolReply)
	// Logger is told of what crashed here: the server hears only that it did. nil: nobody is.
	Logger *slog.Logger
}

// Owner runs calls in the folders that it shares. It is safe for concurrent use, also over several connections.
type Owner struct {
	o     Options
	tools *tools.Registry
	life  context.Context //nolint:containedctx // of calls, which outlive connections
	end   context.CancelFunc

	mu      sync.Mutex
	running map[attempt]*running
	jobs    jobs
	calls   sync.WaitGroup // and jobs
}

type attempt struct {
	exec string
	n    uint32
}

type running struct {
	done     chan struct{}
	reply    *messages.ToolReply
	cancel   context.CancelFunc
	progress atomic.Pointer[func(*messages.Progress)] // of whoever waits
}

// tell passes a sign of life on.
func (r *running) tell(p *messages.Progress) {
	if fn := r.progress.Load(); fn != nil && *fn != nil {
		(*fn)(p)
	}
}

// New makes an owner.
func New(o Options) (*Owner, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := tools.NewRegistry(tools.Builtin()...)
	if err != nil {
		return nil, fmt.Errorf("make the tools of an owner: %w", err)
	}
	x := &Owner{o: o, tools: r, running: make(map[attempt]*running)}
	x.jobs = jobs{sets: make(map[string]*tools.Jobs), runs: make(map[string]*messages.OwnedJob), tell: make(map[int]func(*messages.OwnedJob))}
	x.life, x.end = context.WithCancel(context.Background())
	return x, nil
}

// Close ends what runs, and waits for it.
func (x *Owner) Close() {
	x.end()
	x.endJobs()
	x.calls.Wait()
}

// Cancel ends the attempts of a call that run.
func (x *Owner) Cancel(execID string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a, r := range x.running {
		if a.exec == execID {
			r.cancel()
		}
	}
}

// Settle forgets an attempt whose result is kept elsewhere by now.
func (x *Owner) Settle(execID string, n uint32) {
	if tools.IsJobID(execID) {
		x.settleJob(execID)
		return
	}
	x.o.Ledger.Settle(execID, n)
}

// Deliver runs a call that was never seen, and answers for one that was. It fails when ctx ends: the call goes on.
func (x *Owner) Deliver(ctx context.Context, m *messages.Execute, progress func(*messages.Progress)) (*messages.ToolReply, error) {
	r, reply := x.take(proto.CloneOf(m)) //nolint:contextcheck // the call outlives the connection that it came by
	if reply != nil {
		return reply, nil
	}
	r.progress.Store(&progress)
	select {
	case <-r.done:
		return r.reply, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// take begins a call, or finds what there is of it.
func (x *Owner) take(m *messages.Execute) (*running, *messages.ToolReply) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := attempt{m.GetExecId(), m.GetAttempt()}
	if t, err := x.tools.Lookup(m.GetTool()); err == nil && t.Spec().Effect == messages.Effect_PURE {
		m.Pure = true // it may run again, and nobody settles it
	}
	if r := x.running[key]; r != nil {
		return r, nil
	}
	if !m.GetPure() {
		seen, done, err := x.o.Ledger.Look(key.exec, key.n)
		switch {
		case err != nil:
			return nil, answer(m, tools.Errorf(tools.CodeInternalError, "Unexpected error: the ledger of this machine cannot be read"))
		case seen == tools.Ended:
			return nil, done
		case seen == tools.Started:
			return nil, unknown(m)
		}
		if err := x.o.Ledger.Begin(key.exec, key.n); err != nil {
			return nil, answer(m, tools.Errorf(tools.CodeInternalError, "Unexpected error: the ledger of this machine cannot be written"))
		}
	}
	ctx, cancel := x.limited(m)
	r := &running{done: make(chan struct{}), cancel: cancel}
	x.running[key] = r
	x.calls.Go(func() {
		defer cancel()
		reply := x.clean(x.run(ctx, m, r.tell))
		if !m.GetPure() {
			if err := x.o.Ledger.End(key.n, reply); err != nil {
				reply = unknown(m) // told once, it must be told so again
			}
		}
		x.mu.Lock()
		delete(x.running, key)
		x.mu.Unlock()
		r.reply = reply
		close(r.done)
	})
	return r, nil
}

// limited is the time of a call. Each has one context below the owner's, which keeps those that nobody ends.
func (x *Owner) limited(m *messages.Execute) (context.Context, context.CancelFunc) {
	if m.GetTimeoutMs() > 0 {
		return context.WithTimeout(x.life, time.Duration(m.GetTimeoutMs())*time.Millisecond)
	}
	return context.WithCancel(x.life)
}

// clean takes the secrets of this machine out of a result.
func (x *Owner) clean(r *messages.ToolReply) *messages.ToolReply {
	if x.o.Redact != nil {
		for _, text := range []*string{&r.Content, &r.Diff, &r.MetaJson, &r.DetailsJson} {
			*text = x.o.Redact(*text)
		}
	}
	return r
}

func unknown(m *messages.Execute) *messages.ToolReply {
	return answer(m, &tools.Error{Code: tools.CodeInterrupted, Message: tools.UnknownText, Unknown: true})
}

// answer is the result of a call that failed; with nil, of one that has nothing to say.
func answer(m *messages.Execute, err error) *messages.ToolReply {
	r := &messages.ToolReply{ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: messages.ToolFinished_ERROR}
	var e *tools.Error
	switch {
	case err == nil:
		r.Status = messages.ToolFinished_OK
	case errors.As(err, &e):
		r.ErrorCode, r.Content = e.Code, e.Message
		if e.Unknown {
			r.Status = messages.ToolFinished_INTERRUPTED_UNKNOWN
		}
	default:
		r.ErrorCode, r.Content = tools.CodeInternalError, "Unexpected error: "+err.Error()
	}
	return r
}

// crashed tells of a panic, while it is recovered from, in the run of a call or in its preview.
func (x *Owner) crashed(in string, m *messages.Execute, p any) {
	x.o.Logger.Error("a call crashed", "type", in, "call", m.GetExecId(), "tool", m.GetTool(), "workspace", m.GetWorkspace().GetUri(), "err", p, "stack", string(debug.Stack()))
}

// run decides about a call and runs it.
func (x *Owner) run(ctx context.Context, m *messages.Execute, progress func(*messages.Progress)) (reply *messages.ToolReply) {
	defer func() {
		if p := recover(); p != nil {
			x.crashed("run", m, p)
			reply = answer(m, tools.Errorf(tools.CodeInternalError, "Unexpected error: the tool crashed"))
		}
	}()
	tool, dir, ws, err := x.open(m)
	if err != nil {
		return answer(m, err)
	}
	defer func() { _ = ws.Close() }() // a folder's handle: nothing is lost with it
	if x.o.Allow != nil {
		if err := x.o.Allow(ctx, m, ws); err != nil {
			r := answer(m, err)
			r.Status = messages.ToolFinished_DENIED
			return r
		}
	}
	if x.o.Began != nil {
		x.o.Began(m)
	}
	if x.o.Ended != nil {
		defer func() { x.o.Ended(m, reply) }()
	}
	known := knownFiles(m)
	temp, err := x.temp(m, tool.Spec())
	if err != nil {
		return answer(m, err)
	}
	defer func() { _ = os.RemoveAll(temp) }() // what stays lies in a cache
	tc := &tools.Context{
		ToolTempDir: temp, Redact: x.o.Redact, WorkspaceInfo: &messages.WorkspaceInfo{Mode: "local", WorkingDirectory: dir, ProjectDir: dir, ClonePath: dir},
		Signal: ctx, Agent: m.GetAgent(), ExecID: m.GetExecId(), Sandbox: x.o.Sandbox, Trust: x.o.Trust, Known: known, Workspace: ws, ProcessEnv: x.o.Env, Progress: progress,
	}
	tc.Enter() // where its sandbox is one of containers
	x.leaves(m, tc)
	if err := asShown(tool, tc, m); err != nil {
		return answer(m, err)
	}
	if x.o.Before != nil {
		err := x.o.Before(ctx, m, tc)
		if ctx.Err() != nil { // nothing has happened; whatever the hook says comes of that
			return x.cut(ctx, m, "Cancelled before it began.")
		}
		if err != nil {
			r := answer(m, tools.Errorf(tools.CodePermissionDenied, "Access denied: a hook refused the call: %v", err))
			r.Status = messages.ToolFinished_DENIED
			r.DetailsJson = refusedByHook
			return r
		}
	}
	reply = x.outcome(ctx, m, tool, tc)
	if x.o.After != nil && ctx.Err() == nil {
		x.after(ctx, m, tc, reply)
	}
	return reply
}

// refusedByHook are the details of a call that a hook refused.
const refusedByHook = `{"refused_by":"hook"}`

// after tells what a call came to. One that fails at that changes nothing of it: the call has had its effects.
func (x *Owner) after(ctx context.Context, m *messages.Execute, tc *tools.Context, reply *messages.ToolReply) {
	defer func() {
		if p := recover(); p != nil {
			x.crashed("after", m, p)
		}
	}()
	x.o.After(ctx, m, tc, x.clean(reply))
}

// cut is the answer to a call whose time is over, or that is not wanted any more.
func (x *Owner) cut(ctx context.Context, m *messages.Execute, cancelled string) *messages.ToolReply {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return answer(m, tools.Errorf(tools.CodeTimeout, "Timed out after %d ms", m.GetTimeoutMs()))
	}
	return answer(m, tools.Errorf(tools.CodeCancelled, "%s", cancelled))
}

// outcome runs a call, and says what it came to.
func (x *Owner) outcome(ctx context.Context, m *messages.Execute, tool tools.Tool, tc *tools.Context) *messages.ToolReply {
	res, err := tool.Run(tc, json.RawMessage(m.GetArguments()))
	switch {
	case err != nil && ctx.Err() != nil:
		return x.cut(ctx, m, "Cancelled before it finished; it may have had effects.")
	case err != nil:
		return answer(m, err)
	}
	return succeeded(m, res)
}

// open finds the tool of a call, and opens the folder that it is for.
func (x *Owner) open(m *messages.Execute) (tools.Tool, string, *workspace.Workspace, error) {
	tool, err := x.tools.Lookup(m.GetTool())
	if err != nil {
		return nil, "", nil, err
	}
	dir, shared := x.o.Folders[m.GetWorkspace().GetUri()]
	if !shared {
		return nil, "", nil, tools.Errorf(tools.CodeWorkspaceNotAvailable, "No active project")
	}
	ws, err := workspace.Open(workspace.Options{Dir: dir, Trust: x.o.Trust})
	if err != nil {
		return nil, "", nil, tools.Errorf(tools.CodeWorkspaceNotAvailable, "No active project")
	}
	return tool, dir, ws, nil
}

func knownFiles(m *messages.Execute) map[string]string {
	known := make(map[string]string, len(m.GetKnownFiles()))
	for _, f := range m.GetKnownFiles() {
		known[f.GetPath()] = f.GetSha256()
	}
	return known
}

// temp makes a call's folder for temporary files; "" where it gets none.
func (x *Owner) temp(m *messages.Execute, spec *tools.Spec) (string, error) {
	if x.o.Temp == "" || spec.NoTemp {
		return "", nil
	}
	if err := os.MkdirAll(x.o.Temp, 0o700); err != nil {
		return "", fmt.Errorf("make a folder for temporary files: %w", err)
	}
	dir, err := os.MkdirTemp(x.o.Temp, "call-*")
	if err != nil {
		return "", fmt.Errorf("make a folder for temporary files: %w", err)
	}
	return dir, nil
}

func succeeded(m *messages.Execute, res *tools.Result) *messages.ToolReply {
	r := &messages.ToolReply{ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: messages.ToolFinished_OK}
	if res == nil {
		return r
	}
	r.Content, r.Truncated, r.Files, r.Diff = res.Content, res.Truncated, res.Files, res.Diff
	r.MetaJson, r.DetailsJson = asJSON(res.Meta), asJSON(res.Details)
	return r
}

func asJSON(m map[string]any) string {
	if len(m) == 0 {
		return ""
	}
	b, err := json.Marshal(m)
	if err != nil {
		return ""
	}
	return string(b)
}
