package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// A workspace is attached and detached in three steps, one change of a session at a time: it is checked and written down, off the
// mailbox; every worker takes the new grant; the asker is answered. Whatever is planned from then on is planned under a grant as
// new as that (acceptance row 71).

// regrant is a change of the session's workspaces, or of what else its grant holds.
type regrant struct {
	asker   *actor.PID
	reply   proto.Message
	journal *persistence.Journal // nil when the append was not tried
	facts   []proto.Message
	records []*messages.Record
	receipt persistence.Receipt
	grant   *messages.Grant
	fail    *messages.Failure
}

// granting says that the workers have the grant.
type granting struct {
	asker *actor.PID
	reply proto.Message
}

// toldWait bounds the wait for a worker that does not take its grant. It takes it before anything that it is sent later.
const toldWait = 10 * time.Second

// attach adds a workspace.
func (s *Session) attach(c actor.Context, m *messages.AttachWorkspace) {
	svc, have, spec := s.svc, s.facts.attached, proto.CloneOf(m.GetWorkspace())
	if spec != nil {
		spec.By = m.GetBy()
	}
	if (isGit(spec) || spec.GetIsolate()) && !spec.GetPrimary() {
		s.clone(c, spec)
		return
	}
	if fail := s.full(); fail != nil && !s.building { // who builds may make room
		s.answer(c, fail)
		return
	}
	s.change(c, c.Sender(), func() (proto.Message, string, *messages.Failure) {
		if spec.GetPrimary() {
			return nil, "", messages.Fail(messages.CodeBadRequest, "the primary workspace of a session is settled when it is made", "attach it as another one")
		}
		a, fail := svc.place(spec, have)
		return a, a.GetUri(), fail
	})
}

// detach takes a workspace away.
func (s *Session) detach(c actor.Context, m *messages.DetachWorkspace) {
	all := s.grant.GetWorkspaces()
	s.change(c, c.Sender(), func() (proto.Message, string, *messages.Failure) {
		g := named(all, m.GetWorkspace())
		switch {
		case g == nil:
			return nil, "", messages.Fail(messages.CodeNoWorkspace, noWorkspaceNamed(all, m.GetWorkspace()).Message, "")
		case g.GetWorker() != "":
			return nil, "", messages.Fail(messages.CodeBadRequest, "the copy that worker "+g.GetWorker()+" has goes with it", "`troupe workers rm` deletes the worker")
		case g.GetName() == HomeName && g.GetKind() == "server":
			return nil, "", messages.Fail(messages.CodeBadRequest, "the session's own workspace goes with the session", "`troupe rm` deletes it")
		}
		return &messages.WorkspaceDetached{Uri: g.GetUri(), By: m.GetBy()}, "", nil
	})
}

// change writes down one fact about the session's workspaces. The reply is the grant of the workspace that the fact is
// about, or an Ack when no uri is given.
func (s *Session) change(c actor.Context, asker *actor.PID, fact func() (f proto.Message, uri string, fail *messages.Failure)) {
	if s.building {
		s.builds.Put(c)
		return
	}
	s.building = true
	svc, sys, journal := s.svc, c.ActorSystem(), s.journal
	facts := s.facts
	svc.spawn(sys, c.Self(), func(p *act.Panic) any {
		return &regrant{asker: asker, fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		r := &regrant{asker: asker, reply: &messages.Ack{}}
		f, uri, fail := fact()
		if fail != nil {
			r.fail = fail
			return r
		}
		r.facts = []proto.Message{f}
		r.write(svc, sys, journal, facts)
		if d, ok := f.(*messages.WorkspaceDetached); ok && r.fail == nil {
			svc.endAwayIn(Place{facts.created.GetSessionId(), d.GetUri()}, "its workspace was detached")
		}
		if uri != "" && r.fail == nil {
			r.reply = named(r.grant.GetWorkspaces(), uri)
		}
		return r
	})
}

// write makes the new grant, opens what is new in it, and makes the facts durable with the session's entry in the listing.
// facts is the session as it is, by value.
func (r *regrant) write(svc *Services, sys *actor.ActorSystem, journal *persistence.Journal, facts sessionFacts) {
	id, before := facts.created.GetSessionId(), facts.seq
	var err error
	if r.records, err = records(r.facts); err != nil {
		r.fail = messages.Fail(messages.CodeInternal, err.Error(), "")
		return
	}
	for i, f := range r.facts {
		if err := facts.apply(f, &messages.Record{Seq: before + uint64(i) + 1}); err != nil {
			r.fail = messages.Fail(messages.CodeInternal, err.Error(), "")
			return
		}
	}
	if r.grant, r.fail = granted(svc, &facts); r.fail != nil {
		return
	}
	if r.fail = openWorkspaces(svc, sys, id, r.grant); r.fail != nil {
		return
	}
	entry, err := relisted(svc, &facts, r.grant)
	if err == nil {
		r.journal, err = writable(svc, journal, before)
	}
	if err == nil {
		r.receipt, err = appendAndWait(svc, persistence.Part{Journal: r.journal, Draft: persistence.Draft{Records: r.records, Index: entry}})
	}
	if err != nil {
		r.fail = messages.Fail(messages.CodeUnavailable, "change the session's workspaces: "+err.Error(), "try again")
	}
}

// relisted is the session's entry in the listing with other workspaces.
func relisted(svc *Services, facts *sessionFacts, g *messages.Grant) ([]persistence.IndexOp, error) {
	key := SessionKey(facts.created.GetSessionId())
	v := &messages.SessionView{}
	err := svc.Store.Index(context.Background(), key, func(k string, value []byte) error {
		if k != key {
			return nil
		}
		return proto.Unmarshal(value, v)
	})
	if err != nil {
		return nil, fmt.Errorf("read the listing entry: %w", err)
	}
	if v.GetId() == "" {
		return nil, nil // it is not listed
	}
	as := facts.view(g)
	v.Workspaces, v.Budget = as.GetWorkspaces(), as.GetBudget()
	value, err := proto.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the listing entry: %w", err)
	}
	return []persistence.IndexOp{{Key: key, Value: value}}, nil
}

// regranted hands the new grant to the workers, before anything that is sent to them later.
func (s *Session) regranted(c actor.Context, m *regrant) {
	if m.journal != nil {
		s.journal = m.journal
	}
	if m.fail != nil {
		s.granted(c, &granting{m.asker, m.fail})
		return
	}
	s.discardCopies(func(a *messages.WorkspaceAttached) bool {
		return !has(m.grant.GetWorkspaces(), a.GetUri())
	})
	s.written(c, m.facts, m.records, m.receipt)
	s.grant = m.grant
	waits := s.configureAll(c, &messages.Configure{Grant: s.grant, Watched: len(s.watchers) > 0})
	asker, reply := m.asker, m.reply
	s.svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		return &granting{asker, messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		if fail := taken(waits); fail != nil {
			return &granting{asker, fail}
		}
		return &granting{asker, reply}
	})
}

// taken waits until every worker has taken a change. One that does not answer may go on without it for a while, which whoever
// made the change is told. Not for a mailbox.
func taken(waits []func(context.Context) (*messages.Ack, error)) *messages.Failure {
	ctx, cancel := context.WithTimeout(context.Background(), toldWait)
	defer cancel()
	var late bool
	for _, wait := range waits {
		if _, err := wait(ctx); err != nil && !errors.Is(err, act.ErrGone) { // one that is gone gets it when it starts anew
			late = true
		}
	}
	if late {
		return messages.Fail(messages.CodeUnavailable, "the change is written down, but a worker has not said yet that it knows", "see `troupe tree` for what it waits for")
	}
	return nil
}

// configureAll sends a change to every worker, from the mailbox, so that none gets an older one after a newer, and once: a
// worker that is in the middle of something takes it afterwards. The answers are waited for elsewhere.
func (s *Session) configureAll(c actor.Context, change *messages.Configure) (waits []func(context.Context) (*messages.Ack, error)) {
	for _, w := range s.workers {
		if w.pid != nil {
			waits = append(waits, act.Asked[*messages.Ack](c.ActorSystem(), w.pid, s.changeFor(w, change)))
		}
	}
	return waits
}

// granted answers, and lets go of the workspaces that are no longer used: their workers know by now.
func (s *Session) granted(c actor.Context, m *granting) {
	s.keepWorkspaces(c)
	s.building = false
	s.tell(c, m.asker, m.reply)
	s.goOn(c)
}

// keepWorkspaces says which workspaces the session uses; others it has left.
func (s *Session) keepWorkspaces(c actor.Context) {
	keep := &messages.KeepWorkspaces{SessionId: s.id}
	for _, g := range s.grant.GetWorkspaces() {
		keep.Ids = append(keep.Ids, g.GetId())
	}
	for _, o := range s.grant.GetOverlaps() {
		keep.Ids = append(keep.Ids, o.GetWith().GetId())
	}
	c.Send(c.Parent(), keep)
}
