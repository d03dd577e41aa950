package actors

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// approvalIndex keeps the approvals that wait for an answer in the secondary index, so that they are listed and found
// without waking their sessions. change is by how many they become more. The facts are not applied yet.
func approvalIndex(s *conversation.State, session, worker string, facts []proto.Message) (ops []persistence.IndexOp, change int32) {
	t := s.Turn()
	if t == nil {
		return nil, 0
	}
	pending := make(map[string]string) // exec id -> approval
	for _, call := range t.Calls {
		if call.Pending() {
			pending[call.Plan.GetExecId()] = call.Requested.GetApprovalId()
		}
	}
	out := func(exec, decision string) {
		id := pending[exec]
		if id == "" {
			return
		}
		delete(pending, exec)
		change--
		ops = append(ops, persistence.IndexOp{Key: ApprovalKey(session, id), Delete: true}, persistence.IndexOp{Key: AnsweredKey(id, session), Value: []byte(decision)})
	}
	for _, f := range facts {
		switch f := f.(type) {
		case *messages.ApprovalRequested:
			call := t.Call(f.GetExecId())
			if call == nil {
				continue
			}
			v := call.ApprovalView(session, worker, t.ID, s.Agent(), f)
			v.Parent = s.Parent()
			b, err := proto.Marshal(cutApproval(v, listingRoom(t)))
			if err != nil {
				continue
			}
			pending[f.GetExecId()] = f.GetApprovalId()
			change++
			ops = append(ops, persistence.IndexOp{Key: ApprovalKey(session, f.GetApprovalId()), Value: b})
		case *messages.ApprovalResolved:
			out(f.GetExecId(), conversation.DecisionName(f.GetDecision()))
		case *messages.ToolFinished:
			out(f.GetExecId(), conversation.DecisionName(messages.Decision_CANCELLED))
		}
	}
	return ops, change
}

// ApprovalKey is the listing entry of an approval that waits, below its session's; the value is an ApprovalView.
func ApprovalKey(session, approvalID string) string { return "apr/" + session + "/" + approvalID }

// AnsweredKey tells of an approval how it was answered. The session is in it so that it goes with that; "" gives what it is found by.
func AnsweredKey(approvalID, session string) string { return "apd/" + approvalID + "/" + session }

// Approvals lists the calls that wait for an approval, of one session or of all (""). It wakes nobody.
func Approvals(ctx context.Context, store persistence.Store, session string) ([]*messages.ApprovalView, error) {
	prefix := ApprovalKey(session, "")
	if session == "" {
		prefix = strings.TrimSuffix(prefix, "/")
	}
	out, err := entries[messages.ApprovalView](ctx, store, prefix)
	if err != nil {
		return nil, fmt.Errorf("list approvals: %w", err)
	}
	return out, nil
}

// ApprovalNamed finds an approval that waits for its answer, or says why there is none.
func ApprovalNamed(ctx context.Context, store persistence.Store, approvalID string) (*messages.ApprovalView, error) {
	all, err := Approvals(ctx, store, "")
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if v.GetApprovalId() == approvalID {
			return v, nil
		}
	}
	decision := ""
	err = store.Index(ctx, AnsweredKey(approvalID, ""), func(_ string, value []byte) error {
		decision = string(value)
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("find approval %s: %w", approvalID, err)
	case decision != "":
		return nil, AlreadyAnswered(approvalID, decision)
	}
	return nil, NotAsked(approvalID)
}
