package troupe

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
)

// ShowApproval says that somebody sees an approval: listings and events tell it from one that nobody does. It lasts until ctx ends, which is
// the error then, or until the approval waits no longer, whoever has answered it: that is nil, or a refusal with the code `already_resolved`
// when it was answered before. by is who sees it; "" is "program".
func (rt *Runtime) ShowApproval(ctx context.Context, approvalID, by string) error {
	_, err := rt.showApproval(ctx, &messages.ShowApproval{ApprovalId: approvalID, By: cmp.Or(by, "program")})
	return err
}

func (rt *Runtime) showApproval(ctx context.Context, m *messages.ShowApproval) (proto.Message, error) {
	v, err := actors.ApprovalNamed(ctx, rt.svc.Store, m.GetApprovalId())
	if err != nil {
		return nil, err
	}
	who := rt.svc.Redact.String(cmp.Or(m.GetBy(), "user"))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tell := func(state string) {
		if state == actors.StateShown { // it may have been answered before it was noted that it is shown
			if _, err := actors.ApprovalNamed(ctx, rt.svc.Store, m.GetApprovalId()); err != nil {
				cancel()
				return
			}
		}
		rt.announce(context.WithoutCancel(ctx), v, state, who) // also when who saw it has gone
	}
	err = rt.svc.Show(ctx, v, who, tell)
	if err != nil {
		if _, gone := actors.ApprovalNamed(context.WithoutCancel(ctx), rt.svc.Store, m.GetApprovalId()); gone != nil {
			return nil, gone
		}
		return nil, err
	}
	return &messages.Ack{}, nil
}

// announce tells who watches the session, if it is in memory: it is not woken for that.
func (rt *Runtime) announce(ctx context.Context, v *messages.ApprovalView, state, who string) {
	live, err := rt.live(ctx)
	if err != nil || !live[v.GetSessionId()] {
		return
	}
	e := &messages.Event{
		Type: messages.EventApprovalShown, AtUnixMs: rt.svc.Now().UnixMilli(), Session: v.GetSessionId(), Worker: v.GetWorkerId(), Turn: v.GetTurnId(),
		ApprovalId: v.GetApprovalId(), ExecId: v.GetExecId(), CallId: v.GetCallId(), Tool: v.GetTool(), State: state, By: who,
	}
	if state == actors.StatePending {
		e.By = ""
	}
	m := &messages.ToSession{SessionId: v.GetSessionId(), Command: &messages.ToSession_Announce{Announce: &messages.Announce{Event: e}}}
	if _, err := send[*messages.Ack](ctx, rt, m); err != nil {
		rt.svc.Log.Debug("nobody was told that an approval is shown", "err", err)
	}
}

// seen adds to approvals who sees them.
func (rt *Runtime) seen(all []*messages.ApprovalView) {
	for _, v := range all {
		if v.Shown = rt.svc.Viewers(v.GetApprovalId(), ""); len(v.GetShown()) > 0 {
			v.State = actors.StateShown
		}
	}
}
