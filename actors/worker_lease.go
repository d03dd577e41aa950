package actors

import (
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// leases is the state of taking a turn's workspaces: one after the other in canonical order,
// which all workers share, so that two can never wait for each other in a circle.
type leases struct {
	request uint64                     // stamps asks, so that a late grant is recognised
	want    []*messages.WorkspaceGrant // still to take, the next one first
	held    []*messages.LeaseToken
	taken   []*messages.WorkspaceGrant // all of the cycle, those that are held and those that are wanted
	since   time.Time                  // when they were first asked for
	shared  bool                       // with those who only read, as they were asked for
	behind  string                     // session of who works in the one that is waited for, when it is known
	staging *staging                   // an input that is accepted with its turn, if that can start at once
	then    func(actor.Context)        // once all are held
}

// busy says whether leases are wanted or held.
func (l *leases) busy() bool { return len(l.want) > 0 || len(l.held) > 0 || l.then != nil }

// lease takes every workspace of the grant and those that overlap them, then calls then.
func (w *Worker) lease(c actor.Context, then func(actor.Context)) {
	w.renew()
	w.leases.taken = leasesOf(w.grant)
	w.leases.want = w.leases.taken // which is only cut from the front
	w.leases.held, w.leases.then, w.leases.since = make([]*messages.LeaseToken, 0, len(w.leases.taken)), then, w.svc.Now()
	w.become((*Worker).leasing, stateWaiting)
	w.nextLease(c)
}

func (w *Worker) nextLease(c actor.Context) {
	if len(w.leases.want) == 0 {
		then := w.leases.then
		w.leases.then = nil
		then(c)
		return
	}
	w.leases.request++
	w.leases.behind = ""
	w.askLease(c, false)
}

func (w *Worker) askLease(c actor.Context, again bool) {
	g := w.leases.want[0]
	w.leases.shared = w.readsOnly()
	parent := w.state.Parent()
	if w.state.Background() { // nobody waits for it: it queues like everybody
		parent = ""
	}
	c.Request(w.peers.workspace(c.ActorSystem(), g.GetId()), &messages.AcquireLease{
		Workspace: g.GetUri(), Holder: w.id, Request: w.leases.request, Shared: w.leases.shared, Again: again, Parent: parent,
	})
}

func (w *Worker) leaseGranted(c actor.Context, m *messages.LeaseGranted) {
	if m.GetRequest() != w.leases.request || len(w.leases.want) == 0 {
		w.giveBack(c, m)
		return
	}
	w.leases.held = append(w.leases.held, &messages.LeaseToken{Workspace: m.GetWorkspace(), Token: m.GetToken(), Child: m.GetChild()})
	w.leases.want = w.leases.want[1:]
	w.nextLease(c)
}

// leaseQueued: somebody else works here. The input is accepted by itself meanwhile.
func (w *Worker) leaseQueued(c actor.Context, m *messages.LeaseQueued) {
	if m.GetRequest() == w.leases.request {
		w.leases.behind = m.GetHolder()
	}
	if st := w.leases.staging; st != nil && m.GetRequest() == w.leases.request {
		w.leases.staging = nil
		w.leases.then = w.beginStaged
		w.stage(c, st)
	}
}

// leaseRefused: the Workspace is being replaced, or is not there. The Supervisor says when to ask its successor.
func (w *Worker) leaseRefused(c actor.Context) {
	if len(w.leases.want) == 0 {
		return
	}
	w.leaseQueued(c, &messages.LeaseQueued{Request: w.leases.request})
	w.find(c, workspaceName(w.leases.want[0].GetId()))
}

// find asks the Supervisor to be told when an actor is there again.
func (w *Worker) find(c actor.Context, name string) {
	c.Request(c.ActorSystem().NewLocalPID(root), &messages.FindActor{Name: name})
}

// replaced asks the successor of a Workspace or Limiter for what its predecessor may have taken with it. The word comes
// to all who may have asked: also to those whose request reached it in its last moment, and was never heard.
func (w *Worker) replaced(c actor.Context, m *messages.Replaced) {
	switch {
	case len(w.leases.want) > 0 && m.GetName() == workspaceName(w.leases.want[0].GetId()):
		if m.GetReason() != "" {
			w.noWorkspace(c, m.GetReason())
			return
		}
		w.askLease(c, true)
	case w.gen != nil && !w.gen.permit && w.gen.request != 0 && m.GetName() == limiterName(w.gen.provider):
		if m.GetReason() != "" {
			w.noPermits(c, m.GetReason())
			return
		}
		c.Request(w.peers.limiter(w.svc, c.ActorSystem(), w.gen.provider), w.permitWish(true))
	}
}

// noWorkspace ends a turn that cannot have its workspaces, with an error that says why.
func (w *Worker) noWorkspace(c actor.Context, why string) {
	reason := fmt.Sprintf("the workspace %s cannot be worked in: its actor failed again and again: %s", w.leases.want[0].GetUri(), why)
	st := w.leases.staging
	w.giveBackAll(c)
	cancel := &messages.CancelRequested{By: conversation.ByFailure, Reason: reason}
	switch staged := w.state.Staged(); {
	case st != nil:
		w.traceRefused(st.fact.GetInputId(), messages.CodeUnavailable)
		if asker := st.askerOrNil(); asker != nil {
			c.Send(asker, messages.Fail(messages.CodeUnavailable, reason, "see the log of the process; it is tried anew when all sessions of the folder have left it"))
		}
		w.advance(c)
		w.replay(c)
	case w.state.Turn() != nil:
		w.append(c, nil, w.settled, w.cancelFacts(cancel.GetBy(), reason)...)
	case len(staged) > 0:
		w.append(c, nil, w.settled, &messages.TurnStarted{TurnId: messages.NewID(messages.TurnPrefix), InputIds: []string{staged[0].GetInputId()}}, cancel)
	default:
		w.advance(c)
	}
}

// giveBack returns a lease that came too late.
func (w *Worker) giveBack(c actor.Context, m *messages.LeaseGranted) {
	w.sendRelease(c, &messages.LeaseToken{Workspace: m.GetWorkspace(), Token: m.GetToken()}, m.GetRequest())
}

// giveBackAll returns what is held and leaves the queue it stands in.
func (w *Worker) giveBackAll(c actor.Context) {
	for _, l := range w.leases.held {
		w.sendRelease(c, l, 0)
	}
	if len(w.leases.want) > 0 {
		w.sendRelease(c, &messages.LeaseToken{Workspace: w.leases.want[0].GetUri()}, w.leases.request)
	}
	w.leases.held, w.leases.want, w.leases.then, w.leases.staging = nil, nil, nil, nil
}

func (w *Worker) sendRelease(c actor.Context, l *messages.LeaseToken, request uint64) {
	var id string
	if i := slices.IndexFunc(w.leases.taken, func(g *messages.WorkspaceGrant) bool { return g.GetUri() == l.GetWorkspace() }); i >= 0 {
		id = w.leases.taken[i].GetId()
	} else { // it came late
		id = w.leasedID(l)
	}
	c.Send(w.peers.workspace(c.ActorSystem(), id), &messages.ReleaseLease{Workspace: l.GetWorkspace(), Token: l.GetToken(), Request: request, Holder: w.id})
}

// leasedID is the id of a workspace that the worker had a lease of, which may have been taken from it since.
func (w *Worker) leasedID(l *messages.LeaseToken) string {
	addr, err := workspace.Parse(l.GetWorkspace(), w.svc.ServerName)
	if err != nil {
		return idOf(l)
	}
	return idIn(w.grant.GetTenant(), addr, addr.Kind == workspace.KindClient && addr.Host != workspace.LocalHost)
}

// idOf is the id of the workspace of this machine that a lease is of.
func idOf(l *messages.LeaseToken) string {
	return (&workspace.Address{Canonical: l.GetWorkspace()}).ID()
}
