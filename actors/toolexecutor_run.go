package actors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// run is one call under way, in its own goroutine.
type run struct {
	svc      *Services
	sys      *actor.ActorSystem
	worker   *actor.PID
	executor *actor.PID
	m        *messages.Execute
	start    time.Time
	jobs     *tools.Jobs // of the worker
}

// begun says that its time begins.
func (r *run) begun() { r.sys.Root.Send(r.executor, &callBegun{r.m.GetExecId()}) }

// fit gives a result as it may be told and written down: without secrets and bounded. From then on nobody writes to it.
func (r *run) fit(reply *messages.ToolReply) *messages.ToolReply {
	out := r.svc.cleanReply(reply)
	bound(out)
	out.DurationUs = time.Since(r.start).Microseconds()
	return out
}

// do runs the call and says what became of it.
func (r *run) do(ctx context.Context) *messages.ToolReply {
	m := r.m
	tool, err := r.svc.Tools.Lookup(m.GetTool())
	if err != nil {
		return r.failed(ctx, err)
	}
	if d, ok := tool.(*Delegate); ok && !m.GetPreview() {
		return r.delegate(ctx, d)
	}
	if s, ok := tool.(*Send); ok && !m.GetPreview() {
		return r.send(ctx, s)
	}
	if waits(m) {
		if reply := r.begin(ctx); reply != nil {
			return reply
		}
		defer r.end()
		r.begun()
	}
	timeout := cmp.Or(time.Duration(m.GetTimeoutMs())*time.Millisecond, tools.DefaultTimeout)
	ctx, cancel := act.Within(ctx, r.svc.Clock, timeout, errCallTimeout)
	defer cancel()
	if travels(m.GetWorkspace(), tool.Spec()) {
		return r.away(ctx, tool.Spec())
	}
	if reply := r.outputAway(ctx, tool.Spec()); reply != nil {
		return reply
	}
	if waits(m) {
		r.svc.sweep(ctx, m.GetWorkspace())
	}
	tc, cleanup, err := r.context(ctx, tool.Spec())
	if err != nil {
		return r.failed(ctx, err)
	}
	defer cleanup()
	args := json.RawMessage(m.GetArguments())
	switch {
	case m.GetPreview():
		return r.preview(tc, tool, args)
	case m.GetPrepare():
		return r.prepare(tc, tool, args)
	case m.GetReconcile():
		return r.reconcile(tc, tool, args)
	}
	if reply := r.unapproved(tc, tool, args); reply != nil {
		return reply
	}
	if reply := r.before(ctx, tc, args); reply != nil {
		return reply
	}
	var reply *messages.ToolReply
	if once(tool.Spec().Effect) {
		reply = r.noted(func() *messages.ToolReply { return r.call(ctx, tc, tool, args) })
	} else {
		reply = r.call(ctx, tc, tool, args)
	}
	r.after(ctx, tc, reply)
	return reply
}

// log names the trace of the call's turn, when it has one.
func (r *run) log() *slog.Logger {
	if id := telemetry.TraceOf(r.m.GetTraceparent()); id != "" {
		return r.svc.Log.With("trace_id", id)
	}
	return r.svc.Log
}

// noted runs a call that must not run twice, and notes in the ledger that it begins and what it came to: before its
// lease can pass on, and before anybody is told.
func (r *run) noted(call func() *messages.ToolReply) *messages.ToolReply {
	if err := r.svc.ledger.Begin(r.m.GetExecId(), r.m.GetAttempt()); err != nil { // then a crash leaves it unknown
		r.log().Warn("a call is not in the ledger", "call", r.m.GetExecId(), "err", err)
	}
	reply := r.fit(call())
	if err := r.svc.ledger.End(r.m.GetAttempt(), reply); err != nil {
		r.log().Warn("a result is not in the ledger", "call", r.m.GetExecId(), "err", err)
	}
	return reply
}

// call runs the tool. A panic of it is its result.
func (r *run) call(ctx context.Context, tc *tools.Context, tool tools.Tool, args json.RawMessage) *messages.ToolReply {
	var res *tools.Result
	var err error
	if p := act.Guard(func() { res, err = tool.Run(tc, args) }); p != nil {
		return r.crashed(p)
	}
	if err != nil {
		return r.failed(ctx, err)
	}
	return r.succeeded(res)
}

// crashed is the result of a tool that panicked. People find in the log where.
func (r *run) crashed(p *act.Panic) *messages.ToolReply {
	r.log().Error("tool panicked", "tool", r.m.GetTool(), "call", r.m.GetExecId(), "err", p.Error(), "stack", p.Stack)
	return failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeInternalError, "Unexpected error: the tool crashed")
}

// begin counts the effect under its lease token: a stale holder starts nothing. It is also noted for the Workspace's
// successor, should that die: before it is asked, so that there is no moment between in which nobody knows of it.
func (r *run) begin(ctx context.Context) *messages.ToolReply {
	if r.m.GetLease() == nil {
		return failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeInterrupted, "Not started: the workspace is not held")
	}
	var err error
	r.eachLease(func(l *messages.LeaseToken, _ *actor.PID) { r.svc.folders.began(l, r.m.GetExecId()) })
	r.eachLease(func(l *messages.LeaseToken, pid *actor.PID) {
		if err == nil {
			msg := &messages.EffectBegun{Workspace: l.GetWorkspace(), Token: l.GetToken(), Child: l.GetChild(), ExecId: r.m.GetExecId()}
			_, err = act.AskSoon[*messages.EffectAllowed](ctx, r.sys, pid, msg)
		}
	})
	if err == nil {
		return nil
	}
	r.end() // the effect may have been counted, though its allowance was not waited for
	if ctx.Err() != nil {
		return r.failed(ctx, err)
	}
	if f := new(messages.Failure); errors.As(err, &f) && f.GetCode() == messages.CodeDenied {
		return failedReply(r.m, messages.ToolFinished_DENIED, tools.CodePermissionDenied, r.said("Access denied: ", f))
	}
	return failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeInterrupted, "Not started: "+err.Error())
}

func (r *run) end() {
	r.eachLease(func(l *messages.LeaseToken, pid *actor.PID) {
		r.svc.folders.ended(l, r.m.GetExecId())
		r.sys.Root.Send(pid, &messages.EffectEnded{Workspace: l.GetWorkspace(), Token: l.GetToken(), ExecId: r.m.GetExecId()})
	})
}

// eachLease yields the lease that the call runs under, and those of the folders that overlap its workspace.
func (r *run) eachLease(yield func(*messages.LeaseToken, *actor.PID)) {
	yield(r.m.GetLease(), workspacePID(r.sys, r.m.GetWorkspace().GetId()))
	for _, l := range r.m.GetShares() {
		yield(l, workspacePID(r.sys, idOf(l)))
	}
}

// hold counts what the call leaves running as an effect of its own under the call's leases, so that the workspace is not passed
// on while it runs (I6). The Workspace has it ended when somebody else waits.
func (r *run) hold(ctx context.Context, id string, end func(why string)) (func(), error) {
	if r.m.GetLease() == nil {
		return nil, tools.Errorf(tools.CodeInterrupted, "Not started: the workspace is not held")
	}
	r.svc.folders.keep(id, &leftRunning{worker: r.m.GetWorkerId(), since: r.svc.Now(), session: r.m.GetSessionId(), workspace: r.m.GetLease().GetWorkspace(), command: r.commandLeft(), end: end})
	release := func() {
		r.svc.folders.keep(id, nil)
		r.eachLease(func(l *messages.LeaseToken, pid *actor.PID) {
			r.svc.folders.ended(l, id)
			r.sys.Root.Send(pid, &messages.EffectEnded{Workspace: l.GetWorkspace(), Token: l.GetToken(), ExecId: id})
		})
	}
	var err error
	r.eachLease(func(l *messages.LeaseToken, pid *actor.PID) {
		r.svc.folders.began(l, id)
		if err == nil {
			_, err = act.AskSoon[*messages.EffectAllowed](ctx, r.sys, pid, &messages.EffectBegun{Workspace: l.GetWorkspace(), Token: l.GetToken(), Child: l.GetChild(), ExecId: id})
		}
	})
	if err != nil {
		release()
		return nil, tools.Errorf(tools.CodeInterrupted, "Not started: %v", err)
	}
	return release, nil
}

// context builds the value that the tool sees (acceptance rows 2 to 9).
func (r *run) context(ctx context.Context, spec *tools.Spec) (*tools.Context, func(), error) {
	m := r.m
	tc := &tools.Context{
		Signal: ctx, Agent: m.GetAgent(), ExecID: m.GetExecId(), Reach: r.svc.Reach, Redact: r.svc.Redact.String,
		Trust: m.GetWorkspace().GetTrust(), Known: make(map[string]string, len(m.GetKnownFiles())), Fresh: m.GetFresh(),
	}
	var err error
	if tc.Sandbox, err = r.svc.sandboxFor(ctx, m.GetWorkspace().GetMode()); err != nil {
		return nil, nil, tools.Errorf(tools.CodeSandboxUnavailable, "Not run: the workspace is one of mode container, and no container can be made: %v", err)
	}
	for _, f := range m.GetKnownFiles() {
		tc.Known[f.GetPath()] = f.GetSha256()
	}
	if g := m.GetWorkspace(); g != nil {
		if g.GetOwner() == "" { // else its files are elsewhere
			ws, err := r.svc.folders.handle(g)
			if err != nil {
				return nil, nil, tools.Errorf(tools.CodeWorkspaceNotAvailable, "No active project: %v", err)
			}
			tc.Workspace = ws
		}
		tc.WorkspaceID, tc.WorkspaceInfo = g.GetId(), workspaceInfo(g)
		tc.Fields = &callFields{run: r}
		tc.Enter()
	}
	if h := m.GetHome(); h != nil {
		if ws, err := r.svc.folders.handle(h); err == nil { // without a home output is not spilled
			tc.Home = ws
		}
	}
	if r.svc.Values != nil {
		v, err := r.svc.Values(ctx, r.name())
		if err != nil {
			return nil, nil, fmt.Errorf("add the program's values: %w", err)
		}
		tc.Values = v
	}
	if err := r.environment(ctx, tc, spec); err != nil {
		return nil, nil, err
	}
	tc.Progress, tc.Jobs, tc.Hold = r.progress, r.jobs, func(id string, end func(string)) (func(), error) { return r.hold(ctx, id, end) }
	if spec.Name == tools.WriteAccessName {
		tc.WriteAccess = func() error { return r.raise(ctx) }
	}
	if spec.NoTemp {
		return tc, func() {}, nil
	}
	tc.ToolTempDir = filepath.Join(r.svc.TempDir, m.GetExecId())
	if err := os.Mkdir(tc.ToolTempDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, nil, fmt.Errorf("make the call's temporary folder: %w", err)
	}
	return tc, func() {
		if err := os.RemoveAll(tc.ToolTempDir); err != nil {
			r.log().Warn("temporary folder of a call stays", "call", m.GetExecId(), "err", err)
		}
	}, nil
}

func workspaceInfo(g *messages.WorkspaceGrant) *messages.WorkspaceInfo {
	clone := cmp.Or(g.GetClonePath(), g.GetPath())
	return &messages.WorkspaceInfo{Mode: g.GetMode(), WorkingDirectory: g.GetPath(), ProjectDir: cmp.Or(g.GetProjectDir(), clone), ClonePath: clone}
}

// progress sends a sign of life on. The tool may use its own again.
func (r *run) progress(p *messages.Progress) {
	own := proto.CloneOf(p)
	own.ExecId, own.CallId, own.Text = r.m.GetExecId(), r.m.GetCallId(), r.svc.Redact.String(p.GetText())
	r.sys.Root.Send(r.worker, own)
}

func (r *run) prepare(tc *tools.Context, tool tools.Tool, args json.RawMessage) *messages.ToolReply {
	reply := failedReply(r.m, messages.ToolFinished_OK, "", "")
	reply.Prepared = true
	p, ok := tool.(tools.Preparer)
	if !ok {
		return reply
	}
	var files []*messages.FileHash
	var err error
	if crash := act.Guard(func() { files, err = p.Prepare(tc, args) }); crash != nil {
		return r.crashed(crash)
	}
	if err != nil { // the call would fail in the same way, before any effect
		return r.unfit(tc.Signal, err)
	}
	if bad := r.approvedArguments(args); bad != nil {
		return bad
	}
	if !r.approvedFiles(files) {
		return r.changed()
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
	var res *tools.Result
	var err error
	if p := act.Guard(func() { res, err = rec.Reconcile(tc, args, r.m.GetPreconditionHashes()) }); p != nil {
		r.crashed(p)
		err = p // what became of the call is as unknown as before
	}
	switch {
	case err == nil:
		return r.succeeded(res)
	case errors.Is(err, tools.ErrNotDone):
		reply := failedReply(r.m, messages.ToolFinished_ERROR, "", "")
		reply.NotDone = true
		return reply
	}
	r.log().Info("a call cannot be reconciled", "tool", r.m.GetTool(), "call", r.m.GetExecId(), "err", err)
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
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errDetached):
		return failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeWorkspaceNotAvailable, detachedText)
	case errors.As(err, &te) && te.Code == tools.CodeCancelled && errors.Is(context.Cause(ctx), errHalted):
		return failedReply(r.m, messages.ToolFinished_CANCELLED, te.Code, haltedText+strings.TrimPrefix(te.Message, "the call was cancelled"))
	case errors.As(err, &te):
		reply := failedReply(r.m, statusOf(te), te.Code, te.Message)
		reply.DetailsJson = asJSON(te.Details)
		return reply
	case errors.Is(context.Cause(ctx), errCallTimeout):
		return failedReply(r.m, messages.ToolFinished_TIMEOUT, tools.CodeTimeout, fmt.Sprintf("Timed out after %d ms", r.m.GetTimeoutMs()))
	case errors.Is(context.Cause(ctx), errHalted):
		return failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeCancelled, haltedText)
	case ctx.Err() != nil:
		return failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeCancelled, "Cancelled before it finished; it may have had effects.")
	}
	r.log().Error("tool failed unexpectedly", "tool", r.m.GetTool(), "call", r.m.GetExecId(), "err", err)
	return failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeInternalError, "Unexpected error: "+err.Error())
}

func statusOf(e *tools.Error) messages.ToolFinished_Status {
	if e.Unknown {
		return messages.ToolFinished_INTERRUPTED_UNKNOWN
	}
	switch e.Code {
	case tools.CodeTimeout:
		return messages.ToolFinished_TIMEOUT
	case tools.CodeCancelled:
		return messages.ToolFinished_CANCELLED
	case tools.CodeInvalidArguments:
		return messages.ToolFinished_BAD_ARGS
	}
	return messages.ToolFinished_ERROR
}
