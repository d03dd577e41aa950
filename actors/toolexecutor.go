package actors

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

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// ToolExecutor runs the tool calls of one Worker, each in a goroutine off its mailbox, with a
// context value built for that call: it asks nobody back.
//
// Owns: the calls that run, and their contexts. Accepts: Execute (answered by one ToolReply,
// also when the call was cancelled or panicked), CancelCalls. Parent: Worker. It is
// stopped and never restarted: its calls end with it, and the Worker decides about them as after a crash.
type ToolExecutor struct {
	svc     *Services
	log     *slog.Logger
	running map[string]*execution
}

type execution struct {
	asker  *actor.PID
	cmd    *messages.Execute
	cancel context.CancelCauseFunc
	given  act.Timer // when it is given up
}

// overdue gives up a call that heard neither its cancel nor the end of its time.
type overdue struct {
	exec string
	gen  uint64
}

// callDone is what the goroutine of a call sends to its executor.
type callDone struct{ reply *messages.ToolReply }

var errCallTimeout = errors.New("the call's time is up")

func newToolExecutor(svc *Services) *ToolExecutor {
	return &ToolExecutor{svc: svc, log: svc.Log, running: make(map[string]*execution)}
}

// Receive is the dispatch table.
func (x *ToolExecutor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.Execute:
		x.execute(c, m)
	case *messages.CancelCalls:
		x.cancel(c, m)
	case *callDone:
		x.done(c, m)
	case *overdue:
		x.overdue(c, m)
	case *actor.Stopping:
		x.stop()
	case *actor.Stopped:
		x.running = nil
	default:
		act.Unexpected(c, x.log)
	}
}

func (x *ToolExecutor) execute(c actor.Context, m *messages.Execute) {
	if x.running[m.GetExecId()] != nil {
		c.Respond(failedReply(m, messages.ToolFinished_ERROR, tools.CodeDuplicateCallID, "this call is running already"))
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	e := &execution{asker: c.Sender(), cmd: m, cancel: cancel}
	x.running[m.GetExecId()] = e
	x.giveUp(c, e, time.Duration(m.GetTimeoutMs())*time.Millisecond+x.svc.Limits.Grace)
	sys, self, worker := c.ActorSystem(), c.Self(), c.Parent()
	x.svc.spawn(sys, self, func(p *act.Panic) any {
		x.log.Error("tool panicked", "tool", m.GetTool(), "call", m.GetExecId(), "err", p.Error(), "stack", p.Stack)
		return &callDone{failedReply(m, messages.ToolFinished_ERROR, tools.CodeInternalError, "Unexpected error: the tool crashed")}
	}, func() any {
		defer cancel(nil)
		r := &run{svc: x.svc, sys: sys, worker: worker, m: m}
		start := time.Now()
		reply := r.do(ctx)
		x.svc.cleanReply(reply)
		reply.DurationUs = time.Since(start).Microseconds()
		return &callDone{reply}
	})
}

func (x *ToolExecutor) done(c actor.Context, m *callDone) {
	e := x.running[m.reply.GetExecId()]
	if e == nil {
		return // stopped or answered before
	}
	e.given.Stop()
	delete(x.running, m.reply.GetExecId())
	bound(m.reply)
	c.Send(e.asker, m.reply)
}

// bound makes a result fit for the journal and the model: a tool of the program may return anything.
func bound(r *messages.ToolReply) {
	content, was := cut(mended(r.GetContent()), maxResult)
	r.Content, r.Truncated = content, r.GetTruncated() || was
	r.Diff, _ = cut(mended(r.GetDiff()), maxResult)
	if len(r.GetDetailsJson())+len(r.GetMetaJson()) > maxResult {
		r.DetailsJson, r.MetaJson, r.Truncated = "", "", true
	}
}

func (x *ToolExecutor) cancel(c actor.Context, m *messages.CancelCalls) {
	for id, e := range x.running {
		if len(m.GetExecIds()) == 0 || slices.Contains(m.GetExecIds(), id) {
			e.cancel(context.Canceled)
			x.giveUp(c, e, x.svc.Limits.Grace)
		}
	}
}

// giveUp sets when a call is answered for, whether it has ended or not.
func (x *ToolExecutor) giveUp(c actor.Context, e *execution, after time.Duration) {
	exec := e.cmd.GetExecId()
	e.given.Set(c, after, func(gen uint64) any { return &overdue{exec, gen} })
}

// overdue answers for a call that does not end: its outcome is unknown. Its goroutine goes on, and the
// workspace is not passed on before that has ended, too.
func (x *ToolExecutor) overdue(c actor.Context, m *overdue) {
	e := x.running[m.exec]
	if e == nil || !e.given.Fresh(m.gen) {
		return
	}
	x.log.Error("tool does not end", "tool", e.cmd.GetTool(), "call", m.exec)
	e.given.Stop()
	delete(x.running, m.exec)
	c.Send(e.asker, failedReply(e.cmd, messages.ToolFinished_INTERRUPTED_UNKNOWN, tools.CodeInterrupted, conversation.InterruptedText))
}

// stop ends every call. What became of them is not known here: the Worker hears of the end, and decides.
func (x *ToolExecutor) stop() {
	for _, e := range x.running {
		e.given.Stop()
		e.cancel(context.Canceled)
	}
	x.running = nil
}

func failedReply(m *messages.Execute, status messages.ToolFinished_Status, code, text string) *messages.ToolReply {
	return &messages.ToolReply{ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: status, ErrorCode: code, Content: text}
}

// run is one call under way, in its own goroutine.
type run struct {
	svc    *Services
	sys    *actor.ActorSystem
	worker *actor.PID
	m      *messages.Execute
}

// do runs the call and says what became of it.
func (r *run) do(ctx context.Context) *messages.ToolReply {
	m := r.m
	tool, err := r.svc.Tools.Lookup(m.GetTool())
	if err != nil {
		return r.failed(ctx, err)
	}
	timeout := time.Duration(m.GetTimeoutMs()) * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errCallTimeout)
	defer cancel()
	if !m.GetPure() && m.GetLease() != nil && !m.GetPrepare() {
		if reply := r.begin(ctx); reply != nil {
			return reply
		}
		defer r.end()
	}
	tc, cleanup, err := r.context(ctx, tool.Spec())
	if err != nil {
		return r.failed(ctx, err)
	}
	defer cleanup()
	args := json.RawMessage(m.GetArguments())
	switch {
	case m.GetPrepare():
		return r.prepare(tc, tool, args)
	case m.GetReconcile():
		return r.reconcile(tc, tool, args)
	}
	res, err := tool.Run(tc, args)
	if err != nil {
		return r.failed(ctx, err)
	}
	return r.succeeded(res)
}

// begin counts the effect under its lease token: a stale holder starts nothing.
func (r *run) begin(ctx context.Context) *messages.ToolReply {
	pid := workspacePID(r.sys, r.m.GetWorkspace().GetId())
	msg := &messages.EffectBegun{Workspace: r.m.GetLease().GetWorkspace(), Token: r.m.GetLease().GetToken(), ExecId: r.m.GetExecId()}
	_, err := act.Ask[*messages.EffectAllowed](ctx, r.sys, pid, msg)
	if err == nil {
		return nil
	}
	r.end() // the effect may have been counted, though its allowance was not waited for
	if ctx.Err() != nil {
		return r.failed(ctx, err)
	}
	return failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeInterrupted, "Not started: "+err.Error())
}

func (r *run) end() {
	r.sys.Root.Send(workspacePID(r.sys, r.m.GetWorkspace().GetId()),
		&messages.EffectEnded{Workspace: r.m.GetLease().GetWorkspace(), Token: r.m.GetLease().GetToken(), ExecId: r.m.GetExecId()})
}

// context builds the value that the tool sees (acceptance rows 2 to 9).
func (r *run) context(ctx context.Context, spec *tools.Spec) (*tools.Context, func(), error) {
	m := r.m
	tc := &tools.Context{
		Signal: ctx, Agent: m.GetAgent(), ExecID: m.GetExecId(), Sandbox: r.svc.Sandbox, Redact: r.svc.Redact.String,
		Trust: m.GetWorkspace().GetTrust(), Known: make(map[string]string, len(m.GetKnownFiles())),
	}
	for _, f := range m.GetKnownFiles() {
		tc.Known[f.GetPath()] = f.GetSha256()
	}
	if g := m.GetWorkspace(); g != nil {
		ws, err := r.svc.folders.handle(g)
		if err != nil {
			return nil, nil, tools.Errorf(tools.CodeWorkspaceNotAvailable, "No active project: %v", err)
		}
		tc.Workspace, tc.WorkspaceInfo = ws, workspaceInfo(g)
	}
	if h := m.GetHome(); h != nil {
		if ws, err := r.svc.folders.handle(h); err == nil { // without a home output is not spilled
			tc.Home = ws
		}
	}
	if r.svc.Values != nil {
		v, err := r.svc.Values(ctx, Call{m.GetSessionId(), m.GetWorkerId(), m.GetAgent(), m.GetTool(), m.GetExecId()})
		if err != nil {
			return nil, nil, fmt.Errorf("add the program's values: %w", err)
		}
		tc.Values = v
	}
	env, err := r.svc.Env(m.GetWorkspace().GetId(), m.GetEnv(), tc.Trust)
	if err != nil {
		return nil, nil, tools.Errorf(tools.CodeInvalidArguments, "environment: %v", err)
	}
	tc.ProcessEnv = env
	tc.Progress = r.progress
	if spec.NoTemp {
		return tc, func() {}, nil
	}
	tc.ToolTempDir = filepath.Join(r.svc.TempDir, m.GetExecId())
	if err := os.Mkdir(tc.ToolTempDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, nil, fmt.Errorf("make the call's temporary folder: %w", err)
	}
	return tc, func() {
		if err := os.RemoveAll(tc.ToolTempDir); err != nil {
			r.svc.Log.Warn("temporary folder of a call stays", "call", m.GetExecId(), "err", err)
		}
	}, nil
}

func workspaceInfo(g *messages.WorkspaceGrant) *messages.WorkspaceInfo {
	return &messages.WorkspaceInfo{Mode: g.GetMode(), WorkingDirectory: g.GetPath(), ProjectDir: g.GetPath(), ClonePath: g.GetPath()}
}

func (r *run) progress(p *messages.Progress) {
	p.ExecId, p.CallId, p.Text = r.m.GetExecId(), r.m.GetCallId(), r.svc.Redact.String(p.GetText())
	r.sys.Root.Send(r.worker, p)
}

func (r *run) prepare(tc *tools.Context, tool tools.Tool, args json.RawMessage) *messages.ToolReply {
	reply := failedReply(r.m, messages.ToolFinished_OK, "", "")
	reply.Prepared = true
	p, ok := tool.(tools.Preparer)
	if !ok {
		return reply
	}
	files, err := p.Prepare(tc, args)
	if err != nil { // the call would fail in the same way, before any effect
		return r.failed(tc.Signal, err)
	}
	reply.Files = files
	return reply
}

// reconcile asks the world whether the call happened before the process died.
func (r *run) reconcile(tc *tools.Context, tool tools.Tool, args json.RawMessage) *messages.ToolReply {
	rec, ok := tool.(tools.Reconciler)
	if !ok {
		reply := failedReply(r.m, messages.ToolFinished_INTERRUPTED_UNKNOWN, tools.CodeInterrupted, conversation.InterruptedText)
		reply.Unknown = true
		return reply
	}
	res, err := rec.Reconcile(tc, args, r.m.GetPreconditionHashes())
	switch {
	case err == nil:
		return r.succeeded(res)
	case errors.Is(err, tools.ErrNotDone):
		reply := failedReply(r.m, messages.ToolFinished_ERROR, "", "")
		reply.NotDone = true
		return reply
	}
	r.svc.Log.Info("a call cannot be reconciled", "tool", r.m.GetTool(), "call", r.m.GetExecId(), "err", err)
	reply := failedReply(r.m, messages.ToolFinished_INTERRUPTED_UNKNOWN, tools.CodeInterrupted, conversation.InterruptedText)
	reply.Unknown = true
	return reply
}

func (r *run) succeeded(res *tools.Result) *messages.ToolReply {
	reply := failedReply(r.m, messages.ToolFinished_OK, "", "")
	if res == nil {
		return reply
	}
	reply.Content, reply.Truncated, reply.Files, reply.Diff = res.Content, res.Truncated, res.Files, res.Diff
	reply.DetailsJson, reply.MetaJson = asJSON(res.Details), asJSON(res.Meta)
	return reply
}

// failed turns an error into the result that the model reads. Expected failures carry
// their code; anything else is a defect, logged here and worded generally.
func (r *run) failed(ctx context.Context, err error) *messages.ToolReply {
	var te *tools.Error
	switch {
	case errors.As(err, &te):
		reply := failedReply(r.m, statusOf(te.Code), te.Code, te.Message)
		reply.DetailsJson = asJSON(te.Details)
		return reply
	case errors.Is(context.Cause(ctx), errCallTimeout):
		return failedReply(r.m, messages.ToolFinished_TIMEOUT, tools.CodeTimeout, fmt.Sprintf("Timed out after %d ms", r.m.GetTimeoutMs()))
	case ctx.Err() != nil:
		return failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeCancelled, "Cancelled before it finished; it may have had effects.")
	}
	r.svc.Log.Error("tool failed unexpectedly", "tool", r.m.GetTool(), "call", r.m.GetExecId(), "err", err)
	return failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeInternalError, "Unexpected error: "+err.Error())
}

func statusOf(code string) messages.ToolFinished_Status {
	switch code {
	case tools.CodeTimeout:
		return messages.ToolFinished_TIMEOUT
	case tools.CodeCancelled:
		return messages.ToolFinished_CANCELLED
	case tools.CodeInvalidArguments:
		return messages.ToolFinished_BAD_ARGS
	}
	return messages.ToolFinished_ERROR
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
