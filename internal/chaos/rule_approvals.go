package chaos

import (
	"bytes"
	"cmp"
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
	v.answered(r)
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
	v.afterYes(c, r)
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

// approvedAs is the yes to a call and the arguments that it is about, nil while there is none.
func (c *call) approvedAs() (yes *fact, arguments string) {
	for _, f := range c.resolved {
		if a := f.what.(*messages.ApprovalResolved); a.GetDecision() == messages.Decision_APPROVED { //nolint:forcetypeassert // put there by its type
			return f, cmp.Or(a.GetModifiedArgs(), c.arguments)
		}
	}
	return nil, ""
}

// afterYes checks that a call which was asked about began only once the yes to it was in the journal, and with what
// that is about. What only reads has no dispatch to go by.
func (v *view) afterYes(c *call, r *report) {
	exec := c.planned.GetExecId()
	yes, arguments := c.approvedAs()
	for _, e := range v.Effects {
		if e.Exec != exec || e.Phase != Begun {
			continue
		}
		switch {
		case yes == nil:
			r.add(Broken, streamOf(c), seqOf(c), "%s %s began and was not approved", e.Tool, exec)
		case e.Boot < yes.epoch()>>32, e.Boot == yes.epoch()>>32 && e.AtMs < yes.entry.Record.GetAtUnixMs(), e.Dispatch != 0 && e.Dispatch < yes.seq():
			r.add(Broken, yes.stream, yes.seq(), "%s %s began before it was approved", e.Tool, exec)
		case e.Name != tagIn(arguments):
			r.add(Broken, yes.stream, yes.seq(), "%s %s was approved for %.80s and ran with %q", e.Tool, exec, arguments, e.Name)
		}
	}
}

// answered compares what was said to approvals, and what became of it, with the journal: one decision each, which
// somebody has made, and no answer that counts is lost.
func (v *view) answered(r *report) {
	decided := v.decided(r)
	given := make(map[Answer]bool)
	counts := make(map[string]bool)
	for _, a := range v.Answers {
		f := decided[a.Approval]
		switch {
		case a.Told == Acknowledged && counts[a.Approval]:
			r.add(Duplicated, "", 0, "a second answer to approval %s was acknowledged: %s", a.Approval, a.Decision)
		case a.Told == Acknowledged:
			counts[a.Approval] = true
			v.kept(a, f, r)
		case a.Told == messages.CodeResolved && f == nil:
			r.add(Lost, "", 0, "approval %s is said to be answered, and its answer is in no journal", a.Approval)
		case a.Told != "" && a.Told != messages.CodeResolved:
			r.add(Broken, "", 0, "the answer %s to approval %s was refused: %s", a.Decision, a.Approval, a.Told)
		}
		given[Answer{Approval: a.Approval, Decision: a.Decision, Arguments: a.Arguments, By: a.By}] = true
	}
	for id, f := range decided {
		a := f.what.(*messages.ApprovalResolved) //nolint:forcetypeassert // put there by its type
		made := given[Answer{Approval: id, Decision: a.GetDecision(), Arguments: a.GetModifiedArgs(), By: a.GetBy()}]
		people := a.GetDecision() == messages.Decision_APPROVED || a.GetDecision() == messages.Decision_REJECTED
		if people && !made && (v.Whole || len(v.Answers) > 0) {
			r.add(Broken, f.stream, f.seq(), "approval %s has the answer %s, which nobody has given", id, a.GetDecision())
		}
	}
	for _, id := range v.Listed {
		r.add(Broken, "", 0, "approval %s is listed as waiting after the end", id)
	}
}

// decided are the answers in the journals, by their approval. There is one for each at the end.
func (v *view) decided(r *report) map[string]*fact {
	out := make(map[string]*fact)
	for _, c := range v.calls {
		for _, f := range c.resolved {
			id := f.what.(*messages.ApprovalResolved).GetApprovalId() //nolint:forcetypeassert // put there by its type
			if first := out[id]; first != nil && id != "" {
				r.add(Duplicated, f.stream, f.seq(), "approval %s is decided on again, after %d", id, first.seq())
				continue
			}
			out[id] = f
		}
	}
	for _, c := range v.calls {
		for _, f := range c.requested {
			id := f.what.(*messages.ApprovalRequested).GetApprovalId() //nolint:forcetypeassert // put there by its type
			if v.Whole && out[id] == nil {
				r.add(Lost, f.stream, f.seq(), "approval %s of %s %s waits after the end", id, c.planned.GetTool(), c.planned.GetExecId())
			}
		}
	}
	return out
}

// kept looks for an answer that was acknowledged to who gave it.
func (v *view) kept(a Answer, f *fact, r *report) {
	if f == nil {
		r.add(Lost, "", 0, "the answer %s to approval %s is in no journal", a.Decision, a.Approval)
		return
	}
	got := f.what.(*messages.ApprovalResolved) //nolint:forcetypeassert // put there by its type
	if got.GetDecision() != a.Decision || got.GetBy() != a.By || got.GetModifiedArgs() != a.Arguments {
		r.add(Broken, f.stream, f.seq(), "approval %s was answered with %s by %q and kept as %s by %q", a.Approval, a.Decision, a.By, got.GetDecision(), got.GetBy())
	}
}

// argsHash is the hash of arguments in their canonical form, nil when they have none.
func argsHash(arguments string) []byte {
	_, hash, err := tools.Canonical(json.RawMessage(arguments))
	if err != nil {
		return nil
	}
	return hash[:]
}
