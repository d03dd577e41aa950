package troupe

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// Resolution is what a person says of a call in doubt.
type Resolution = messages.CallResolved_Resolution

// What a person may say.
const (
	RetryCall = messages.CallResolved_RETRY // run it again, with the same exec id
	DoneCall  = messages.CallResolved_DONE  // it happened
	FailCall  = messages.CallResolved_FAIL  // it did not, and shall not
)

// CallsInDoubt lists the calls of which nobody knows whether they ran, and whose policy asks a person: their turns
// wait. It wakes no session.
func (rt *Runtime) CallsInDoubt(ctx context.Context) ([]*messages.CallView, error) {
	return actors.CallsInDoubt(ctx, rt.svc.Store, "")
}

// ResolveCall settles a call in doubt. It returns once the word is durable; the first one counts, a second is refused
// with the code `already_resolved`. The turn goes on at once when its session is in memory, else when it is opened. note
// is for the model and may be empty.
func (rt *Runtime) ResolveCall(ctx context.Context, execID string, r Resolution, note string) error {
	_, err := rt.resolveCall(ctx, &messages.ResolveCall{ExecId: execID, Resolution: r, Note: note, By: "program"})
	return err
}

// resolveCall finds the worker that has the call and passes the word on.
func (rt *Runtime) resolveCall(ctx context.Context, m *messages.ResolveCall) (proto.Message, error) {
	v, err := actors.CallInDoubt(ctx, rt.svc.Store, m.GetExecId())
	if err != nil {
		return nil, err
	}
	to := proto.CloneOf(m)
	to.WorkerId = v.GetWorkerId()
	return send[proto.Message](ctx, rt, &messages.ToSession{SessionId: v.GetSessionId(), Command: &messages.ToSession_ResolveCall{ResolveCall: to}})
}

// listCalls answers from the journals, and for calls in doubt from the index alone. A journal that cannot be read is named in the answer, which
// has the calls of the others.
func (rt *Runtime) listCalls(ctx context.Context, m *messages.ListCalls) (*messages.Calls, error) {
	if m.GetState() == conversation.StateInDoubt {
		found, err := actors.CallsInDoubt(ctx, rt.svc.Store, m.GetSessionId())
		if err == nil && len(found) == 0 && m.GetSessionId() != "" {
			_, err = rt.session(ctx, m.GetSessionId()) // is there such a session?
		}
		return &messages.Calls{Calls: found}, err
	}
	var sessions []*messages.SessionView
	if m.GetSessionId() == "" {
		all, err := rt.listSessions(ctx, &messages.ListSessions{})
		if err != nil {
			return nil, err
		}
		sessions = all.GetSessions()
	} else {
		v, err := rt.session(ctx, m.GetSessionId())
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, v)
	}
	out := &messages.Calls{}
	for _, v := range sessions {
		var turns []ownTurn
		for _, w := range v.GetWorkers() {
			some, _, err := rt.turnsOf(ctx, w.GetId())
			if err != nil && ctx.Err() != nil {
				return nil, fmt.Errorf("list calls: %w", err)
			}
			if err != nil {
				out.Unread = append(out.Unread, &messages.Unread{SessionId: v.GetId(), WorkerId: w.GetId(), Problem: err.Error()})
			}
			turns = append(turns, some...)
		}
		inOrder(turns)
		for _, t := range turns {
			for _, c := range t.AllCalls {
				one := c.Listing(v.GetId(), t.worker, t.ID)
				if one.GetState() == conversation.StateRequested && len(rt.svc.Viewers("", one.GetExecId())) > 0 {
					one.State = actors.StateShown
				}
				if m.GetState() == "" || m.GetState() == one.GetState() {
					out.Calls = append(out.Calls, one)
				}
			}
		}
	}
	return out, nil
}
