package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Rules keeps the rules that outlast a session: those of the scopes agent and always, which answers to approvals left
// behind. They stand in the stream of the whole store. It is claimed for one append at a time and read anew under the claim, so
// that several runtimes on one store do not overwrite each other; what another one wrote counts here from the next change
// or start on.
//
// Accepts: RememberRule (reply Remembered), RevokeRule and RegisterHost, whose names of machines stand in the same stream (reply Ack); the results of its goroutines. One at a time, in
// order. Parent: Supervisor, which forwards. What is in force every worker reads from Services, where only this actor puts it.
type Rules struct {
	svc   *Services
	log   *slog.Logger
	asker *actor.PID // of the change under way
	busy  bool
	stash act.Stash
}

// rulesChanged is the end of a change.
type rulesChanged struct {
	facts *systemFacts // in force now; nil: as before
	reply any
}

const rulesName = "rules"

func newRules(svc *Services) *Rules { return &Rules{svc: svc, log: svc.Log} }

// Receive is the dispatch table.
func (r *Rules) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started, *actor.Stopped:
	case *messages.RememberRule:
		r.change(c, func() *rulesChanged { return rememberRule(r.svc, m) })
	case *messages.RevokeRule:
		r.change(c, func() *rulesChanged { return revokeRule(r.svc, m) })
	case *messages.RegisterHost:
		r.change(c, func() *rulesChanged { return registerHost(r.svc, m) })
	case *rulesChanged:
		r.changed(c, m)
	case *actor.Stopping:
		r.stopping(c)
	default:
		act.Unexpected(c, r.log)
	}
}

// change works off the mailbox; further changes wait for its end.
func (r *Rules) change(c actor.Context, work func() *rulesChanged) {
	if r.busy {
		r.stash.Put(c)
		return
	}
	r.busy, r.asker = true, c.Sender()
	r.svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		return &rulesChanged{reply: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any { return work() })
}

// changed puts the rules into force before anybody hears of it.
func (r *Rules) changed(c actor.Context, m *rulesChanged) {
	if m.facts != nil {
		r.svc.rules.list.Store(&m.facts.rules)
		r.svc.rules.unread.Store(false)
	}
	if r.asker != nil {
		c.Send(r.asker, m.reply)
	}
	r.busy, r.asker = false, nil
	r.stash.Replay(c, r.Receive, func() bool { return !r.busy })
}

func (r *Rules) stopping(c actor.Context) {
	gone := messages.Fail(messages.CodeUnavailable, "the runtime is stopping", "try again")
	if r.asker != nil {
		c.Send(r.asker, gone)
	}
	r.stash.Each(func(_ any, sender *actor.PID) {
		if sender != nil {
			c.Send(sender, gone)
		}
	})
	r.asker, r.stash = nil, act.Stash{}
}

// standingRule is a rule of the whole store.
type standingRule struct {
	rule *messages.RememberedRule
	view *messages.RuleView
}

// ruleBook is what of the rules is in force in this process. Whoever decides reads it; only Rules changes it.
type ruleBook struct {
	list   atomic.Pointer[[]standingRule]
	unread atomic.Bool // they could not be read: nothing runs unasked that a rule might deny
}

func (b *ruleBook) now() []standingRule {
	if all := b.list.Load(); all != nil {
		return *all
	}
	return nil
}

// Standing lists the rules that outlast a session, in the order in which they came.
func (s *Services) Standing() []*messages.RuleView {
	var out []*messages.RuleView
	for _, r := range s.rules.now() {
		out = append(out, proto.CloneOf(r.view))
	}
	return out
}

// loadRules puts what the store remembers into force. While that cannot be read every call asks: a rule may be there that denies.
func (s *Services) loadRules(ctx context.Context) {
	f := &systemFacts{}
	if err := s.Store.Read(ctx, messages.SystemStream, 1, f.take); err != nil {
		s.rules.unread.Store(true)
		s.Log.Error("the rules that were remembered cannot be read: until they can, nothing runs unasked", "err", err)
		return
	}
	s.rules.list.Store(&f.rules)
}

// systemFacts is the fold of the stream of the whole store.
type systemFacts struct {
	rules []standingRule
	hosts map[string]string // the token that each name of a machine belongs to; "" is the runtime's user
}

func (f *systemFacts) take(e persistence.Entry) error {
	fact, err := messages.SystemFactIn(e.Record)
	if err != nil {
		return fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
	}
	f.apply(fact, e.Record.GetAtUnixMs())
	return nil
}

func (f *systemFacts) apply(fact proto.Message, atMs int64) {
	switch x := fact.(type) {
	case *messages.RuleRemembered:
		f.rules = append(f.rules, standingRule{
			&messages.RememberedRule{Rule: x.GetRule(), Workspace: x.GetWorkspace(), Agent: x.GetAgent()},
			&messages.RuleView{
				RuleId: x.GetRuleId(), Rule: x.GetRule(), Scope: x.GetScope(), Agent: x.GetAgent(), Workspace: x.GetWorkspace(),
				SessionId: x.GetSessionId(), By: x.GetBy(), ApprovalId: x.GetApprovalId(), AtUnixMs: atMs, Tenant: x.GetTenant(),
			},
		})
	case *messages.RuleRevoked:
		var left []standingRule
		for _, r := range f.rules {
			if r.view.GetRuleId() != x.GetRuleId() {
				left = append(left, r)
			}
		}
		f.rules = left
	case *messages.HostRegistered:
		if f.hosts == nil {
			f.hosts = make(map[string]string)
		}
		if _, taken := f.hosts[x.GetHost()]; !taken {
			f.hosts[x.GetHost()] = x.GetTokenId()
		}
	}
}

// find gives the rule that says the same already.
func (f *systemFacts) find(m *messages.RememberRule) *messages.RuleView {
	for _, r := range f.rules {
		v := r.view
		if v.GetRule() == m.GetRule() && v.GetWorkspace() == m.GetWorkspace() && v.GetScope() == m.GetScope() && v.GetAgent() == forAgent(m) && v.GetTenant() == m.GetTenant() {
			return v
		}
	}
	return nil
}

// forAgent is whose calls a rule is about: with scope agent the asking worker's, else everybody's.
func forAgent(m *messages.RememberRule) string {
	if m.GetScope() == scopeAgent {
		return m.GetAgent()
	}
	return ""
}

func rememberRule(svc *Services, m *messages.RememberRule) *rulesChanged {
	fail := func(code string, err error) *rulesChanged {
		return &rulesChanged{reply: &messages.Remembered{ApprovalId: m.GetApprovalId(), Failure: messages.Fail(code, "remember rule "+m.GetRule()+": "+err.Error(), "")}}
	}
	j, f, err := openSystem(svc)
	if err != nil {
		return fail(unreadable(err), err)
	}
	defer j.Release()
	if v := f.find(m); v != nil {
		return &rulesChanged{facts: f, reply: &messages.Remembered{ApprovalId: m.GetApprovalId(), Rule: v}}
	}
	fact := &messages.RuleRemembered{
		Rule: m.GetRule(), Scope: m.GetScope(), Agent: forAgent(m), By: m.GetBy(), RuleId: messages.NewID(messages.RulePrefix),
		Workspace: m.GetWorkspace(), ApprovalId: m.GetApprovalId(), SessionId: m.GetSessionId(), Tenant: m.GetTenant(),
	}
	if err := appendSystem(svc, j, f, fact); err != nil {
		return fail(messages.CodeUnavailable, err)
	}
	return &rulesChanged{facts: f, reply: &messages.Remembered{ApprovalId: m.GetApprovalId(), Rule: f.find(m)}}
}

func revokeRule(svc *Services, m *messages.RevokeRule) *rulesChanged {
	fail := func(code string, err error) *rulesChanged {
		return &rulesChanged{reply: messages.Fail(code, "take rule "+m.GetRuleId()+" back: "+err.Error(), "")}
	}
	j, f, err := openSystem(svc)
	if err != nil {
		return fail(unreadable(err), err)
	}
	defer j.Release()
	for _, r := range f.rules {
		if r.view.GetRuleId() != m.GetRuleId() {
			continue
		}
		if err := appendSystem(svc, j, f, &messages.RuleRevoked{Rule: r.view.GetRule(), RuleId: m.GetRuleId(), By: m.GetBy()}); err != nil {
			return fail(messages.CodeUnavailable, err)
		}
		return &rulesChanged{facts: f, reply: &messages.Ack{}}
	}
	return &rulesChanged{facts: f, reply: NoRule(m.GetRuleId())}
}

func unreadable(err error) string {
	if damaged(err) {
		return messages.CodeCorrupt
	}
	return messages.CodeUnavailable
}

// NoRule is the refusal of an unknown rule.
func NoRule(id string) *messages.Failure {
	return messages.Fail(messages.CodeNotFound, fmt.Sprintf("there is no rule %s", id), "`troupe rules ls` lists them")
}

// openSystem claims the stream of the whole store and folds it.
func openSystem(svc *Services) (*persistence.Journal, *systemFacts, error) {
	ctx, f := context.Background(), &systemFacts{}
	j, err := persistence.OpenJournal(ctx, svc.Store, messages.SystemStream, "", svc.Node)
	if err != nil {
		return nil, nil, err
	}
	j.Now = svc.Now
	if err := j.Replay(ctx, 1, f.take); err != nil {
		j.Release()
		return nil, nil, err
	}
	return j, f, nil
}

func appendSystem(svc *Services, j *persistence.Journal, f *systemFacts, fact proto.Message) error {
	r, err := messages.NewSystemRecord(fact)
	if err != nil {
		return err
	}
	_, err = appendAndWait(svc, persistence.Part{Journal: j, Draft: persistence.Draft{Records: []*messages.Record{r}}})
	if err != nil {
		if errors.Is(err, persistence.ErrFenced) {
			return fmt.Errorf("another runtime was changing the rules: try again: %w", err)
		}
		return err
	}
	f.apply(fact, r.GetAtUnixMs())
	return nil
}
