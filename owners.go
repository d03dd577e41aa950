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
// unless it is to be stolen.
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
	epoch, leave, fail := rt.svc.Owners.Connect(actors.Place{Session: v.GetId(), URI: g.GetUri()}, owner, m.GetClient(), m.GetSteal())
	if fail != nil {
		return 0, nil, fail
	}
	return epoch, leave, nil
}
