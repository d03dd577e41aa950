package troupe

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
)

// Approval is a call that waits for a person's answer.
type Approval = messages.ApprovalView

// Decision is an answer to an approval.
type Decision = messages.Decision_Value

// What a person may answer.
const (
	Approved  = messages.Decision_APPROVED  // the call runs, as it was shown
	Rejected  = messages.Decision_REJECTED  // the model is told no, and the turn goes on
	Cancelled = messages.Decision_CANCELLED // no, and the turn ends
)

// Answer is what is said of an approval. Its zero value says nothing, and is refused.
type Answer struct {
	Decision  Decision
	Message   string // for the model, with Rejected
	Arguments string // to run instead of those that were asked with; "" for those
	By        string // who says it, for the audit; "" for "program"
}

// Approvals lists the calls that wait for an approval, the oldest first. It wakes no session.
func (rt *Runtime) Approvals(ctx context.Context) ([]*Approval, error) {
	all, err := rt.listApprovals(ctx, &messages.ListApprovals{})
	return all.GetApprovals(), err
}

// ResolveApproval answers an approval. It returns once the answer is durable; the first one counts, a second is refused
// with the code `already_resolved`. The turn goes on at once when its session is in memory, else when it is opened.
func (rt *Runtime) ResolveApproval(ctx context.Context, approvalID string, a Answer) error {
	m := &messages.ResolveApproval{ApprovalId: approvalID, Decision: a.Decision, Message: a.Message, Arguments: a.Arguments, By: a.By}
	if m.GetBy() == "" {
		m.By = "program"
	}
	_, err := rt.resolveApproval(ctx, m)
	return err
}

// resolveApproval finds the worker that asks and passes the answer on.
func (rt *Runtime) resolveApproval(ctx context.Context, m *messages.ResolveApproval) (proto.Message, error) {
	v, err := actors.ApprovalNamed(ctx, rt.svc.Store, m.GetApprovalId())
	if err != nil {
		return nil, err
	}
	to := proto.CloneOf(m)
	to.WorkerId = v.GetWorkerId()
	return send[proto.Message](ctx, rt, &messages.ToSession{SessionId: v.GetSessionId(), Command: &messages.ToSession_ResolveApproval{ResolveApproval: to}})
}

func (rt *Runtime) listApprovals(ctx context.Context, m *messages.ListApprovals) (*messages.Approvals, error) {
	all, err := actors.Approvals(ctx, rt.svc.Store, m.GetSessionId())
	if err != nil {
		return nil, err
	}
	if len(all) == 0 && m.GetSessionId() != "" {
		if _, err := rt.session(ctx, m.GetSessionId()); err != nil { // is there such a session?
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b *messages.ApprovalView) int { return int(a.GetAtUnixMs() - b.GetAtUnixMs()) })
	return &messages.Approvals{Approvals: all}, nil
}
