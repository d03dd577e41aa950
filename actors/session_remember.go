package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/policy"
)

// The scopes of an answer, as they are written.
const (
	scopeOnce    = string(policy.Once)
	scopeSession = string(policy.Session)
	scopeAgent   = string(policy.Agent)
	scopeAlways  = string(policy.Always)
)

// rulePause is how long the wish for a rule waits for the successor of who writes them.
const rulePause = 20 * time.Millisecond

// ruleWritten is the end of an append that changed the session's own rules.
type ruleWritten struct {
	asker   *actor.PID
	journal *persistence.Journal
	fact    proto.Message
	record  *messages.Record
	receipt persistence.Receipt
	ruleID  string
	fail    *messages.Failure
}

func (f *sessionFacts) applyRule(fact proto.Message, r *messages.Record) {
	switch x := fact.(type) {
	case *messages.RuleAdded:
		f.rules = append(f.rules, &messages.RuleView{
			RuleId: x.GetRuleId(), Rule: x.GetRule(), Scope: x.GetScope(), Workspace: x.GetWorkspace(), SessionId: f.created.GetSessionId(),
			By: x.GetBy(), ApprovalId: x.GetApprovalId(), AtUnixMs: r.GetAtUnixMs(), Tenant: f.created.GetTenant(),
		})
	case *messages.RuleRevoked:
		var left []*messages.RuleView
		for _, v := range f.rules {
			if v.GetRuleId() != x.GetRuleId() {
				left = append(left, v)
			}
		}
		f.rules = left
	}
}

// remembered are the session's own rules as workers get them.
func (f *sessionFacts) remembered() []*messages.RememberedRule {
	var out []*messages.RememberedRule
	for _, v := range f.rules {
		out = append(out, &messages.RememberedRule{Rule: v.GetRule(), Workspace: v.GetWorkspace()})
	}
	return out
}

func (f *sessionFacts) rule(match func(*messages.RuleView) bool) *messages.RuleView {
	if i := slices.IndexFunc(f.rules, match); i >= 0 {
		return f.rules[i]
	}
	return nil
}

// RuleKey is the listing entry of a rule that a session remembers; the value is a RuleView.
func RuleKey(session, ruleID string) string { return "rul/" + session + "/" + ruleID }

// rememberRule writes a rule down that an answer to an approval leaves behind: in the session's journal, or beyond the session
// where the Rules do. Its worker writes the answer only after that.
func (s *Session) rememberRule(c actor.Context, m *messages.RememberRule) {
	if m.GetScope() != scopeSession {
		s.rememberBeyond(c, m)
		return
	}
	if s.building {
		s.builds.Put(c)
		return
	}
	same := s.facts.rule(func(v *messages.RuleView) bool {
		return v.GetRule() == m.GetRule() && v.GetWorkspace() == m.GetWorkspace()
	})
	if same != nil {
		s.answer(c, &messages.Remembered{ApprovalId: m.GetApprovalId(), Rule: same})
		return
	}
	id := messages.NewID(messages.RulePrefix)
	s.writeRule(c, &ruleWritten{asker: c.Sender(), ruleID: id, fact: &messages.RuleAdded{
		Rule: m.GetRule(), Scope: m.GetScope(), By: m.GetBy(), RuleId: id, Workspace: m.GetWorkspace(), ApprovalId: m.GetApprovalId(),
	}})
}

func (s *Session) rememberBeyond(c actor.Context, m *messages.RememberRule) {
	svc, sys, asker, away := s.svc, c.ActorSystem(), c.Sender(), &s.rest.away
	failed := func(err error) any {
		return &messages.Remembered{ApprovalId: m.GetApprovalId(), Failure: messages.Fail(messages.CodeUnavailable, "remember rule "+m.GetRule()+": "+err.Error(), "try again")}
	}
	away.Add(1)
	svc.spawn(sys, asker, func(p *act.Panic) any { return failed(p) }, func() any {
		defer away.Add(-1)
		// It waits as long as it takes: an answer that was refused for its time alone could have left its rule behind. Who writes rules
		// always answers, or is replaced; the same wish again then finds what was written.
		for {
			r, err := act.Ask[*messages.Remembered](context.Background(), sys, sys.NewLocalPID(root), m)
			switch {
			case err == nil:
				return r
			case !errors.Is(err, act.ErrGone) || !svc.pause(rulePause):
				return failed(err)
			}
		}
	})
}

// revokeRule takes one of the session's own rules back.
func (s *Session) revokeRule(c actor.Context, m *messages.RevokeRule) {
	if s.building {
		s.builds.Put(c)
		return
	}
	v := s.facts.rule(func(v *messages.RuleView) bool { return v.GetRuleId() == m.GetRuleId() })
	if v == nil {
		s.answer(c, NoRule(m.GetRuleId()))
		return
	}
	s.writeRule(c, &ruleWritten{asker: c.Sender(), ruleID: m.GetRuleId(), fact: &messages.RuleRevoked{Rule: v.GetRule(), RuleId: m.GetRuleId(), By: m.GetBy()}})
}

// writeRule appends a change of the session's own rules, with their listing.
func (s *Session) writeRule(c actor.Context, w *ruleWritten) {
	s.building = true
	svc, journal, seq, session := s.svc, s.journal, s.facts.seq, s.id
	after := s.facts
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		w.fail = messages.Fail(messages.CodeInternal, p.Error(), "")
		return w
	}, func() any {
		if err := w.write(svc, journal, seq, session, after); err != nil {
			w.fail = messages.Fail(messages.CodeUnavailable, fmt.Sprintf("change the rules of session %s: %v", session, err), "try again")
		}
		return w
	})
}

func (w *ruleWritten) write(svc *Services, journal *persistence.Journal, seq uint64, session string, facts sessionFacts) error {
	var err error
	if w.journal, w.record, err = oneRecord(svc, journal, seq, w.fact); err != nil {
		return err
	}
	facts.rules = slices.Clone(facts.rules)
	facts.applyRule(w.fact, w.record)
	op := persistence.IndexOp{Key: RuleKey(session, w.ruleID), Delete: true}
	if v := facts.rule(func(v *messages.RuleView) bool { return v.GetRuleId() == w.ruleID }); v != nil {
		b, err := proto.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode listing entry: %w", err)
		}
		op = persistence.IndexOp{Key: op.Key, Value: b}
	}
	w.receipt, err = appendAndWait(svc, persistence.Part{Journal: w.journal, Draft: persistence.Draft{Records: []*messages.Record{w.record}, Index: []persistence.IndexOp{op}}})
	return err
}

// ruleWritten gives the workers their new grant, and answers: a rule that was added to the worker that asks, which has
// the grant by then; a rule that was taken back once every worker knows.
func (s *Session) ruleWritten(c actor.Context, m *ruleWritten) {
	s.building = false
	if m.journal != nil {
		s.journal = m.journal
	}
	defer s.goOn(c)
	rule, added := m.fact.(*messages.RuleAdded)
	switch {
	case m.fail != nil && added:
		s.tell(c, m.asker, &messages.Remembered{ApprovalId: rule.GetApprovalId(), Failure: m.fail})
		return
	case m.fail != nil:
		s.tell(c, m.asker, m.fail)
		return
	}
	s.written(c, []proto.Message{m.fact}, []*messages.Record{m.record}, m.receipt)
	g := proto.CloneOf(s.grant)
	g.Remembered = s.facts.remembered()
	s.grant = g
	change := &messages.Configure{Grant: g, Watched: len(s.watchers) > 0}
	if added {
		s.tellAll(c, change)
		s.tell(c, m.asker, &messages.Remembered{ApprovalId: rule.GetApprovalId(), Rule: s.facts.rule(func(v *messages.RuleView) bool { return v.GetRuleId() == m.ruleID })})
		return
	}
	s.tellAllAndWait(c, m.asker, change)
}

// tellAllAndWait answers once every worker has taken a change.
func (s *Session) tellAllAndWait(c actor.Context, asker *actor.PID, change *messages.Configure) {
	if asker == nil {
		s.tellAll(c, change)
		return
	}
	waits, away := s.configureAll(c, change), &s.rest.away
	away.Add(1)
	s.svc.spawn(c.ActorSystem(), asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		if fail := taken(waits); fail != nil {
			return fail
		}
		return &messages.Ack{}
	})
}

// RememberedBy lists the rules that sessions remember for themselves, of one or of all (""). It wakes nobody.
func RememberedBy(ctx context.Context, store persistence.Store, session string) ([]*messages.RuleView, error) {
	prefix := RuleKey(session, "")
	if session == "" {
		prefix = "rul/"
	}
	out, err := entries[messages.RuleView](ctx, store, prefix)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	return out, nil
}
