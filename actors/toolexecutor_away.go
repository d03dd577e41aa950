package actors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// ownerGrace is how long a call waits for an owner whose connection was lost while it ran.
const ownerGrace = 60 * time.Second

var errOwnerLost = errors.New("the connection to the workspace's owner was lost")

// travels says whether a call runs where its workspace is, on another machine. Fields of a workspace, and the trust in it, are kept here.
func travels(g *messages.WorkspaceGrant, spec *tools.Spec) bool {
	return g.GetOwner() != "" && !spec.NoWorkspace && spec.Name != tools.UpdateWorkspaceName && spec.Name != tools.WriteAccessName
}

// away runs a call in a workspace of another machine. Files there are not looked at from here: what a call is about to change its
// owner hashes, shows and allows.
func (r *run) away(ctx context.Context, spec *tools.Spec) *messages.ToolReply {
	switch {
	case r.m.GetPreview():
		if reply := r.previewAway(ctx); reply != nil {
			return reply
		}
		reply := failedReply(r.m, messages.ToolFinished_OK, "", "")
		reply.Previewed, reply.PreviewKind, reply.Diff = true, tools.PreviewArguments, spec.Name+" "+r.m.GetArguments()
		return reply
	case r.m.GetPrepare():
		reply := failedReply(r.m, messages.ToolFinished_OK, "", "")
		reply.Prepared = true
		return reply
	}
	if bad := r.approvedArguments(json.RawMessage(r.m.GetArguments())); bad != nil {
		return bad
	}
	if j := r.leaves(spec); j != nil {
		return r.leaveAway(ctx, j)
	}
	if once(spec.Effect) && !r.m.GetReconcile() {
		return r.noted(func() *messages.ToolReply { return r.deliver(ctx) })
	}
	return r.deliver(ctx)
}

// previewTime bounds how long an owner may take to show a call: who is to approve it is not kept waiting for that.
const previewTime = 10 * time.Second

// Previewer is an Owner that shows what a call would change in its folder. It returns nil for what it does not show, and runs nothing.
type Previewer = interface {
	Preview(ctx context.Context, call *messages.Execute) (*messages.ToolReply, error)
}

// previewAway asks the owner of the workspace what the call would change there; nil: it is not there, does not say, or takes too long. What the owner
// says would fail has failed: nobody need be asked.
func (r *run) previewAway(ctx context.Context) *messages.ToolReply {
	s := r.svc.Owners.at(Place{r.m.GetSessionId(), r.m.GetWorkspace().GetUri()})
	p, shows := s.owner.(Previewer)
	if !shows {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel) //nolint:contextcheck // that of the connection
	defer stop()
	reply, err := p.Preview(ctx, r.m)
	switch {
	case err != nil || reply == nil:
		return nil
	case reply.GetStatus() != messages.ToolFinished_OK && aboutTheCall(reply.GetErrorCode()):
		return r.owned(reply)
	case reply.GetStatus() != messages.ToolFinished_OK || !reply.GetPreviewed() || reply.GetPreviewKind() != tools.PreviewDiff:
		return nil
	}
	out := failedReply(r.m, messages.ToolFinished_OK, "", "")
	out.Previewed, out.PreviewKind, out.Diff, out.Files = true, tools.PreviewDiff, reply.GetDiff(), reply.GetFiles()
	return out
}

// aboutTheCall says whether a call that could not be shown would fail in the same way. Of what is no fault of the call nobody knows that.
func aboutTheCall(code string) bool {
	switch code {
	case "", tools.CodeInternalError, tools.CodeWorkspaceNotAvailable, tools.CodeClientNotConnected, tools.CodeInterrupted, tools.CodeCancelled, tools.CodeTimeout,
		messages.CodeBusy, messages.CodeInvalidMessage, messages.CodeMessageTooLarge:
		return false
	}
	return true
}

// deliver has a call run by the owner of its workspace. One that a crash cut off was with the owner already: until the owner says what it knows
// of it, nobody does.
func (r *run) deliver(ctx context.Context) *messages.ToolReply {
	owners, place := &r.svc.Owners, Place{r.m.GetSessionId(), r.m.GetWorkspace().GetUri()}
	began, grace := r.m.GetReconcile(), cmp.Or(r.svc.Limits.Owner, ownerGrace)
	for {
		s := owners.at(place)
		switch {
		case s.owner == nil && !began && s.gone:
			return failedReply(r.m, messages.ToolFinished_CLIENT_OFFLINE, tools.CodeWorkspaceNotAvailable, "No active project")
		case s.owner == nil && !began:
			return failedReply(r.m, messages.ToolFinished_CLIENT_OFFLINE, tools.CodeClientNotConnected, "Client '"+r.m.GetWorkspace().GetOwner()+"' is not connected")
		case s.owner == nil:
			if s.gone || !waitFor(ctx, s.changed, grace) {
				return r.ownerLost(ctx)
			}
			continue
		}
		began = true
		reply, err := r.through(ctx, s)
		switch {
		case ctx.Err() != nil && err != nil:
			return r.ownerLost(ctx)
		case err == nil && owners.hears(place, s):
			return r.owned(reply)
		case owners.at(place) == s: // it failed, and has not been replaced
			if !waitFor(ctx, s.changed, grace) {
				return r.ownerLost(ctx)
			}
		}
	}
}

// through delivers a call by one connection. When the call is to end, the owner is told, and has a while to say what came of it.
func (r *run) through(ctx context.Context, s *seat) (*messages.ToolReply, error) {
	both, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stopLost := context.AfterFunc(s.ctx, func() { cancel(errOwnerLost) }) //nolint:contextcheck // that of the connection
	defer stopLost()
	stop := context.AfterFunc(ctx, func() {
		s.owner.Cancel(r.m.GetExecId())
		t := time.NewTimer(r.svc.Limits.Grace / 2)
		defer t.Stop()
		select {
		case <-both.Done():
		case <-t.C:
			cancel(context.Cause(ctx))
		}
	})
	defer stop()
	return s.owner.Deliver(both, r.m, r.progress)
}

// waitFor waits for a change, for a while. It is false when none came.
func waitFor(ctx context.Context, changed <-chan struct{}, most time.Duration) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-changed:
		return true
	case <-ctx.Done():
	case <-t.C:
	}
	return false
}

// ownerLost answers for a call that was handed over, and of which nothing was heard any more. What only reads has certainly done nothing;
// of all others the outcome is unknown.
func (r *run) ownerLost(ctx context.Context) *messages.ToolReply {
	const text = "workspace owner disconnected"
	switch {
	case r.m.GetPure() && ctx.Err() != nil:
		return r.failed(ctx, ctx.Err())
	case r.m.GetPure():
		return failedReply(r.m, messages.ToolFinished_CLIENT_OFFLINE, tools.CodeClientNotConnected, text)
	}
	return r.unheard(failedReply(r.m, messages.ToolFinished_INTERRUPTED_UNKNOWN, tools.CodeInterrupted, text+". "+conversation.InterruptedText))
}

// owned makes of an owner's words a result of this call, whatever it says it is of.
func (r *run) owned(reply *messages.ToolReply) *messages.ToolReply {
	out := failedReply(r.m, reply.GetStatus(), reply.GetErrorCode(), reply.GetContent())
	if out.GetStatus() == messages.ToolFinished_UNSPECIFIED {
		out.Status = messages.ToolFinished_ERROR
	}
	out.DetailsJson, out.MetaJson, out.Truncated = reply.GetDetailsJson(), reply.GetMetaJson(), reply.GetTruncated()
	out.Files, out.Diff = reply.GetFiles(), reply.GetDiff()
	return r.unheard(out)
}

// unheard marks the answer to a reconcile that could not tell: then the policy for unknown outcomes counts.
func (r *run) unheard(reply *messages.ToolReply) *messages.ToolReply {
	reply.Unknown = r.m.GetReconcile() && reply.GetStatus() == messages.ToolFinished_INTERRUPTED_UNKNOWN
	return reply
}
