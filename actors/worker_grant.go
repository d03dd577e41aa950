package actors

import (
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// A turn works in the workspaces that it took leases of when it began. What is attached meanwhile counts from the next one on;
// what is detached it loses at once: what runs there is ended, and nothing else starts. Everything else of a new grant
// counts at once.

// configure takes a new grant, and answers when it is planned with.
func (w *Worker) configure(c actor.Context, m *messages.Configure) {
	for _, g := range w.newest.GetWorkspaces() {
		if !has(m.GetGrant().GetWorkspaces(), g.GetUri()) {
			w.svc.folders.endIn(w.id, g.GetUri(), "its workspace was detached")
		}
	}
	w.newest = m.GetGrant()
	w.watched.Store(m.GetWatched())
	w.renew()
	if w.leases.busy() {
		w.releaseLost(c)
	}
	w.acknowledge(c)
}

func (w *Worker) acknowledge(c actor.Context) {
	if c.Sender() != nil {
		c.Respond(&messages.Ack{})
	}
}

// regranted is configure in a state in which calls may be open: those that cannot go on are answered.
func (w *Worker) regranted(c actor.Context, m *messages.Configure) {
	w.configure(c, m)
	t := w.state.Turn()
	if t == nil || t.Cancelled != nil || w.failing {
		return
	}
	open := t.OpenCalls()
	w.stopLost(c, open)
	if facts := w.unavailable(open); len(facts) > 0 {
		w.append(c, nil, w.resolved, facts...)
	}
}

// renew makes of the newest grant what counts now.
func (w *Worker) renew() {
	w.system, w.tools = "", nil
	began, engaged := w.began()
	if !engaged {
		w.grant, w.lost = w.newest, nil
		return
	}
	g := &messages.Grant{Revision: w.newest.GetRevision(), Env: w.newest.GetEnv(), ProjectId: w.newest.GetProjectId(), Rules: w.newest.GetRules(), Overlaps: w.newest.GetOverlaps(), Remembered: w.newest.GetRemembered(), Budget: w.newest.GetBudget(), Tenant: w.newest.GetTenant()}
	for _, ws := range w.newest.GetWorkspaces() {
		// What was lost stays lost until the next turn, also when it was attached again: its lease was given back. And a lease
		// of a folder that overlaps one is no reason to work there.
		if uri := ws.GetUri(); began[uri] && !has(w.lost, uri) && (w.grant == nil || has(w.grant.GetWorkspaces(), uri)) {
			g.Workspaces = append(g.Workspaces, ws)
		}
	}
	for _, ws := range w.grant.GetWorkspaces() {
		if began[ws.GetUri()] && !has(g.GetWorkspaces(), ws.GetUri()) {
			w.lost = append(w.lost, ws)
		}
	}
	w.grant = g
}

// began names the workspaces that the turn under way began with, or is about to.
func (w *Worker) began() (uris map[string]bool, engaged bool) {
	switch {
	case w.leases.busy():
		uris = make(map[string]bool)
		for _, g := range w.leases.taken {
			uris[g.GetUri()] = true
		}
	case w.state != nil && w.state.Turn() != nil:
		uris = make(map[string]bool)
		for _, l := range w.state.Turn().Leases {
			uris[l.GetWorkspace()] = true
		}
	default:
		return nil, false
	}
	return uris, true
}

func has(all []*messages.WorkspaceGrant, uri string) bool {
	return slices.ContainsFunc(all, func(g *messages.WorkspaceGrant) bool { return g.GetUri() == uri })
}

// leasesOf lists what a turn with a grant takes leases of, in canonical order: its workspaces, and the folders that overlap them.
func leasesOf(g *messages.Grant) []*messages.WorkspaceGrant {
	out := slices.Clone(g.GetWorkspaces())
	for _, o := range g.GetOverlaps() {
		if has(g.GetWorkspaces(), o.GetWorkspace()) && !has(out, o.GetWith().GetUri()) {
			out = append(out, &messages.WorkspaceGrant{Id: o.GetWith().GetId(), Uri: o.GetWith().GetUri()})
		}
	}
	slices.SortFunc(out, func(a, b *messages.WorkspaceGrant) int { return strings.Compare(a.GetUri(), b.GetUri()) })
	return out
}

// releaseLost gives back the leases of what is no longer there. A worker that still waits for some begins anew if others are to be
// taken, so that a turn that has not begun has what was attached before it; else it keeps its place.
func (w *Worker) releaseLost(c actor.Context) {
	if len(w.leases.want) > 0 {
		next := w.grant
		if w.state.Turn() == nil {
			next = w.newest
		}
		if slices.EqualFunc(leasesOf(next), w.leases.taken, func(a, b *messages.WorkspaceGrant) bool { return a.GetUri() == b.GetUri() }) {
			if w.state.Turn() == nil {
				w.grant = next
			}
			return
		}
		then, staging := w.leases.then, w.leases.staging
		w.giveBackAll(c)
		w.leases.staging = staging
		w.lease(c, then)
		return
	}
	want := leasesOf(w.grant)
	kept := w.leases.held[:0:0]
	for _, l := range w.leases.held {
		if has(want, l.GetWorkspace()) {
			kept = append(kept, l)
		} else {
			w.sendRelease(c, l, 0)
		}
	}
	w.leases.held = kept
}

// isLost says whether a call was planned for a workspace that is no longer there.
func (w *Worker) isLost(call *conversation.Call) bool {
	uri := call.Plan.GetWorkspace()
	return uri != "" && !has(w.grant.GetWorkspaces(), uri)
}

// stopLost ends what runs in a workspace that is no longer there.
func (w *Worker) stopLost(c actor.Context, open []*conversation.Call) {
	m := &messages.CancelCalls{Reason: detachReason}
	for _, call := range open {
		if w.running[call.Plan.GetExecId()] && w.isLost(call) {
			m.ExecIds = append(m.ExecIds, call.Plan.GetExecId())
		}
	}
	if len(m.GetExecIds()) > 0 && w.executor != nil {
		c.Send(w.executor, m)
	}
}

// unavailable answers the calls that cannot start any more, as their workspace was detached. What an earlier activation may have
// begun there, nobody can look at any more; what is in doubt waits for its person's word still.
func (w *Worker) unavailable(open []*conversation.Call) []proto.Message {
	var facts []proto.Message
	for _, call := range open {
		exec := call.Plan.GetExecId()
		if w.running[exec] || call.InDoubt() || !w.isLost(call) || w.isDeprived(call) {
			continue
		}
		if call.Pending() {
			facts = append(facts, &messages.ApprovalResolved{
				ApprovalId: call.Requested.GetApprovalId(), ExecId: exec, Decision: messages.Decision_CANCELLED, By: detachReason, ArgsHash: call.Requested.GetArgsHash(),
			})
		}
		if call.Dispatched != nil {
			facts = append(facts, interrupted(call))
			continue
		}
		facts = append(facts, refusal(call.Plan, messages.ToolFinished_ERROR, tools.Errorf(tools.CodeWorkspaceNotAvailable, "Not run: its workspace was detached")))
	}
	return facts
}

// shares are the leases of the folders that overlap a workspace.
func (w *Worker) shares(uri string) []*messages.LeaseToken {
	var out []*messages.LeaseToken
	for _, o := range w.grant.GetOverlaps() {
		if l := w.token(o.GetWith().GetUri()); o.GetWorkspace() == uri && l != nil {
			out = append(out, l)
		}
	}
	return out
}
