package actors

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

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

// clone makes a clone, or a copy of a folder, for a wish that can be granted.
func (s *Session) clone(c actor.Context, spec *messages.WorkspaceSpec) {
	svc, sys, self, session, have := s.svc, c.ActorSystem(), c.Self(), s.id, s.facts.attached
	if fail := s.full(); fail != nil { // before anything is fetched
		s.answer(c, fail)
		return
	}
	s.startMaking(c, &making{asker: c.Sender(), spec: spec}, func(ctx context.Context) (*messages.WorkspaceAttached, *messages.Failure) {
		a, fail := svc.place(spec, have) //nolint:contextcheck // what it reads is near
		if fail == nil {
			fail = svc.make(ctx, session, a, growing(sys, self, a.GetSource()))
		}
		return a, fail
	})
}

// attaching counts the copies under way that are to be attached.
func (s *Session) attaching() (n int) {
	for m := range s.makings {
		if m.worker == nil {
			n++
		}
	}
	return n
}

// full refuses another workspace where those that the session has, and those that are being made for it, are as many as may be.
func (s *Session) full() *messages.Failure {
	if making := s.attaching(); everybodys(s.facts.attached)+making >= maxWorkspaces {
		return tooManyWorkspaces(making)
	}
	return nil
}

// everybodys counts the workspaces that are no worker's own: those of which every turn takes the leases.
func everybodys(all []*messages.WorkspaceAttached) (n int) {
	for _, a := range all {
		if a.GetWorker() == "" {
			n++
		}
	}
	return n
}

// tooManyWorkspaces refuses another workspace, while so many are being made.
func tooManyWorkspaces(making int) *messages.Failure {
	text := fmt.Sprintf("a session has at most %d workspaces", maxWorkspaces)
	if making > 0 {
		text += fmt.Sprintf(", and %d more are being made", making)
	}
	return messages.Fail(messages.CodeBadRequest, text, "detach one")
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
		if _, err := os.Lstat(a.GetClonePath()); a.GetProjectDir() != "" && os.IsNotExist(err) {
			s.svc.folders.explain(a.GetUri(), "it is a copy of "+a.GetSource()+", which stays behind when a session is forked or imported")
		}
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
