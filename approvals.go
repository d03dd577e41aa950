package troupe

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
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

// Answer is what is said of an approval. Its zero value says nothing: it is refused, and from Options.Approve it leaves the approval to others.
type Answer struct {
	Decision  Decision
	Message   string // for the model, with Rejected
	Arguments string // to run instead of those that were asked with; "" for those
	By        string // who says it, for the audit; "" for "program"
	Scope     Scope  // how long it holds; "" for Once
	Rule      string // with a Scope beyond Once: what is remembered, of the approval's Rules; "" for the exact one, the last of them
}

// approve puts an approval to the program. Its zero answer leaves it to others; so do its panics.
func (rt *Runtime) approve(ask func(context.Context, *Approval) Answer, v *Approval) {
	var a Answer
	if p := act.Guard(func() { a = ask(rt.asking, v) }); p != nil {
		rt.svc.Log.Error("approver panicked", "approval", v.GetApprovalId(), "err", p.Error(), "stack", p.Stack)
		return
	}
	if a.Decision == messages.Decision_UNSPECIFIED || rt.asking.Err() != nil {
		return
	}
	var refused *messages.Failure
	err := rt.ResolveApproval(rt.asking, v.GetApprovalId(), a)
	if err != nil && !(errors.As(err, &refused) && refused.GetCode() == messages.CodeResolved) { // somebody was first
		rt.svc.Log.Warn("an answer to an approval was refused", "approval", v.GetApprovalId(), "err", err)
	}
}

// Approvals lists the calls that wait for an approval, the oldest first. It wakes no session.
func (rt *Runtime) Approvals(ctx context.Context) ([]*Approval, error) {
	all, err := rt.listApprovals(ctx, &messages.ListApprovals{})
	return all.GetApprovals(), err
}

// ResolveApproval answers an approval. It returns once the answer is durable; the first one counts, a second is refused
// with the code `already_resolved`. The turn goes on at once when its session is in memory, else when it is opened.
func (rt *Runtime) ResolveApproval(ctx context.Context, approvalID string, a Answer) error {
	m := &messages.ResolveApproval{
		ApprovalId: approvalID, Decision: a.Decision, Message: a.Message, Arguments: a.Arguments, By: a.By,
		Scope: string(a.Scope), Rule: a.Rule,
	}
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
	rt.seen(all)
	slices.SortStableFunc(all, func(a, b *messages.ApprovalView) int { // ids grow with time: in call order, where they were asked together
		return cmp.Or(cmp.Compare(a.GetAtUnixMs(), b.GetAtUnixMs()), cmp.Compare(a.GetApprovalId(), b.GetApprovalId()))
	})
	return &messages.Approvals{Approvals: all}, nil
}
