package actors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
)

// remembering is an answer that waits until the rule is durable which it leaves behind. Every other message waits with
// it: nothing else may answer meanwhile.
type remembering struct {
	answer *messages.ResolveApproval
	asker  *actor.PID
	reply  *messages.Remembered // nil: it is awaited
}

func (r *remembering) askerOrNil() *actor.PID {
	if r == nil {
		return nil
	}
	return r.asker
}

// remembers says whether an answer leaves a rule behind that is not written yet.
func remembers(m *messages.ResolveApproval) bool {
	return m.GetScope() != "" && m.GetScope() != scopeOnce && m.GetRuleId() == ""
}

// badScope refuses an answer that asks for something to be remembered in a way that there is not.
func badScope(m *messages.ResolveApproval) *messages.Failure {
	switch m.GetScope() {
	case "", scopeOnce:
		if m.GetRule() != "" {
			return messages.Fail(messages.CodeBadRequest, "an answer that holds once leaves no rule behind", "say for how long: scope session, agent or always")
		}
		return nil
	case scopeSession, scopeAgent, scopeAlways:
	default:
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("there is no scope %q", m.GetScope()), "one of once, session, agent, always")
	}
	if m.GetDecision() == messages.Decision_CANCELLED {
		return messages.Fail(messages.CodeBadRequest, "an answer that ends the turn leaves no rule behind", "approve or reject with a scope, or cancel without one")
	}
	return nil
}

// rememberable writes down what of a call can be remembered, or why nothing can.
func rememberable(q policy.Question, a policy.Action) (rules []string, why string) {
	all, err := policy.Remember(q, a)
	if err != nil {
		return nil, err.Error()
	}
	for _, r := range all {
		rules = append(rules, r.String())
	}
	return rules, ""
}

// remember asks for the rule that an answer leaves behind. offered are the texts that may be chosen from, as they were
// shown; a refusal is remembered as the exact one. nil: the answer goes on when the rule is there.
func (w *Worker) remember(c actor.Context, m *messages.ResolveApproval, offered []string) *messages.Failure {
	call := asked(w.state, m.GetApprovalId())
	where := call.Plan.GetWorkspace()
	if where == "" {
		where = w.countsIn(nil)
	}
	rule, why := w.chosen(m, offered)
	if rule == "" {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("approval %s was not answered: it cannot be remembered: %s", m.GetApprovalId(), why),
			"answer it once; a rule for more can be written with --allow, or below approvals.rules in the configuration")
	}
	if m.GetScope() != scopeSession && w.homely(where) {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("approval %s was not answered: %s belongs to this session alone", m.GetApprovalId(), where), "answer with scope session")
	}
	m.Rule = rule
	w.remembering = &remembering{answer: m, asker: c.Sender()}
	c.Request(c.Parent(), &messages.RememberRule{
		Rule: rule, Scope: m.GetScope(), Agent: w.agent(), Workspace: where, By: cmp.Or(m.GetBy(), "user"), ApprovalId: m.GetApprovalId(), SessionId: w.session, Tenant: w.grant.GetTenant(),
	})
	return nil
}

// chosen is the rule that an answer wants remembered, or why it cannot be.
func (w *Worker) chosen(m *messages.ResolveApproval, offered []string) (rule, why string) {
	call := asked(w.state, m.GetApprovalId())
	if m.GetDecision() == messages.Decision_REJECTED {
		j, err := w.judge(call.Name, call.Arguments)
		if err != nil {
			return "", err.Error()
		}
		if offered, why = rememberable(j.question, policy.Deny); why != "" {
			return "", why
		}
	}
	switch {
	case len(offered) == 0:
		return "", cmp.Or(call.Requested.GetUnremembered(), "no rule can say just this")
	case m.GetRule() == "":
		return offered[len(offered)-1], ""
	case !slices.Contains(offered, m.GetRule()):
		return "", fmt.Sprintf("rule %q is none of those that this call offers: %s", m.GetRule(), strings.Join(offered, ", "))
	case m.GetRule() == policy.Reads && m.GetScope() != scopeSession:
		return "", "that everything may be read holds for a session at most"
	}
	return m.GetRule(), ""
}

// homely says whether a workspace is the session's own, which no other session has.
func (w *Worker) homely(uri string) bool {
	return slices.ContainsFunc(w.grant.GetWorkspaces(), func(g *messages.WorkspaceGrant) bool { return g.GetUri() == uri && g.GetKind() == "server" })
}

// noteRemembered keeps the reply until an append that is under way is done.
func (w *Worker) noteRemembered(c actor.Context, m *messages.Remembered) {
	if w.remembering == nil || w.remembering.answer.GetApprovalId() != m.GetApprovalId() {
		return // of before a failure
	}
	w.remembering.reply = m
	if w.inflight == nil {
		w.replay(c)
	}
}

// ruleRemembered goes on with the answer whose rule is durable by now. Whether it counts is looked at again.
func (w *Worker) ruleRemembered(c actor.Context) {
	r := w.remembering
	if r == nil || r.reply == nil || w.inflight != nil {
		return
	}
	w.remembering = nil
	if r.reply.GetFailure() != nil {
		w.tell(c, r.asker, r.reply.GetFailure())
		return
	}
	r.answer.RuleId = r.reply.GetRule().GetRuleId()
	hash, _, fail := w.edited(r.answer)
	facts, refused := approval(w.state, r.answer, hash, w.svc.Now().UnixMilli())
	if fail != nil {
		w.tell(c, r.asker, fail)
		return
	}
	w.writeAnswer(c, r.asker, r.answer, facts, refused)
}
