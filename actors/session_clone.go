package actors

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// A clone is made off the mailbox before anything is written down, so that the session goes on meanwhile; then it is attached as any
// workspace is. It ends with the session's actor, which leaves nothing but a folder for the next start to remove.

// cloned is what became of a clone that was to be attached.
type cloned struct {
	asker *actor.PID
	spec  *messages.WorkspaceSpec
	a     *messages.WorkspaceAttached
	fail  *messages.Failure
}

// cloneGrew is a sign of life of a clone.
type cloneGrew struct {
	source string
	bytes  int64
}

// isGit says whether a wish is for a clone.
func isGit(spec *messages.WorkspaceSpec) bool {
	addr, err := workspace.Parse(spec.GetUri(), "")
	return err == nil && addr.Kind == workspace.KindGit
}

// clone makes a clone for a wish that can be granted.
func (s *Session) clone(c actor.Context, spec *messages.WorkspaceSpec) {
	svc, sys, self, session, have, asker, away := s.svc, c.ActorSystem(), c.Self(), s.id, s.facts.attached, c.Sender(), &s.rest.away
	ctx, cancel := svc.whileRunning(s.living())
	away.Add(1)
	svc.spawn(sys, self, func(p *act.Panic) any {
		return &cloned{asker: asker, fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		defer away.Add(-1)
		defer cancel()
		a, fail := svc.place(spec, have) //nolint:contextcheck // what it reads is near
		if fail == nil {
			fail = svc.make(ctx, session, a, growing(sys, self, a.GetSource()))
		}
		return &cloned{asker, spec, a, fail}
	})
}

// growing tells a session now and then how one of its clones grows.
func growing(sys *actor.ActorSystem, to *actor.PID, source string) func(int64) {
	var last time.Time
	return func(bytes int64) {
		if now := time.Now(); now.Sub(last) >= grownEach {
			last = now
			sys.Root.Send(to, &cloneGrew{source, bytes})
		}
	}
}

// cloned attaches a clone, in its turn. Meanwhile others may have come, and the wish is looked at again.
func (s *Session) cloned(c actor.Context, m *cloned) {
	if m.fail != nil {
		s.tell(c, m.asker, m.fail)
		return
	}
	if s.building {
		s.builds.Put(c)
		return
	}
	svc, have := s.svc, s.facts.attached
	s.change(c, m.asker, func() (proto.Message, string, *messages.Failure) {
		a, fail := svc.place(m.spec, have)
		if fail != nil {
			svc.unmake(m.a)
			return nil, "", fail
		}
		m.a.Name, m.a.Order = a.GetName(), a.GetOrder()
		return m.a, m.a.GetUri(), nil
	})
}

// cloneGrew tells whoever watches.
func (s *Session) cloneGrew(c actor.Context, m *cloneGrew) {
	s.publish(c, &messages.Published{Events: []*messages.Event{{
		Type: messages.EventWorkspaceProgress, AtUnixMs: s.svc.Now().UnixMilli(), Session: s.id, Workspace: m.source, Done: m.bytes, Unit: "bytes",
	}}})
}

// living is a context that ends with this incarnation of the session.
func (s *Session) living() context.Context {
	if s.life.ctx == nil {
		s.life.ctx, s.life.end = context.WithCancel(context.Background())
	}
	return s.life.ctx
}

func (s *Session) endLife() {
	if s.life.end != nil {
		s.life.end()
	}
}

// life is as long as an incarnation of a session.
type life struct {
	ctx context.Context //nolint:containedctx // of what it runs off its mailbox
	end context.CancelFunc
}

// recloneLost makes clones again that are not there any more: the data directory came from elsewhere, say. They are of the
// commit that was written down, or not made; calls there find no workspace until then.
func (s *Session) recloneLost(c actor.Context) {
	for _, a := range s.facts.attached {
		if a.GetKind() != string(workspace.KindGit) || a.GetCommit() == "" || s.svc.Cloner == nil {
			continue
		}
		if _, err := os.Lstat(a.GetClonePath()); err == nil || !os.IsNotExist(err) {
			continue
		}
		s.reclone(c, a)
	}
}

func (s *Session) reclone(c actor.Context, a *messages.WorkspaceAttached) {
	svc, sys, self, log := s.svc, c.ActorSystem(), c.Self(), s.log
	ctx, cancel := svc.whileRunning(s.living())
	svc.folders.explain(a.GetUri(), "its clone is being made again")
	svc.aside(func() {
		defer cancel()
		var err error
		if p := act.Guard(func() {
			dir := filepath.Dir(a.GetClonePath())
			if err = os.MkdirAll(filepath.Dir(dir), 0o700); err == nil {
				_, err = svc.Cloner.Clone(ctx, a.GetSource(), a.GetCommit(), dir, growing(sys, self, a.GetSource()))
			}
		}); p != nil {
			err = p
		}
		why := ""
		if err != nil {
			why = "its clone of " + a.GetCommit() + " could not be made again: " + err.Error()
			log.Warn("a clone could not be made again", "workspace", a.GetSource(), "commit", a.GetCommit(), "err", err)
		}
		svc.folders.explain(a.GetUri(), why)
	})
}

// discardCopies lets copies go with their workspaces: when nothing runs in them any more.
func (s *Session) discardCopies(gone func(*messages.WorkspaceAttached) bool) {
	for _, a := range s.facts.attached {
		if isCopy(a) && gone(a) {
			s.svc.folders.discard(a.GetUri(), filepath.Dir(a.GetClonePath()))
		}
	}
}
