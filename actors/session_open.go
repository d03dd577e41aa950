package actors

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// sessionFacts is the fold of a session's journal.
type sessionFacts struct {
	seq      uint64
	created  *messages.SessionCreated
	atMs     int64
	attached []*messages.WorkspaceAttached
	changed  uint64 // the record that changed the grant last
	workers  []*messages.WorkerSpawned
	ended    map[string]bool                    // calls whose child was deleted
	gone     map[string]*messages.WorkerSpawned // workers that were deleted
	rules    []*messages.RuleView               // that answers left behind
	judged   []string                           // addresses of workspaces whose trust was changed since they were attached
	closed   bool

	budget        *messages.Budget // nil: there is none
	budgetChanges []string         // ids
	allotted      map[string]*messages.Amounts
	steps         map[string]*stepBudget // of the run, of those that have begun and have one

	shared []*messages.ConversationShared
}

func (f *sessionFacts) apply(fact proto.Message, r *messages.Record) error {
	if r.GetSeq() != f.seq+1 {
		return fmt.Errorf("session record %d after %d: %w", r.GetSeq(), f.seq, conversation.ErrIllegal)
	}
	f.seq = r.GetSeq()
	switch x := fact.(type) {
	case *messages.SessionCreated:
		f.created, f.atMs, f.changed, f.budget = x, r.GetAtUnixMs(), f.seq, x.GetBudget()
	case *messages.WorkspaceAttached:
		f.attached, f.changed = append(f.attached[:len(f.attached):len(f.attached)], x), f.seq
	case *messages.WorkspaceDetached:
		f.attached, f.changed = without(f.attached, x.GetUri()), f.seq
		f.forgetTrust(x.GetUri())
	case *messages.TrustChanged:
		f.applyTrust(x)
	case *messages.ModeChanged:
		f.applyMode(x)
	case *messages.VariablesChanged:
		f.changed = f.seq
	case *messages.WorkerSpawned:
		f.workers = append(f.workers, x)
		f.applyStepBudgets(x)
	case *messages.WorkerEnded:
		for i, w := range f.workers {
			if w.GetWorkerId() == x.GetWorkerId() {
				f.gone = maps.Clone(f.gone)
				if f.gone == nil {
					f.gone = make(map[string]*messages.WorkerSpawned, 1)
				}
				f.gone[w.GetWorkerId()] = w
				if w.GetExecId() != "" {
					f.ended = maps.Clone(f.ended)
					if f.ended == nil {
						f.ended = make(map[string]bool, 1)
					}
					f.ended[w.GetExecId()] = true
				}
				f.workers = append(f.workers[:i:i], f.workers[i+1:]...)
				f.endCopies(x.GetWorkerId())
				break
			}
		}
	case *messages.SessionClosed:
		f.closed = true
	case *messages.RuleAdded, *messages.RuleRevoked:
		f.applyRule(x, r)
	case *messages.BudgetChanged, *messages.BudgetAllotted:
		f.applyBudget(x)
	case *messages.ConversationShared:
		f.shared = append(f.shared[:len(f.shared):len(f.shared)], x)
	}
	return nil
}

func (f *sessionFacts) view(g *messages.Grant) *messages.SessionView {
	v := &messages.SessionView{
		Id: f.created.GetSessionId(), CreatedAtUnixMs: f.atMs, UpdatedAtUnixMs: f.atMs, Folder: f.created.GetFolder(),
		Agent: f.created.GetAgent(), Model: f.created.GetModel(), ProjectId: f.created.GetProjectId(), Workspaces: g.GetWorkspaces(),
		State: stateInactive, Persist: f.created.GetPersist(), Tenant: f.created.GetTenant(),
	}
	if f.budget.Bounds() {
		v.Budget = &messages.BudgetView{Most: f.budget.GetMost(), Pause: f.budget.GetPause()}
	}
	return v
}

// sessionOpened is what the goroutine that made or read the session found.
type sessionOpened struct {
	journal *persistence.Journal
	facts   sessionFacts
	grant   *messages.Grant
	fail    *messages.Failure
	reply   *messages.SessionView // to the creator
	creator *actor.PID
	born    *opened                      // the first worker's beginning; nil: it reads that itself
	amid    map[string]bool              // children with something to go on with
	asleep  map[string]*messages.Amounts // what the others have spent
	talking map[string]bool              // shared conversations in which somebody has the word
}

// release gives up what was claimed for a session that does not come to be.
func (o *sessionOpened) release() {
	if o.journal != nil {
		o.journal.Release()
	}
	o.born.release()
}

// create makes the session, its first worker and, when given, the first input in one append: a
// listed session always has its input.
func (s *Session) create(c actor.Context, m *messages.CreateSession) {
	s.id = m.GetSessionId()
	s.log = s.svc.logOf(s.id, "")
	s.receive = (*Session).opening
	svc, sys, self, creator := s.svc, c.ActorSystem(), c.Self(), c.Sender()
	s.creating = true
	b := &sessionBuilder{svc: svc, m: m}
	if b.copies() {
		b.ctx = s.living()
	}
	svc.spawn(sys, self, func(p *act.Panic) any {
		return &sessionOpened{creator: creator, fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		if m.GetRun() != nil {
			b.m = proto.CloneOf(m) // it is completed
		}
		o := b.build()
		if o.fail != nil {
			for _, a := range b.made {
				svc.unmake(a)
			}
		} else {
			o.fail = openWorkspaces(svc, sys, o.facts.created.GetSessionId(), o.grant)
		}
		if o.fail == nil {
			o.fail = giveFields(svc, sys, o, m.GetFields())
		}
		o.creator = creator
		return o
	})
}

// open reads an existing session.
func (s *Session) open(c actor.Context) {
	s.receive = (*Session).opening
	svc, sys, self, id := s.svc, c.ActorSystem(), c.Self(), s.id
	svc.spawn(sys, self, func(p *act.Panic) any {
		return &sessionOpened{fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		o := readSession(svc, id)
		if o.fail == nil {
			o.amid = amid(svc, id, o.facts.workers)
			o.asleep = spentAsleep(svc, &o.facts, o.amid)
			o.talking = talking(svc, &o.facts)
			o.fail = openWorkspaces(svc, sys, o.facts.created.GetSessionId(), o.grant)
		}
		if o.fail == nil {
			if fail := giveFields(svc, sys, o, ""); fail != nil { // which keeps nobody from working
				svc.Log.Warn("a workspace has not the fields of its agent's profile", "session", id, "err", fail)
			}
		}
		return o
	})
}

// opening keeps what arrives until the facts are there.
func (s *Session) opening(c actor.Context) {
	m, ok := c.Message().(*sessionOpened)
	if !ok {
		if t, _ := c.Message().(*messages.ToSession); t.GetClose() != nil && s.creating {
			s.endLife() // copies for it are made no further
		}
		s.stash.Put(c)
		return
	}
	s.creating = false
	if s.life.ctx != nil && s.life.ctx.Err() != nil {
		s.life = life{}
	}
	if m.fail != nil {
		m.release()
		if m.creator != nil {
			c.Send(m.creator, m.fail)
		}
		if m.fail.GetCode() == messages.CodeAlreadyExists { // then this is it, for whoever asks next
			s.open(c)
			return
		}
		s.stash.Each(func(_ any, sender *actor.PID) {
			if sender != nil {
				c.Send(sender, m.fail)
			}
		})
		s.receive = func(s *Session, c actor.Context) { s.answer(c, m.fail) }
		c.Send(c.Parent(), &messages.SessionEnded{SessionId: s.id, Reason: m.fail.GetMessage()})
		return
	}
	s.journal, s.facts, s.grant = m.journal, m.facts, m.grant
	s.receive = (*Session).ready
	s.use()
	s.watchRest(c, s.svc.IdleAfter)
	s.recloneLost(c)
	for _, f := range s.facts.workers {
		w := s.add(f)
		w.dormant, w.born = dormantFact(f, m.amid), m.born
		m.born = nil
	}
	s.openTill(m.asleep)
	for _, id := range s.order {
		if w := s.workers[id]; !w.dormant {
			s.start(c, w)
		}
	}
	for _, f := range s.facts.gone {
		s.tellLost(f, wasDeleted, c)
	}
	s.recallOrphans(c)
	s.openShared(c, m.talking)
	s.startRun(c)
	if m.creator != nil {
		c.Send(m.creator, m.reply)
	}
	s.stash.Replay(c, s.ready, func() bool { return true })
}

func (s *Session) add(f *messages.WorkerSpawned) *member {
	w := &member{id: f.GetWorkerId(), spawned: f}
	s.workers[w.id] = w
	if exec := f.GetExecId(); exec != "" {
		if s.byCall == nil {
			s.byCall = make(map[string]*member)
		}
		s.byCall[exec] = w
	}
	s.order = append(s.order, w.id)
	if parent := s.workers[f.GetParent()]; parent != nil {
		parent.children = append(parent.children, w.id)
	}
	return w
}

func readSession(svc *Services, id string) *sessionOpened {
	ctx := context.Background()
	mark, err := marked(ctx, svc.Store, id)
	switch {
	case err == nil && mark == markUnfinished:
		return &sessionOpened{fail: NoSession(id)}
	case err == nil && mark == markDoomed: // its deletion was begun, and has not come to its end
		return &sessionOpened{fail: sessionClosed(id)}
	}
	o := &sessionOpened{}
	var j *persistence.Journal
	if err == nil {
		j, err = persistence.OpenJournal(ctx, svc.Store, messages.SessionStream(id), id, svc.Node)
		o.journal = j
	}
	if err == nil {
		err = j.Replay(ctx, 1, func(e persistence.Entry) error {
			f, err := messages.SessionFactIn(e.Record)
			if err == nil {
				err = o.facts.apply(f, e.Record)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
			}
			return nil
		})
	}
	if j != nil {
		j.Now = svc.Now
	}
	switch {
	case err != nil && damaged(err):
		o.fail = messages.Fail(messages.CodeCorrupt, err.Error(), "run `troupe verify`")
	case err != nil:
		o.fail = messages.Fail(messages.CodeUnavailable, err.Error(), "try again")
	case o.facts.created == nil:
		o.fail = NoSession(id)
	case o.facts.closed:
		o.fail = sessionClosed(id)
	default:
		if mark == markRestricted {
			o.facts.restrict()
		}
		o.grant, o.fail = granted(svc, &o.facts)
	}
	if o.fail != nil && j != nil { // ids that do not exist must not cost memory
		j.Release()
	}
	return o
}

// damaged tells what will fail again and again from what may pass.
func damaged(err error) bool {
	return errors.Is(err, persistence.ErrCorrupt)
}

// NoSession is the refusal of an unknown id.
func NoSession(id string) *messages.Failure {
	return messages.Fail(messages.CodeNotFound, fmt.Sprintf("no session %s", id), "`troupe ls sessions` lists them")
}
