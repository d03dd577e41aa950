package actors

import (
	"context"
	"encoding/json"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// RefusedBy is the detail of a refused call by which an audit knows that it was no rule and no person.
const (
	RefusedBy     = "refused_by"
	Hook          = "hook"
	refusedByHook = `{"` + RefusedBy + `":"` + Hook + `"}`
)

// before asks the hook before the call. It comes after every decision and approval, and before the ledger says that
// the call begins: what it refuses has not begun. nil: the call may run.
func (r *run) before(ctx context.Context, tc *tools.Context, args json.RawMessage) *messages.ToolReply {
	hook := r.svc.Hooks.BeforeCall
	if hook == nil {
		return nil
	}
	_, err := guarded(ctx, func(ctx context.Context) (string, error) { return "", hook(ctx, r.name(), tc, args) })
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return r.failed(ctx, err)
	}
	reply := failedReply(r.m, messages.ToolFinished_DENIED, tools.CodePermissionDenied, "Access denied: a hook refused the call: "+err.Error())
	reply.DetailsJson = refusedByHook
	return reply
}

// after tells the hook what the call came to, as it is told and written down: without secrets. One that was cancelled has nobody who waits for it.
func (r *run) after(ctx context.Context, tc *tools.Context, reply *messages.ToolReply) {
	hook := r.svc.Hooks.AfterCall
	if hook == nil || ctx.Err() != nil {
		return
	}
	told := r.fit(reply)
	_, err := guarded(ctx, func(ctx context.Context) (string, error) {
		hook(ctx, r.name(), tc, told)
		return "", nil
	})
	if err != nil {
		r.svc.Log.Error("hook after a call failed", "call", r.m.GetExecId(), "err", err)
	}
}

// name is the call as the host program knows it.
func (r *run) name() Call {
	return Call{r.m.GetSessionId(), r.m.GetWorkerId(), r.m.GetAgent(), r.m.GetTool(), r.m.GetExecId()}
}
