package conversation

import (
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// InterruptedText is what the model reads in place of a result that was lost.
const InterruptedText = "Interrupted: the outcome of this call is unknown; it may have run. Verify before repeating it."

// Recover decides, for all open calls at once, what a new activation does about them. A call
// whose dispatch is not in the journal never started (I2: dispatched is durable before
// the effect), so it may start now, once its approval is given: WAIT_APPROVAL is also the decision for a call
// whose question was not journaled yet and for one that was refused, which ends without running.
// One that was dispatched goes by its effect class; what a person was asked about stays that person's.
func (s *State) Recover() []*messages.RecoveryDecision {
	if s.turn == nil {
		return nil
	}
	var out []*messages.RecoveryDecision
	for _, c := range s.turn.OpenCalls() {
		out = append(out, &messages.RecoveryDecision{ExecId: c.Plan.GetExecId(), Action: c.recover()})
	}
	return out
}

func (c *Call) recover() messages.RecoveryDecision_Action {
	switch {
	case c.Dispatched == nil && !c.Cleared():
		return messages.RecoveryDecision_WAIT_APPROVAL
	case c.Dispatched == nil:
		return messages.RecoveryDecision_DISPATCH
	case c.doubted:
		return messages.RecoveryDecision_ASK_PERSON
	case c.redo:
		return messages.RecoveryDecision_RERUN
	case c.Settled():
		return messages.RecoveryDecision_KNOWN
	}
	switch c.Plan.GetEffect() {
	case messages.Effect_PURE, messages.Effect_IDEMPOTENT:
		return messages.RecoveryDecision_RERUN
	case messages.Effect_RECONCILABLE:
		return messages.RecoveryDecision_RECONCILE
	case messages.Effect_AT_MOST_ONCE, messages.Effect_UNSPECIFIED:
	}
	return Unknown(c)
}

// Unknown is what the declared policy says about a call whose outcome cannot be found out.
func Unknown(c *Call) messages.RecoveryDecision_Action {
	switch c.Plan.GetUnknown() {
	case messages.UnknownOutcome_RETRY:
		return messages.RecoveryDecision_RERUN
	case messages.UnknownOutcome_ASK:
		return messages.RecoveryDecision_ASK_PERSON
	case messages.UnknownOutcome_FAIL:
		return messages.RecoveryDecision_FAIL_TURN
	case messages.UnknownOutcome_REPORT:
	}
	return messages.RecoveryDecision_REPORT_UNKNOWN
}

// InDoubt says whether a person is asked what became of the call.
func (c *Call) InDoubt() bool { return c.doubted && c.Open() }

// Redo says whether a person has said to run the call again, and it has not been started since.
func (c *Call) Redo() bool { return c.redo && c.Open() }

// Settled says whether a person has said what became of the call, and its result is still to be written.
func (c *Call) Settled() bool {
	return c.Open() && c.Answer != nil && c.Answer.GetResolution() != messages.CallResolved_RETRY
}

// InDoubt says whether the turn has a call that waits for a person's word.
func (t *Turn) InDoubt() bool {
	for _, c := range t.Calls {
		if c.InDoubt() {
			return true
		}
	}
	return false
}

// Doomed returns the call whose outcome is unknown and whose policy ends the turn for that, nil when there is none.
func (t *Turn) Doomed() *Call {
	for _, c := range t.AllCalls {
		if c.Finished.GetStatus() == messages.ToolFinished_INTERRUPTED_UNKNOWN && c.Plan.GetUnknown() == messages.UnknownOutcome_FAIL {
			return c
		}
	}
	return nil
}

// What the model reads of a call that a person has settled. The note, when there is one, is a line of its own.
const (
	HappenedText    = "A person confirmed that this call happened. Its output is lost."
	NotHappenedText = "A person confirmed that this call did not happen."
)

// ResultOf is the result of a call that a person has settled with DONE or FAIL.
func ResultOf(c *Call, f *messages.CallResolved) *messages.ToolFinished {
	r := &messages.ToolFinished{
		ExecId: c.Plan.GetExecId(), CallId: c.Plan.GetCallId(), Tool: c.Name,
		Status: messages.ToolFinished_ERROR, Content: NotHappenedText, ErrorCode: "interrupted",
	}
	if f.GetResolution() == messages.CallResolved_DONE {
		r.Status, r.Content, r.ErrorCode = messages.ToolFinished_OK, HappenedText, ""
	}
	if f.GetNote() != "" {
		r.Content += "\nTheir note: " + f.GetNote()
	}
	return r
}

// ResolutionName is a person's word on a call as every surface writes it.
func ResolutionName(r messages.CallResolved_Resolution) string { return strings.ToLower(r.String()) }
