package troupe

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
)

// Rule is a rule that an answer to an approval left behind.
type Rule = messages.RuleView

// Scope says for how long an answer holds, and for whom.
type Scope = policy.Scope

// The scopes of an answer. What it leaves behind is one rule of the approval's Rules, which counts in the workspace of
// the call and nowhere else, from the next decision on.
const (
	Once       = policy.Once    // for this call (default)
	ForSession = policy.Session // for the rest of the session
	ForAgent   = policy.Agent   // for the calls of this agent, in every session in the workspace
	Always     = policy.Always  // for the calls of every agent, in every session in the workspace
)

// Rules lists the rules that answers left behind, the oldest first. It wakes no session.
func (rt *Runtime) Rules(ctx context.Context) ([]*Rule, error) {
	all, err := rt.listRules(ctx, &messages.ListRules{})
	return all.GetRules(), err
}

// RevokeRule takes a rule back. It returns once that is durable, and every later decision is made without it; approvals that wait
// are not touched.
func (rt *Runtime) RevokeRule(ctx context.Context, ruleID string) error {
	_, err := rt.revokeRule(ctx, &messages.RevokeRule{RuleId: ruleID, By: "program"})
	return err
}

func (rt *Runtime) listRules(ctx context.Context, m *messages.ListRules) (*messages.Rules, error) {
	all, err := actors.RememberedBy(ctx, rt.svc.Store, m.GetSessionId())
	if err != nil {
		return nil, err
	}
	if m.GetSessionId() != "" {
		if _, err := rt.session(ctx, m.GetSessionId()); err != nil { // is there such a session?
			return nil, err
		}
	}
	all = append(all, rt.svc.Standing()...)
	slices.SortStableFunc(all, func(a, b *messages.RuleView) int {
		return cmp.Or(cmp.Compare(a.GetAtUnixMs(), b.GetAtUnixMs()), cmp.Compare(a.GetRuleId(), b.GetRuleId()))
	})
	return &messages.Rules{Rules: all}, nil
}

// revokeRule finds the journal that the rule stands in.
func (rt *Runtime) revokeRule(ctx context.Context, m *messages.RevokeRule) (proto.Message, error) {
	own, err := actors.RememberedBy(ctx, rt.svc.Store, "")
	if err != nil {
		return nil, err
	}
	for _, v := range own {
		if v.GetRuleId() == m.GetRuleId() {
			return send[proto.Message](ctx, rt, &messages.ToSession{SessionId: v.GetSessionId(), Command: &messages.ToSession_RevokeRule{RevokeRule: m}})
		}
	}
	return send[proto.Message](ctx, rt, m)
}
