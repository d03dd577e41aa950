// Package owner runs tool calls where their workspaces are: on the machine of whoever owns them, for a server elsewhere. It keeps a ledger, so that
// a call that is delivered again after a lost connection does not run again, and its owner has the last word on each.
package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// Options describe what an owner shares. Ledger is required.
type Options struct {
	Folders map[string]string // path of an address (`~/dev/monad`, `/srv/x`) -> folder of this machine
	Trust   messages.Trust_Level
	Ledger  *tools.FileLedger
	Sandbox tools.Sandbox // for commands; nil: they are refused
	Env     []string      // of commands
	// Allow is asked before each call; nil: all are allowed.
	Allow func(call *messages.Execute) bool
}

// Owner runs calls in the folders that it shares. It is safe for concurrent use, also over several connections.
type Owner struct {
	o     Options
	tools *tools.Registry
	life  context.Context //nolint:containedctx // of calls, which outlive connections
	end   context.CancelFunc

	mu      sync.Mutex
	running map[attempt]*running
	calls   sync.WaitGroup
}

type attempt struct {
	exec string
	n    uint32
}

type running struct {
	done   chan struct{}
	reply  *messages.ToolReply
	cancel context.CancelFunc
}

// New makes an owner.
func New(o Options) (*Owner, error) {
	r, err := tools.NewRegistry(tools.Builtin()...)
	if err != nil {
		return nil, fmt.Errorf("make the tools of an owner: %w", err)
	}
	x := &Owner{o: o, tools: r, running: make(map[attempt]*running)}
	x.life, x.end = context.WithCancel(context.Background())
	return x, nil
}

// Close ends what runs, and waits for it.
func (x *Owner) Close() {
	x.end()
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
func (x *Owner) Settle(execID string, n uint32) { x.o.Ledger.Settle(execID, n) }

// Deliver runs a call that was never seen, and answers for one that was. It fails when ctx ends: the call goes on.
func (x *Owner) Deliver(ctx context.Context, m *messages.Execute) (*messages.ToolReply, error) {
	r, reply := x.take(proto.CloneOf(m)) //nolint:contextcheck // the call outlives the connection that it came by
	if reply != nil {
		return reply, nil
	}
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
	ctx, cancel := context.WithCancel(x.life)
	r := &running{done: make(chan struct{}), cancel: cancel}
	x.running[key] = r
	x.calls.Go(func() {
		defer cancel()
		reply := x.run(ctx, m)
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

func unknown(m *messages.Execute) *messages.ToolReply {
	r := answer(m, tools.Errorf(tools.CodeInterrupted, "Interrupted: the outcome of this call is unknown; it may have run. Verify before repeating it."))
	r.Status = messages.ToolFinished_INTERRUPTED_UNKNOWN
	return r
}

// answer is the result of a call that failed.
func answer(m *messages.Execute, err error) *messages.ToolReply {
	r := &messages.ToolReply{ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: messages.ToolFinished_ERROR}
	var e *tools.Error
	if errors.As(err, &e) {
		r.ErrorCode, r.Content = e.Code, e.Message
	} else {
		r.ErrorCode, r.Content = tools.CodeInternalError, "Unexpected error: "+err.Error()
	}
	return r
}

// run decides about a call and runs it.
func (x *Owner) run(ctx context.Context, m *messages.Execute) (reply *messages.ToolReply) {
	defer func() {
		if p := recover(); p != nil {
			reply = answer(m, tools.Errorf(tools.CodeInternalError, "Unexpected error: the tool crashed"))
		}
	}()
	tool, err := x.tools.Lookup(m.GetTool())
	if err != nil {
		return answer(m, err)
	}
	_, path, _ := strings.Cut(m.GetWorkspace().GetUri(), ":")
	dir, shared := x.o.Folders[path]
	if !shared {
		return answer(m, tools.Errorf(tools.CodeWorkspaceNotAvailable, "No active project"))
	}
	if x.o.Allow != nil && !x.o.Allow(m) {
		r := answer(m, tools.Errorf(tools.CodeUserRejected, "Operation rejected by user"))
		r.Status = messages.ToolFinished_DENIED
		return r
	}
	ws, err := workspace.Open(workspace.Options{Dir: dir, Trust: x.o.Trust})
	if err != nil {
		return answer(m, tools.Errorf(tools.CodeWorkspaceNotAvailable, "No active project"))
	}
	defer func() { _ = ws.Close() }() // a folder's handle: nothing is lost with it
	known := make(map[string]string, len(m.GetKnownFiles()))
	for _, f := range m.GetKnownFiles() {
		known[f.GetPath()] = f.GetSha256()
	}
	res, err := tool.Run(&tools.Context{
		Signal: ctx, Agent: m.GetAgent(), ExecID: m.GetExecId(), Sandbox: x.o.Sandbox, Trust: x.o.Trust, Known: known, Workspace: ws, ProcessEnv: x.o.Env,
	}, json.RawMessage(m.GetArguments()))
	if err != nil {
		return answer(m, err)
	}
	return succeeded(m, res)
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
