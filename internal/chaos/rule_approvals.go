package chaos

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// refusedHasNoEffect is R7. A call that nobody was asked about is DENIED; one that was asked about goes by
// the answer.
func refusedHasNoEffect(v *view, r *report) {
	for _, c := range v.calls {
		v.approval(c, r)
		why := v.refusedBecause(c)
		if why == "" {
			continue
		}
		if v.began(c) {
			r.add(Broken, streamOf(c), seqOf(c), "%s %s was %s and had an effect", c.planned.GetTool(), c.planned.GetExecId(), why)
		}
		if len(c.dispatched) > 0 {
			r.add(Broken, streamOf(c), c.dispatched[0].seq(), "%s %s was %s and dispatched", c.planned.GetTool(), c.planned.GetExecId(), why)
		}
		if f := c.result(); f.GetStatus() == messages.ToolFinished_OK {
			r.add(Broken, streamOf(c), c.finished[0].seq(), "%s %s was %s and is OK", c.planned.GetTool(), c.planned.GetExecId(), why)
		}
	}
	for _, a := range v.Answers {
		v.answered(a, r)
	}
}

// refusedBecause says why a call must not have run, "" when it may have.
func (v *view) refusedBecause(c *call) string {
	if slices.Contains(v.Guarded, c.planned.GetWorkspace()) && !c.pure() {
		return "in a workspace where nobody can be asked"
	}
	if c.result().GetStatus() == messages.ToolFinished_DENIED {
		return "denied"
	}
	for _, f := range c.resolved {
		switch f.what.(*messages.ApprovalResolved).GetDecision() { //nolint:forcetypeassert // put there by its type
		case messages.Decision_REJECTED:
			return "rejected"
		case messages.Decision_CANCELLED:
			return "cancelled"
		case messages.Decision_EXPIRED:
			return "expired"
		case messages.Decision_NOT_ASKED:
			return "not asked"
		case messages.Decision_UNSPECIFIED, messages.Decision_APPROVED:
		}
	}
	if c.result().GetStatus() == messages.ToolFinished_CANCELLED && len(c.dispatched) == 0 && !c.pure() { // what only reads may have run before a kill
		return "cancelled before it started"
	}
	return ""
}

func (v *view) began(c *call) bool {
	for _, e := range v.Effects {
		if e.Exec == c.planned.GetExecId() {
			return true
		}
	}
	for _, mark := range c.marks {
		if v.stands[mark] > 0 {
			return true
		}
	}
	return false
}

// approval checks that a call which needs an answer waits for it, and that the answer is about the very
// arguments that run.
func (v *view) approval(c *call, r *report) {
	exec := c.planned.GetExecId()
	if hash := argsHash(c.arguments); hash != nil && len(c.planned.GetArgsHash()) > 0 && !bytes.Equal(hash, c.planned.GetArgsHash()) {
		r.add(Broken, streamOf(c), seqOf(c), "%s %s was decided on by other arguments than it has", c.planned.GetTool(), exec)
	}
	if !c.planned.GetNeedsApproval() && len(c.requested) == 0 {
		return
	}
	for _, f := range c.requested {
		if q := f.what.(*messages.ApprovalRequested); !bytes.Equal(q.GetArgsHash(), boundTo(c, c.planned.GetArgsHash())) { //nolint:forcetypeassert // put there by its type
			r.add(Broken, f.stream, f.seq(), "the question about %s %s is about other arguments", c.planned.GetTool(), exec)
		}
	}
	for _, d := range c.dispatched {
		if !clearedBefore(c, d.seq()) {
			r.add(Broken, d.stream, d.seq(), "%s %s was dispatched without an approval", c.planned.GetTool(), exec)
		}
	}
	for _, f := range c.resolved {
		a := f.what.(*messages.ApprovalResolved) //nolint:forcetypeassert // put there by its type
		want := boundTo(c, c.planned.GetArgsHash())
		if a.GetModifiedArgs() != "" {
			want = boundTo(c, argsHash(a.GetModifiedArgs()))
		}
		if a.GetDecision() == messages.Decision_APPROVED && !bytes.Equal(a.GetArgsHash(), want) {
			r.add(Broken, f.stream, f.seq(), "the approval of %s %s is about other arguments", c.planned.GetTool(), exec)
		}
	}
}

// boundTo is what an approval of a call with such arguments is bound to.
func boundTo(c *call, arguments []byte) []byte {
	return tools.ApprovalHash(c.planned.GetTool(), arguments, c.planned.GetWorkspace())
}

// clearedBefore tells whether the newest answer before a record is a yes to a question of this call.
func clearedBefore(c *call, seq uint64) bool {
	asked := ""
	for _, f := range c.requested {
		if f.seq() < seq {
			asked = f.what.(*messages.ApprovalRequested).GetApprovalId() //nolint:forcetypeassert // put there by its type
		}
	}
	yes := false
	for _, f := range c.resolved {
		if a := f.what.(*messages.ApprovalResolved); f.seq() < seq { //nolint:forcetypeassert // put there by its type
			yes = a.GetDecision() == messages.Decision_APPROVED && a.GetApprovalId() == asked
		}
	}
	return yes && asked != ""
}

// answered looks for an answer that was acknowledged to who gave it.
func (v *view) answered(a Answer, r *report) {
	for _, c := range v.calls {
		for _, f := range c.resolved {
			got := f.what.(*messages.ApprovalResolved) //nolint:forcetypeassert // put there by its type
			if got.GetApprovalId() != a.Approval {
				continue
			}
			if got.GetDecision() != a.Decision {
				r.add(Broken, f.stream, f.seq(), "approval %s was answered with %s and kept as %s", a.Approval, a.Decision, got.GetDecision())
			}
			return
		}
	}
	r.add(Lost, "", 0, "the answer %s to approval %s is in no journal", a.Decision, a.Approval)
}

// argsHash is the hash of arguments in their canonical form, nil when they have none.
func argsHash(arguments string) []byte {
	_, hash, err := tools.Canonical(json.RawMessage(arguments))
	if err != nil {
		return nil
	}
	return hash[:]
}
