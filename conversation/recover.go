package conversation

import "github.com/troupe-dev/troupe/messages"

// InterruptedText is what the model reads in place of a result that was lost.
const InterruptedText = "Interrupted: the outcome of this call is unknown; it may have run. Verify before repeating it."

// Recover decides, for all open calls at once, what a new activation does about them. A call
// whose dispatch is not in the journal never started (I2: dispatched is durable before
// the effect), so it may start now, once its approval is given: WAIT_APPROVAL is also the decision for a call
// whose question was not journaled yet and for one that was refused, which ends without running.
// One that was dispatched goes by its effect class.
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
