package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// ToolExecutor runs the tool calls of one Worker, each in a goroutine off its mailbox, with a
// context value built for that call: it asks nobody back.
//
// Owns: the calls that run, and their contexts; the jobs that calls left running, which end with it. Accepts: Execute (answered by one ToolReply,
// also when the call was cancelled or panicked), CancelCalls. Parent: Worker. It is
// stopped and never restarted: its calls end with it, and the Worker decides about them as after a crash.
type ToolExecutor struct {
	svc     *Services
	log     *slog.Logger
	running map[string]*execution
	look    act.Timer // for calls that are to be given up; it stays when they end before, so that most calls set none
	lookAt  time.Time // when it is due
	jobs    *tools.Jobs
	beside  bool // jobs knows of those on other machines
}

type execution struct {
	asker  *actor.PID
	cmd    *messages.Execute
	cancel context.CancelCauseFunc
	until  time.Time // when it is given up; zero: not yet known
	ends   bool      // it was cancelled
}

// overdue says that calls may be found which heard neither their cancel nor the end of their time.
type overdue struct{ gen uint64 }

// callBegun says that a call has waited for nobody any more.
type callBegun struct{ exec string }

// callDone is what the goroutine of a call sends to its executor.
type callDone struct{ reply *messages.ToolReply }

var (
	errCallTimeout = errors.New("the call's time is up")
	errHalted      = errors.New("the process of the call is stopping")
	errDetached    = errors.New("the call's workspace was detached")
)

// detachReason of a CancelCalls says that the workspace of the calls was detached.
const detachReason = "detach"

// detachedText is what the model reads of a call whose workspace was detached while it ran.
const detachedText = "Stopped before it finished: its workspace was detached. It may have had effects until then."

// haltReason of a CancelCalls says that nobody will hear what became of the calls.
const haltReason = "halt"

// haltedText is what the model reads of a call that was ended with the process, or the worker, that ran it.
const haltedText = "Stopped before it finished: it was ended together with the process that ran it, and may have had effects until then."

func newToolExecutor(svc *Services) *ToolExecutor {
	return &ToolExecutor{svc: svc, log: svc.Log, running: make(map[string]*execution), jobs: tools.NewJobs(svc.Limits.Jobs, svc.job)}
}

// Receive is the dispatch table.
func (x *ToolExecutor) Receive(c actor.Context) {
	defer x.rescue(c)
	switch m := c.Message().(type) {
	case *messages.Execute:
		x.execute(c, m)
	case *messages.CancelCalls:
		x.cancel(c, m)
	case *callBegun:
		x.begun(c, m)
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

// rescue ends an executor whose handler panicked: what it knows may be wrong. A call that it was just given never began, and
// is answered so; the others end with it, and their Worker decides about them.
func (x *ToolExecutor) rescue(c actor.Context) {
	r := recover()
	if r == nil {
		return
	}
	x.log.Error("tool executor panicked", "err", fmt.Sprint(r), "message", fmt.Sprintf("%T", c.Message()), "stack", string(debug.Stack()))
	if m, ok := c.Message().(*messages.Execute); ok {
		delete(x.running, m.GetExecId())
		c.Respond(failedReply(m, messages.ToolFinished_ERROR, tools.CodeInternalError, "Unexpected error: the executor crashed before the call began"))
	}
	c.Stop(c.Self())
}

func (x *ToolExecutor) execute(c actor.Context, m *messages.Execute) {
	if x.running[m.GetExecId()] != nil {
		c.Respond(failedReply(m, messages.ToolFinished_ERROR, tools.CodeDuplicateCallID, "this call is running already"))
		return
	}
	ctx, cancel := context.WithCancelCause(telemetry.From(context.Background(), m.GetTraceparent()))
	e := &execution{asker: c.Sender(), cmd: m, cancel: cancel}
	x.running[m.GetExecId()] = e
	if !waits(m) {
		x.begun(c, &callBegun{m.GetExecId()})
	}
	if worker := m.GetWorkerId(); !x.beside { // before anything runs that looks at jobs
		x.beside = true
		x.jobs.Beside(func() *tools.Jobs { return x.svc.away.peek(worker) })
	}
	sys, self, worker := c.ActorSystem(), c.Self(), c.Parent()
	r := &run{svc: x.svc, sys: sys, worker: worker, executor: self, m: m, start: time.Now(), jobs: x.jobs}
	x.svc.spawn(sys, self, func(p *act.Panic) any { return &callDone{r.crashed(p)} }, func() any {
		defer cancel(nil)
		return &callDone{r.fit(r.do(ctx))}
	})
}

// waits says whether a call may have to wait for others before it begins: that is no time of its own.
func waits(m *messages.Execute) bool {
	return !m.GetPure() && m.GetWorkspace() != nil && !m.GetPrepare() && !m.GetPreview()
}

// begun sets when a call that begins is given up. One that delegates takes as long as it takes: its child has limits.
func (x *ToolExecutor) begun(c actor.Context, m *callBegun) {
	if e := x.running[m.exec]; e != nil && e.cmd.GetTimeoutMs() > 0 && !e.ends {
		x.giveUp(c, e, time.Duration(e.cmd.GetTimeoutMs())*time.Millisecond+x.svc.Limits.Grace)
	}
}

func (x *ToolExecutor) done(c actor.Context, m *callDone) {
	e := x.running[m.reply.GetExecId()]
	if e == nil {
		return // stopped or answered before
	}
	delete(x.running, m.reply.GetExecId())
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
	cause := context.Canceled
	switch m.GetReason() {
	case haltReason:
		cause = errHalted
	case detachReason:
		cause = errDetached
	}
	for id, e := range x.running {
		if len(m.GetExecIds()) == 0 || slices.Contains(m.GetExecIds(), id) {
			e.cancel(cause)
			e.ends = true
			x.giveUp(c, e, x.patience(e.cmd))
		}
	}
}

// giveUp sets when a call is answered for, whether it has ended or not.
func (x *ToolExecutor) giveUp(c actor.Context, e *execution, after time.Duration) {
	e.until = time.Now().Add(after)
	x.lookFor(c, e)
}

// lookFor sees to it that a call is looked at when it is due.
func (x *ToolExecutor) lookFor(c actor.Context, e *execution) {
	if !x.lookAt.IsZero() && !e.until.Before(x.lookAt) {
		return
	}
	x.lookAt = e.until
	x.look.Set(c, time.Until(e.until), func(gen uint64) any { return &overdue{gen} })
}

// overdue answers for calls that do not end, and looks again when the next one is due.
func (x *ToolExecutor) overdue(c actor.Context, m *overdue) {
	if !x.look.Fresh(m.gen) {
		return
	}
	x.look.Stop()
	x.lookAt = time.Time{}
	now := time.Now()
	for _, e := range x.running {
		switch {
		case e.until.IsZero():
		case e.until.After(now):
			x.lookFor(c, e)
		default:
			x.answerFor(c, e)
		}
	}
}

// answerFor answers for a call that does not end: its outcome is unknown. Its goroutine goes on, and the
// workspace is not passed on before that has ended, too.
func (x *ToolExecutor) answerFor(c actor.Context, e *execution) {
	x.log.Error("tool does not end", "tool", e.cmd.GetTool(), "call", e.cmd.GetExecId())
	delete(x.running, e.cmd.GetExecId())
	if e.cmd.GetPreview() || e.cmd.GetPrepare() { // it had no effect
		c.Send(e.asker, failedReply(e.cmd, messages.ToolFinished_TIMEOUT, tools.CodeTimeout, "Timed out before it began: what it is about could not be looked at"))
		return
	}
	c.Send(e.asker, failedReply(e.cmd, messages.ToolFinished_INTERRUPTED_UNKNOWN, tools.CodeInterrupted, conversation.InterruptedText))
}

// stop ends every call and every job. What became of them the ledger is told: the Worker hears of the end, and decides.
func (x *ToolExecutor) stop() {
	x.look.Stop()
	for _, e := range x.running {
		e.cancel(errHalted)
	}
	x.running = nil
	x.jobs.Close()
}

func failedReply(m *messages.Execute, status messages.ToolFinished_Status, code, text string) *messages.ToolReply {
	return &messages.ToolReply{ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: status, ErrorCode: code, Content: text}
}
