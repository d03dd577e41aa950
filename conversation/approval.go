package conversation

import (
	"encoding/json"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
)

// Unasked says whether the call needs an approval for which nobody was asked yet.
func (c *Call) Unasked() bool {
	return c.Open() && c.Dispatched == nil && c.Plan.GetNeedsApproval() && c.Requested == nil && c.Resolved == nil
}

// Pending says whether the call waits for the answer to its approval.
func (c *Call) Pending() bool { return c.Open() && c.Requested != nil && c.Resolved == nil }

// Refused says whether the call was answered, and may not run: its result is still to be written.
func (c *Call) Refused() bool { return c.Open() && c.Resolved != nil && !c.Cleared() }

// Asking says whether the turn has a call that waits for the answer to its approval.
func (t *Turn) Asking() bool {
	for _, c := range t.Calls {
		if c.Pending() {
			return true
		}
	}
	return false
}

// held says whether the turn waits for a person: the time does not count as its own.
func (t *Turn) held() bool { return t.InDoubt() || t.Asking() }

// Asked finds the call of an approval, nil when the turn has none.
func (t *Turn) Asked(approvalID string) *Call {
	for _, c := range t.AllCalls {
		if c.Requested != nil && c.Requested.GetApprovalId() == approvalID {
			return c
		}
	}
	return nil
}

// What the model reads of a call that was not approved. The person's message, when there is one, is a line of its own.
const (
	RejectedText  = "Operation rejected by user"
	CancelledText = "Operation cancelled by user: the turn was ended before it was approved."
)

// RefusalOf is the result of a call whose approval was not given. Nothing of it ran.
func RefusalOf(c *Call, f *messages.ApprovalResolved) *messages.ToolFinished {
	r := &messages.ToolFinished{
		ExecId: c.Plan.GetExecId(), CallId: c.Plan.GetCallId(), Tool: c.Name,
		Status: messages.ToolFinished_DENIED, Content: RejectedText, ErrorCode: "user_rejected",
	}
	details := map[string]string{"decision": DecisionName(f.GetDecision())}
	switch f.GetDecision() {
	case messages.Decision_CANCELLED:
		r.Content = CancelledText
	case messages.Decision_EXPIRED:
		allowed := float64(c.Requested.GetExpiresAtUnixMs()-c.Requested.GetAskedAtUnixMs()) / 1000
		r.Content, r.ErrorCode = fmt.Sprintf("Tool execution failed: approval timed out after %v s", allowed), "timeout"
	case messages.Decision_NOT_ASKED:
		r.Content, r.ErrorCode = "Access denied: nobody can be asked", "permission_denied"
	case messages.Decision_REJECTED, messages.Decision_APPROVED, messages.Decision_UNSPECIFIED:
	}
	if f.GetMessage() != "" {
		r.Content += "\nTheir message: " + f.GetMessage()
		details["message"] = f.GetMessage()
	}
	if b, err := json.Marshal(details); err == nil {
		r.DetailsJson = string(b)
	}
	return r
}

// ApprovalView is a call that asks, as it is listed.
func (c *Call) ApprovalView(session, worker, turn, agent string, q *messages.ApprovalRequested) *messages.ApprovalView {
	return &messages.ApprovalView{
		ApprovalId: q.GetApprovalId(), SessionId: session, WorkerId: worker, TurnId: turn, ExecId: q.GetExecId(), CallId: q.GetCallId(),
		Tool: c.Name, State: StatePending, Workspace: c.Plan.GetWorkspace(), Arguments: c.Arguments, Preview: q.GetPreview(),
		Kind: q.GetKind(), ArgsHash: q.GetArgsHash(), Reason: q.GetReason(), AtUnixMs: q.GetAskedAtUnixMs(), ExpiresAtUnixMs: q.GetExpiresAtUnixMs(), Agent: agent,
		Rules: q.GetRules(), Unremembered: q.GetUnremembered(),
	}
}

// The states of an approval that waits for its answer: nobody has seen it, or somebody has.
const (
	StatePending = "pending"
	StateShown   = "shown"
)
