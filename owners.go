package troupe

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
)

// Owner is a connection to a machine that owns a workspace of a session here.
type Owner = actors.Owner

// ConnectOwner makes a connection that of a workspace HOST:PATH of a session: calls there go to it from now on, and those that an older connection
// has not answered are delivered again. The epoch grows with each connection. leave ends it; for good says that calls need not wait for
// another one. The host belongs to the token that came with it first: another one is refused, as is a place that another program has,
// unless it is to be stolen. An owner that may leave commands running (actors.JobOwner) says in jobs which it has.
func (rt *Runtime) ConnectOwner(ctx context.Context, m *messages.ConnectOwner, owner Owner) (epoch uint64, leave func(forGood bool), err error) {
	v, err := rt.session(ctx, m.GetSessionId())
	if err != nil {
		return 0, nil, err
	}
	var g *messages.WorkspaceGrant
	for _, w := range v.GetWorkspaces() {
		if w.GetUri() == m.GetUri() && w.GetOwner() != "" {
			g = w
		}
	}
	if g == nil {
		return 0, nil, messages.Fail(messages.CodeNoWorkspace, fmt.Sprintf("session %s has no workspace %s of another machine", v.GetId(), m.GetUri()), "attach it first")
	}
	register := &messages.RegisterHost{Host: actors.HostIn(v.GetTenant(), g.GetOwner()), TokenId: m.GetTokenId()}
	if _, err := send[*messages.Ack](ctx, rt, register); err != nil {
		return 0, nil, err
	}
	place := actors.Place{Session: v.GetId(), URI: g.GetUri()}
	epoch, gone, fail := rt.svc.Owners.Connect(place, owner, m.GetClient(), m.GetSteal())
	if fail != nil {
		return 0, nil, fail
	}
	if len(m.GetJobs()) > 0 {
		rt.awake(ctx, v.GetId())
	}
	rt.svc.OwnersJobs(rt.sys, place, epoch, m.GetJobs(), v)
	return epoch, func(forGood bool) {
		gone(forGood)
		rt.svc.OwnerLeft(place, forGood)
	}, nil
}

// OwnedJob takes what the owner of a workspace says of a command that a call left running there: that it has begun, or how it ended. It counts from the
// connection that is the place's; the owner is told by Settle, with the id of the job, when its end is kept here.
func (rt *Runtime) OwnedJob(ctx context.Context, m *messages.OwnedJob) error {
	v, err := rt.session(ctx, m.GetSessionId())
	if err != nil {
		return err
	}
	rt.awake(ctx, v.GetId())
	if fail := rt.svc.OwnersJob(rt.sys, m, v); fail != nil {
		return fail
	}
	return nil
}

// awake brings a session into memory that has jobs elsewhere: its own workspace takes what they print, and the others are kept for them. Where it cannot be,
// the owner is told nothing, and tells of them again.
func (rt *Runtime) awake(ctx context.Context, session string) {
	_, _ = send[*messages.SessionView](ctx, rt, &messages.ToSession{SessionId: session, Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}})
}
