package actors

import (
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// leases is the state of taking a turn's workspaces: one after the other in canonical order,
// which all workers share, so that two can never wait for each other in a circle.
type leases struct {
	request uint64                     // stamps asks, so that a late grant is recognised
	want    []*messages.WorkspaceGrant // still to take, the next one first
	held    []*messages.LeaseToken
	staging *staging            // an input that is accepted with its turn, if that can start at once
	then    func(actor.Context) // once all are held
	again   act.Timer
}

// leaseRetry asks again for a workspace whose actor is being replaced.
type leaseRetry struct{ gen uint64 }

// busy says whether leases are wanted or held.
func (l *leases) busy() bool { return len(l.want) > 0 || len(l.held) > 0 || l.then != nil }

// lease takes every workspace of the grant, then calls then.
func (w *Worker) lease(c actor.Context, then func(actor.Context)) {
	w.leases.want = slices.Clone(w.grant.GetWorkspaces())
	slices.SortFunc(w.leases.want, func(a, b *messages.WorkspaceGrant) int { return strings.Compare(a.GetUri(), b.GetUri()) })
	w.leases.held, w.leases.then = nil, then
	w.become(w.leasing, stateWaiting)
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
	g := w.leases.want[0]
	c.Request(workspacePID(c.ActorSystem(), g.GetId()), &messages.AcquireLease{
		Workspace: g.GetUri(), Holder: w.id, Request: w.leases.request, Shared: w.readsOnly(),
	})
}

func (w *Worker) leaseGranted(c actor.Context, m *messages.LeaseGranted) {
	if m.GetRequest() != w.leases.request || len(w.leases.want) == 0 {
		w.giveBack(c, m)
		return
	}
	w.leases.again.Stop()
	w.leases.held = append(w.leases.held, &messages.LeaseToken{Workspace: m.GetWorkspace(), Token: m.GetToken()})
	w.leases.want = w.leases.want[1:]
	w.nextLease(c)
}

// leaseQueued: somebody else works here. The input is accepted by itself meanwhile.
func (w *Worker) leaseQueued(c actor.Context, m *messages.LeaseQueued) {
	if st := w.leases.staging; st != nil && m.GetRequest() == w.leases.request {
		w.leases.staging = nil
		w.leases.then = w.beginStaged
		w.stage(c, st)
	}
}

// leaseRefused: the Workspace is being replaced; ask its successor.
func (w *Worker) leaseRefused(c actor.Context) {
	if len(w.leases.want) == 0 {
		return
	}
	w.leaseQueued(c, &messages.LeaseQueued{Request: w.leases.request})
	w.leases.again.Set(c, 50*time.Millisecond, func(gen uint64) any { return &leaseRetry{gen} })
}

func (w *Worker) leaseRetry(c actor.Context, m *leaseRetry) {
	if w.leases.again.Fresh(m.gen) {
		w.leases.again.Stop()
		w.nextLease(c)
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
	w.leases.again.Stop()
}

func (w *Worker) sendRelease(c actor.Context, l *messages.LeaseToken, request uint64) {
	for _, g := range w.grant.GetWorkspaces() {
		if g.GetUri() == l.GetWorkspace() {
			c.Send(workspacePID(c.ActorSystem(), g.GetId()), &messages.ReleaseLease{Workspace: l.GetWorkspace(), Token: l.GetToken(), Request: request, Holder: w.id})
			return
		}
	}
}
