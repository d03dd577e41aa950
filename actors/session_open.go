package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

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
	amid    map[string]bool              // children with something to go on with
	asleep  map[string]*messages.Amounts // what the others have spent
	talking map[string]bool              // shared conversations in which somebody has the word
}

// create makes the session, its first worker and, when given, the first input in one append: a
// listed session always has its input.
func (s *Session) create(c actor.Context, m *messages.CreateSession) {
	s.id = m.GetSessionId()
	s.log = s.svc.Log.With("session", s.id)
	s.receive = s.opening
	svc, sys, self, creator := s.svc, c.ActorSystem(), c.Self(), c.Sender()
	s.creating = true
	b := &sessionBuilder{svc: svc, m: m, ctx: s.living()}
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
	s.receive = s.opening
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
		s.receive = func(c actor.Context) { s.answer(c, m.fail) }
		c.Send(c.Parent(), &messages.SessionEnded{SessionId: s.id, Reason: m.fail.GetMessage()})
		return
	}
	s.journal, s.facts, s.grant = m.journal, m.facts, m.grant
	s.receive = s.ready
	s.use()
	s.watchRest(c, s.svc.IdleAfter)
	s.recloneLost(c)
	for _, w := range s.facts.workers {
		s.add(w).dormant = dormantFact(w, m.amid)
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
	s.workers[w.id], s.byCall[f.GetExecId()] = w, w
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

// sessionBuilder makes a session's first records.
type sessionBuilder struct {
	svc      *Services
	m        *messages.CreateSession
	standing []string
	input    string                        // id of the first one
	made     []*messages.WorkspaceAttached // copies that go when the session does not come to be
	ctx      context.Context               //nolint:containedctx // of one building: copies are made no further when it ends
}

func (b *sessionBuilder) build() *sessionOpened {
	worker, session, fail := b.facts()
	if fail == nil {
		b.standing, fail = b.svc.standing(session[0].(*messages.SessionCreated).GetFolder())
	}
	if fail != nil {
		return &sessionOpened{fail: fail}
	}
	ctx := context.Background()
	id, workerID := b.m.GetSessionId(), worker[0].(*messages.WorkerCreated).GetWorkerId()
	sj, err := persistence.OpenJournal(ctx, b.svc.Store, messages.SessionStream(id), id, b.svc.Node)
	if err != nil {
		return &sessionOpened{fail: messages.Fail(messages.CodeUnavailable, err.Error(), "")}
	}
	if sj.Next() != 1 {
		sj.Release()
		return &sessionOpened{fail: messages.Fail(messages.CodeAlreadyExists, fmt.Sprintf("session %s exists", id), "")}
	}
	wj, err := persistence.OpenJournal(ctx, b.svc.Store, messages.WorkerStream(workerID), id, b.svc.Node)
	if err != nil {
		return &sessionOpened{fail: messages.Fail(messages.CodeUnavailable, err.Error(), "")}
	}
	sj.Now, wj.Now = b.svc.Now, b.svc.Now
	o := &sessionOpened{journal: sj}
	srecs, err := records(session)
	if err == nil {
		var wrecs []*messages.Record
		if wrecs, err = records(worker); err == nil {
			err = b.append(sj, wj, srecs, wrecs, o, session)
		}
	}
	wj.Release() // the Worker claims its own
	if err != nil {
		sj.Release()
		code := messages.CodeUnavailable
		if errors.Is(err, persistence.ErrTooLarge) {
			code = messages.CodeBadRequest
		}
		return &sessionOpened{fail: messages.Fail(code, err.Error(), "")}
	}
	return o
}

func (b *sessionBuilder) append(sj, wj *persistence.Journal, srecs, wrecs []*messages.Record, o *sessionOpened, session []proto.Message) error {
	at := b.svc.Now().UnixMilli()
	for i, r := range srecs {
		r.Seq, r.AtUnixMs = uint64(i+1), at
		if err := o.facts.apply(session[i], r); err != nil {
			return err
		}
	}
	env, err := b.svc.projectEnv(o.facts.created.GetProjectId())
	if err != nil {
		return err
	}
	grant, err := o.facts.grantOf(b.standing, env)
	if err != nil {
		return err
	}
	o.grant = grant
	o.reply = o.facts.view(grant)
	o.reply.Title = b.title()
	index, err := b.index(o.reply, wj.Stream())
	if err != nil {
		return err
	}
	run, err := b.run()
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range run {
			p.Journal.Release() // the PipelineRun claims its own
		}
	}()
	receipt, err := appendAndWait(b.svc, append([]persistence.Part{
		{Journal: sj, Draft: persistence.Draft{Records: srecs, Index: index}}, {Journal: wj, Draft: persistence.Draft{Records: wrecs}},
	}, run...)...)
	if err != nil {
		return err
	}
	if b.m.GetFirst() != nil {
		o.reply.First = &messages.InputReply{InputId: b.input, Seq: receipt.Last, SessionId: b.m.GetSessionId(), WorkerId: o.facts.workers[0].GetWorkerId()}
	}
	return nil
}

func (b *sessionBuilder) title() string { return cutTitle(b.svc.cleanParts(b.m.GetFirst().GetParts())) }

// cutTitle is what a listing calls a session, by its first input.
func cutTitle(parts []*messages.Part) string {
	t := strings.Join(strings.Fields(conversation.InputText(parts)), " ")
	if r := []rune(t); len(r) > 80 {
		t = string(r[:79]) + "…"
	}
	return t
}

func (b *sessionBuilder) index(v *messages.SessionView, workerStream string) ([]persistence.IndexOp, error) {
	sv, err := proto.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode listing entry: %w", err)
	}
	id := strings.TrimPrefix(workerStream, "wrk/")
	state, staged := stateInactive, int32(0)
	if b.m.GetFirst() != nil { // should the process end before the turn begins
		state, staged = stateWaiting, 1
	}
	wv, err := proto.Marshal(&messages.WorkerView{Id: id, SessionId: v.GetId(), State: state, Staged: staged, Agent: v.GetAgent(), Model: v.GetModel(), UpdatedAtUnixMs: v.GetCreatedAtUnixMs()})
	if err != nil {
		return nil, fmt.Errorf("encode listing entry: %w", err)
	}
	return []persistence.IndexOp{{Key: SessionKey(v.GetId()), Value: sv}, {Key: WorkerKey(v.GetId(), id), Value: wv}}, nil
}

func records(facts []proto.Message) ([]*messages.Record, error) {
	out := make([]*messages.Record, 0, len(facts))
	for _, f := range facts {
		r, err := messages.NewRecord(f, "")
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// facts checks the command and says what is to be written: the worker's facts and the session's.
func (b *sessionBuilder) facts() (worker, session []proto.Message, fail *messages.Failure) {
	m := b.m
	profile, ok := b.svc.agent(m.GetAgent())
	if !ok {
		return nil, nil, messages.Fail(messages.CodeAgent, fmt.Sprintf("agent %q is not configured", m.GetAgent()), "see `agents:` in the configuration")
	}
	attached, fail := b.attached()
	if fail == nil {
		fail = b.check()
	}
	if fail != nil {
		return nil, nil, fail
	}
	modelName := m.GetModel()
	if modelName == "" {
		modelName = profile.Model
	}
	system := b.svc.Redact.String(m.GetSystem())
	if system == "" {
		system = profile.System
	}
	workerID := messages.NewID(messages.WorkerPrefix)
	created := &messages.SessionCreated{
		SessionId: m.GetSessionId(), Agent: profile.Name, Model: modelName, Tenant: m.GetTenant(),
		Rules: m.GetRules(), NoInput: m.GetNoInput(), Persist: m.GetPersist(), Env: m.GetEnv(), Ask: m.GetAsk(), By: m.GetBy(),
	}
	if b := m.GetBudget().Within(b.svc.Budget); b.Bounds() {
		created.Budget = b
	}
	var folder string
	created.Folder, folder = folderOf(firstOf(attached))
	created.RunId = m.GetRun().GetRunId()
	project, fail := b.svc.belongs(m.GetTenant(), m.GetProjectId(), folder)
	if fail != nil {
		return nil, nil, fail
	}
	created.ProjectId = project.GetId()
	session = []proto.Message{created}
	for _, a := range attached {
		session = append(session, a)
	}
	session = append(session, &messages.WorkerSpawned{WorkerId: workerID, Agent: profile.Name, Model: modelName})
	worker = []proto.Message{&messages.WorkerCreated{
		WorkerId: workerID, SessionId: m.GetSessionId(), Agent: profile.Name, Model: modelName, System: system,
		Origin: m.GetOrigin(), Copied: m.GetCopied(),
	}}
	if f := m.GetFirst(); f != nil {
		b.input = cmp.Or(f.GetInputId(), messages.NewID(messages.InputPrefix))
		if strings.TrimSpace(conversation.InputText(f.GetParts())) == "" {
			return nil, nil, messages.Fail(messages.CodeBadRequest, "the input is empty", "say what the agent should do")
		}
		worker = append(worker, b.svc.tracedInput(&messages.InputAccepted{
			InputId: b.input, Mode: f.GetMode(), Origin: f.GetOrigin(), From: f.GetFrom(), Parts: b.svc.cleanParts(f.GetParts()), People: f.GetPeople(),
			ContentHash: conversation.ContentHash(f.GetParts(), nil), Traceparent: f.GetTraceparent(),
		}, m.GetSessionId(), workerID))
	}
	return worker, session, nil
}
