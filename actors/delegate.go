package actors

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

//go:embed delegate.md
var delegateDoc string

// Delegate is the tool by which an agent has another one do a part of its work: a child, a worker of the same session, whose final
// answer is the result. It is of the actors: what it does only a ToolExecutor can, which asks the Session (ADR 46).
type Delegate struct{ spec *tools.Spec }

// DelegateName is what models call it.
const DelegateName = "delegate"

const onlyOneLevel = "Access denied: you were delegated to yourself, and cannot delegate further; do it with your own tools, or answer what is left to do"

// childPrompt stands in the system prompt of a child.
const childPrompt = `
# Your task
Another agent has delegated a task to you, and waits for it in the same workspaces. The first message is all that you know of its work.
Your last answer goes to that agent as it stands, and nothing else of what you do: say what you found or did, with paths, and what is left to do.
You cannot ask it anything, and you cannot delegate.
`

// backgroundPrompt stands in the system prompt of a child that nobody waits for.
const backgroundPrompt = `
# Your task
Another agent has delegated a task to you, and goes on meanwhile. The first message is all that you know of its work.
Your last answer goes to that agent as it stands, as a message: say what you found or did, with paths, and what is left to do.
You can write to it before (send, to parent), and you cannot delegate.
`

// NewDelegate makes the tool. It names the agents that there are.
func NewDelegate(agents []string) *Delegate {
	known := slices.DeleteFunc(slices.Sorted(slices.Values(agents)), func(name string) bool { return name == DefaultAgent })
	which := "Which agent does it; left out: one like you."
	if len(known) > 0 {
		which = "Which agent does it: " + strings.Join(known, ", ") + "; left out: one like you."
	}
	describe, _ := json.Marshal(which) // of a string: cannot fail
	return &Delegate{&tools.Spec{
		Name: DelegateName, Description: delegateDoc, Effect: messages.Effect_RECONCILABLE, NoWorkspace: true, NoTemp: true,
		Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["task"],"properties":{
"task":{"type":"string","minLength":1,"maxLength":65536,"description":"What is to be done, with everything that one must know for it: the other agent has not read this conversation."},
"agent":{"type":"string","maxLength":64,"description":` + string(describe) + `},
"background":{"type":"boolean","description":"Do not wait: the call ends at once, and the answer comes later as a message, when you have done what you are doing."},
"workspace_id":{"type":"string","description":"The one workspace that the other agent works in, by its name or id; left out: all that you work in."}}}`),
	}}
}

type delegateArgs struct {
	Task      string `json:"task"`
	Agent     string `json:"agent"`
	Workspace string `json:"workspace_id"`

	Background bool `json:"background"`
}

// Spec implements tools.Tool.
func (d *Delegate) Spec() *tools.Spec { return d.spec }

// Run implements tools.Tool, for whoever calls it outside of a turn: there is nobody then who could have a child.
func (d *Delegate) Run(_ *tools.Context, args json.RawMessage) (*tools.Result, error) {
	if _, err := d.decode(args); err != nil {
		return nil, err
	}
	return nil, tools.Errorf(tools.CodeInvalidArguments, "delegate works in the turn of an agent alone")
}

// Reconcile implements tools.Reconciler in the same sense.
func (d *Delegate) Reconcile(*tools.Context, json.RawMessage, []*messages.FileHash) (*tools.Result, error) {
	return nil, errors.New("only the session knows its workers")
}

func (d *Delegate) decode(args json.RawMessage) (*delegateArgs, error) {
	a := &delegateArgs{}
	if err := tools.Decode(d.spec, args, a); err != nil {
		return nil, err
	}
	if strings.TrimSpace(a.Task) == "" {
		return nil, tools.Errorf(tools.CodeInvalidArguments, "the task is empty: say what is to be done")
	}
	return a, nil
}

// delegate has the Session make the call's child, or find it, and waits for its answer. It ends after the child's turn, whatever
// happens (I13): a call that was cancelled cancels that first. Only when its process or its Worker ends, it lets go.
func (r *run) delegate(ctx context.Context, d *Delegate) *messages.ToolReply {
	if r.m.GetPrepare() {
		reply := failedReply(r.m, messages.ToolFinished_OK, "", "")
		reply.Prepared = true
		return reply
	}
	task, reply := r.task(ctx, d)
	if reply != nil {
		return reply
	}
	var tc *tools.Context
	if !r.m.GetReconcile() && !r.m.GetAbandon() {
		var end func()
		if tc, end, reply = r.hooked(ctx, d); reply != nil {
			return reply
		}
		defer end()
	}
	ready, reply := r.child(ctx, task)
	if reply != nil {
		return reply
	}
	switch {
	case r.m.GetAbandon():
		return r.recallChild(ctx, ready)
	case r.m.GetChild().GetBackground() && ctx.Err() == nil:
		reply = r.begunChild(ready)
		if tc != nil {
			r.after(ctx, tc, reply)
		}
		return reply
	case r.m.GetChild().GetBackground() && !errors.Is(context.Cause(ctx), errHalted):
		return r.recallChild(ctx, ready)
	}
	res, err := act.Ask[*messages.TurnResult](ctx, r.sys, r.session(), &messages.AwaitTurn{WorkerId: ready.GetWorkerId(), InputId: ready.GetInputId()})
	switch {
	case ctx.Err() == nil:
		reply = r.childAnswered(ready, res, err)
		if tc != nil {
			r.after(ctx, tc, reply)
		}
		return reply
	case errors.Is(context.Cause(ctx), errHalted): // nobody hears it: the child goes on, or with its process
		return failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeCancelled, haltedText)
	}
	return r.recallChild(ctx, ready)
}

func (r *run) session() *actor.PID { return r.sys.NewLocalPID(root + "/" + r.m.GetSessionId()) }

// task reads what is delegated, and refuses what may not be any more.
func (r *run) task(ctx context.Context, d *Delegate) (string, *messages.ToolReply) {
	args := json.RawMessage(r.m.GetArguments())
	a, err := d.decode(args)
	if err != nil {
		return "", r.failed(ctx, err)
	}
	if bad := r.approvedArguments(args); bad != nil {
		return "", bad
	}
	if a.Workspace != "" && len(r.m.GetChild().GetPlaces()) == 0 && !r.m.GetReconcile() && !r.m.GetAbandon() {
		return "", r.failed(ctx, tools.Errorf(tools.CodeWorkspaceNotAvailable, "Workspace '%s' is not available: it was detached", a.Workspace))
	}
	return a.Task, nil
}

// hooked asks the hook before the call: there is no child of one that it refuses.
func (r *run) hooked(ctx context.Context, d tools.Tool) (*tools.Context, func(), *messages.ToolReply) {
	tc, end, err := r.context(ctx, d.Spec())
	if err != nil {
		return nil, nil, r.failed(ctx, err)
	}
	if reply := r.before(ctx, tc, json.RawMessage(r.m.GetArguments())); reply != nil {
		end()
		return nil, nil, reply
	}
	return tc, end, nil
}

// child asks the Session for the call's child. A cancel is heard when it is known whether there is one.
func (r *run) child(ctx context.Context, task string) (*messages.ChildReady, *messages.ToolReply) {
	spawn := &messages.SpawnChild{
		ExecId: r.m.GetExecId(), Parent: r.m.GetWorkerId(), Attach: r.m.GetReconcile() || r.m.GetAbandon(), Agent: r.m.GetChild().GetAgent(),
		Model: r.m.GetChild().GetModel(), System: r.m.GetChild().GetSystem(), Places: r.m.GetChild().GetPlaces(), People: r.m.GetChild().GetPeople(), Bounds: r.m.GetChild().GetBounds(),
		Task:        []*messages.Part{{Kind: &messages.Part_Text{Text: task}}},
		Traceparent: r.m.GetTraceparent(), Background: r.m.GetChild().GetBackground(),
	}
	ready, err := r.spawn(ctx, spawn)
	var f *messages.Failure
	switch {
	case err == nil:
		return ready, nil
	case !errors.As(err, &f):
		return nil, failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeDelegateFailed, "The other agent could not be started: "+err.Error())
	case f.GetCode() == messages.CodeNotFound && r.m.GetAbandon():
		return nil, failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeCancelled, neverStarted)
	case f.GetCode() == messages.CodeClosed && ctx.Err() != nil && !spawn.GetAttach():
		return nil, failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeCancelled, neverStarted)
	case f.GetCode() == messages.CodeNotFound && r.m.GetReconcile():
		reply := failedReply(r.m, messages.ToolFinished_ERROR, "", "")
		reply.NotDone = true
		return nil, reply
	case f.GetCode() == messages.CodeAgent:
		return nil, failedReply(r.m, messages.ToolFinished_BAD_ARGS, tools.CodeInvalidArguments, r.said("", f))
	}
	return nil, failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeDelegateFailed, r.said("The other agent could not be started: ", f))
}

// spawn asks until it is known whether there is a child: the copy that it works in may take minutes, and so may one that another waits for. The
// same call has the same child, however often it is asked for.
func (r *run) spawn(ctx context.Context, m *messages.SpawnChild) (*messages.ChildReady, error) {
	for {
		asking, stop := r.uncancelled(ctx)
		wait := act.Asked[*messages.ChildReady](r.sys, r.session(), m)
		hear := context.AfterFunc(ctx, func() { r.withdraw(ctx, m) }) // which comes behind the question
		ready, err := wait(asking)
		hear()
		stop()
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(context.Cause(ctx), errHalted) {
			return ready, err
		}
	}
}

// withdraw ends the making of the copy that the child of a cancelled call was to work in. Nobody waits for an answer: the question has one.
func (r *run) withdraw(ctx context.Context, m *messages.SpawnChild) {
	if !m.GetAttach() && !errors.Is(context.Cause(ctx), errHalted) {
		r.sys.Root.Send(r.session(), &messages.SpawnChild{ExecId: m.GetExecId(), Parent: m.GetParent(), Attach: true})
	}
}

// uncancelled bounds what has to be known whether the call was cancelled or not.
func (r *run) uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), r.svc.Limits.Grace+cancelWait)
}

func (r *run) said(before string, f *messages.Failure) string {
	if f.GetHint() != "" {
		return before + f.GetMessage() + " (" + f.GetHint() + ")"
	}
	return before + f.GetMessage()
}

// recallChild ends the child's turn, and says what it had come to.
func (r *run) recallChild(ctx context.Context, ready *messages.ChildReady) *messages.ToolReply {
	ctx, stop := r.uncancelled(ctx)
	defer stop()
	cancel := &messages.CancelSession{WorkerId: ready.GetWorkerId(), By: byParent, Reason: "the agent that delegated was cancelled", Inputs: true}
	if _, err := act.Ask[*messages.Cancelled](ctx, r.sys, r.session(), cancel); err != nil {
		r.svc.Log.Warn("a child that was cancelled has not said so", "worker", ready.GetWorkerId(), "call", r.m.GetExecId(), "err", err)
	}
	reply := failedReply(r.m, messages.ToolFinished_CANCELLED, tools.CodeCancelled, "Cancelled, and with it the agent that it was delegated to; that may have had effects until then.")
	res, err := act.Ask[*messages.TurnResult](ctx, r.sys, r.session(), &messages.AwaitTurn{WorkerId: ready.GetWorkerId(), InputId: ready.GetInputId()})
	switch {
	case err == nil && res.GetOutcome() == messages.TurnCompleted_DONE && !r.m.GetChild().GetBackground(): // it was faster
		return r.childAnswered(ready, res, nil)
	case err == nil:
		reply.MetaJson = asJSON(childMeta(ready, res))
	default:
		reply.MetaJson = asJSON(childMeta(ready, nil))
	}
	return reply
}

// begunChild is the result of a call that waits for nobody.
func (r *run) begunChild(ready *messages.ChildReady) *messages.ToolReply {
	reply := failedReply(r.m, messages.ToolFinished_OK, "", "Worker "+ready.GetWorkerId()+" has begun. Its answer comes as a message: go on, or end your turn, and do not wait for it here.")
	reply.MetaJson = asJSON(childMeta(ready, nil))
	return reply
}

// byParent is who cancels a child when its parent's call is.
const byParent = "parent"

// childAnswered makes of the end of a child's turn the result of the call.
func (r *run) childAnswered(ready *messages.ChildReady, res *messages.TurnResult, err error) *messages.ToolReply {
	reply := failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeDelegateFailed, "")
	reply.MetaJson = asJSON(childMeta(ready, res))
	var f *messages.Failure
	switch {
	case errors.As(err, &f):
		reply.Content = r.said("The other agent did not finish: ", f)
		return reply
	case err != nil:
		reply.Content = "The other agent did not finish: " + err.Error()
		return reply
	}
	text := strings.TrimSpace(res.GetText())
	switch res.GetOutcome() {
	case messages.TurnCompleted_DONE:
		if reply.Status, reply.ErrorCode, reply.Content = messages.ToolFinished_OK, "", text; text == "" {
			reply.Content = "(the other agent ended without a word)"
		}
		return reply
	case messages.TurnCompleted_TIMEOUT:
		reply.Status, reply.ErrorCode = messages.ToolFinished_TIMEOUT, tools.CodeTimeout
	case messages.TurnCompleted_BUDGET:
		reply.ErrorCode = tools.CodeBudgetExceeded
	case messages.TurnCompleted_ABORTED:
		reply.Status, reply.ErrorCode = messages.ToolFinished_CANCELLED, tools.CodeCancelled
	case messages.TurnCompleted_ERROR, messages.TurnCompleted_LIMIT, messages.TurnCompleted_STUCK, messages.TurnCompleted_UNSPECIFIED:
	}
	outcome := conversation.OutcomeName(res.GetOutcome())
	reply.Content = fmt.Sprintf("The other agent did not finish (%s): %s. What it did until then stays.", outcome, strings.TrimSuffix(res.GetReason(), "."))
	if text != "" {
		reply.Content += "\nIts last words:\n" + text
	}
	reply.DetailsJson = asJSON(map[string]any{"outcome": outcome, "error_code": res.GetErrorCode()})
	return reply
}

// childMeta is for people and programs: who it was, and what it has used. The model does not see it.
func childMeta(ready *messages.ChildReady, res *messages.TurnResult) map[string]any {
	meta := map[string]any{"worker": ready.GetWorkerId()}
	if res != nil {
		meta["turn"], meta["outcome"] = res.GetTurnId(), conversation.OutcomeName(res.GetOutcome())
		meta["usage"] = res.GetUsage().JSON()
	}
	return meta
}

// childOf is the id of the worker that a call delegates to: made of the call's own, so that a second one can never be.
func childOf(exec string) string {
	return messages.WorkerPrefix + strings.TrimPrefix(exec, messages.ExecPrefix)
}

// patience is how long a call that ends has for it: one that ends a child, too, as long as that has.
func (x *ToolExecutor) patience(m *messages.Execute) time.Duration {
	if m.GetChild() != nil {
		return 2*x.svc.Limits.Grace + cancelWait
	}
	return x.svc.Limits.Grace
}
