package actors

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/workspace"
)

// A worker may have a copy of its own of its primary folder: for as long as it is there it works in that, and nobody else does. The copy is a
// workspace of the session like that of an isolated session, made and written down with the worker, and gone with it: a crash between
// leaves a folder that the next start removes.

// ownCopy makes a worker's copy of a workspace. Not for a mailbox: it may take minutes.
func (s *Services) ownCopy(ctx context.Context, session, worker string, of *messages.WorkspaceGrant) (*messages.WorkspaceAttached, *messages.Failure) {
	a := &messages.WorkspaceAttached{
		Kind: string(workspace.KindClient), Owner: s.ServerName, Source: of.GetUri(), ProjectDir: of.GetPath(), Worker: worker,
	}
	return a, s.make(ctx, session, a, nil)
}

// isolated is the workspace that a new worker gets a copy of; nil: none. wanted says that somebody asked for it, rather than its agent's profile.
func (s *Session) isolated(all []*messages.WorkspaceGrant, wanted bool) (*messages.WorkspaceGrant, *messages.Failure) {
	i := slices.IndexFunc(all, (*messages.WorkspaceGrant).GetPrimary)
	switch {
	case (i < 0 || all[i].GetName() == HomeName) && !wanted:
		return nil, nil
	case i < 0 || all[i].GetName() == HomeName:
		return nil, messages.Fail(messages.CodeBadRequest, "the session has no folder that a copy could be made of", "begin one in a folder")
	case all[i].GetPath() == "" || s.svc.Copies == nil:
		return nil, messages.Fail(messages.CodeBadRequest, "no copy is made of "+known(all[i]), "folders of this machine can be worked on in a copy")
	}
	return all[i], nil
}

// ownGrant is what a session grants with one more worker that has a copy of its own.
type ownGrant struct {
	attached *messages.WorkspaceAttached
	grant    *messages.Grant
	entry    []persistence.IndexOp
}

// withCopy makes the grant with a new worker's copy, as the folder that it was made of is now. facts is the session as it is, by value.
func withCopy(svc *Services, sys *actor.ActorSystem, facts sessionFacts, spawned *messages.WorkerSpawned, of *messages.WorkspaceGrant, a *messages.WorkspaceAttached) (*ownGrant, *messages.Failure) {
	id := facts.created.GetSessionId()
	a.Order = 0
	for _, other := range facts.attached {
		a.Order = max(a.GetOrder(), other.GetOrder()+1)
	}
	a.Trust, a.Name, a.Mode, a.Tools = of.GetTrust(), of.GetName(), of.GetMode(), of.GetTools()
	spawned.CopyOf = of.GetUri()
	o := &ownGrant{attached: a}
	var fail *messages.Failure
	if o.grant, o.entry, fail = changed(svc, &facts, a, spawned); fail == nil {
		fail = openWorkspaces(svc, sys, id, o.grant)
	}
	if fail != nil {
		svc.unmake(a)
		return nil, fail
	}
	return o, nil
}

// changed is the grant of a session after some more facts, and its entry in the listing. facts is a copy.
func changed(svc *Services, facts *sessionFacts, more ...proto.Message) (*messages.Grant, []persistence.IndexOp, *messages.Failure) {
	for _, f := range more {
		if err := facts.apply(f, &messages.Record{Seq: facts.seq + 1}); err != nil {
			return nil, nil, messages.Fail(messages.CodeInternal, err.Error(), "")
		}
	}
	g, fail := granted(svc, facts)
	if fail != nil {
		return nil, nil, fail
	}
	entry, err := relisted(svc, facts, g)
	if err != nil {
		return nil, nil, messages.Fail(messages.CodeUnavailable, err.Error(), "try again")
	}
	return g, entry, nil
}

// regrantAll gives the session another grant, and each worker what is its own of it.
func (s *Session) regrantAll(c actor.Context, g *messages.Grant) {
	s.grant = g
	s.tellAll(c, &messages.Configure{Grant: g, Watched: len(s.watchers) > 0})
}

// grantOf is the grant of one worker: of a child, the workspaces that its parent had when it delegated, as far as they are there still; of one that
// has a copy of its own, that in the place of the folder that it was made of.
func (s *Session) grantOf(w *member) *messages.Grant {
	g := s.placesFor(w)
	if len(s.till.ledger.Steps(w.id)) > 0 {
		if g == s.grant {
			g = proto.CloneOf(g)
		}
		g.Budget = s.budgetOf(w)
	}
	return g
}

// placesFor is the grant with the workspaces that a worker works in.
func (s *Session) placesFor(w *member) *messages.Grant {
	child, of := w.spawned.GetParent() != "", w.spawned.GetCopyOf()
	if !child && of == "" && !slices.ContainsFunc(s.grant.GetWorkspaces(), func(g *messages.WorkspaceGrant) bool { return g.GetWorker() != "" }) {
		return s.grant
	}
	g := proto.CloneOf(s.grant)
	places := w.spawned.GetPlaces()
	g.Workspaces = slices.DeleteFunc(g.GetWorkspaces(), func(ws *messages.WorkspaceGrant) bool {
		i := slices.IndexFunc(places, func(p *messages.Place) bool { return p.GetWorkspace() == ws.GetUri() })
		switch {
		case ws.GetWorker() == w.id:
			ws.Primary = true
			return false
		case ws.GetUri() == of:
			return true
		case !child:
			return ws.GetWorker() != ""
		case i >= 0:
			ws.Primary = places[i].GetPrimary()
		}
		return i < 0
	})
	return g
}

// placesOf are the workspaces that a child may work in, as its parent has them.
func (s *Session) placesOf(places []*messages.Place) []*messages.WorkspaceGrant {
	var out []*messages.WorkspaceGrant
	for _, p := range places {
		if i := slices.IndexFunc(s.grant.GetWorkspaces(), func(g *messages.WorkspaceGrant) bool { return g.GetUri() == p.GetWorkspace() }); i >= 0 {
			g := proto.CloneOf(s.grant.GetWorkspaces()[i])
			g.Primary = p.GetPrimary()
			out = append(out, g)
		}
	}
	return out
}

// endCopies lets the copies of its own go with a worker.
func (f *sessionFacts) endCopies(worker string) {
	for _, a := range f.attached {
		if a.GetWorker() == worker {
			f.attached, f.changed = without(f.attached, a.GetUri()), f.seq
			f.forgetTrust(a.GetUri())
		}
	}
}

// copiesOfWorkers says whether some workers have copies of their own.
func (s *Session) copiesOfWorkers(ids []string) bool {
	return slices.ContainsFunc(s.facts.attached, func(a *messages.WorkspaceAttached) bool {
		return a.GetWorker() != "" && slices.Contains(ids, a.GetWorker())
	})
}

// copyOf is the copy that the session works in, or one of its workers does.
func (s *Session) copyOf(worker string) (*messages.WorkspaceGrant, *messages.Failure) {
	i := slices.IndexFunc(s.grant.GetWorkspaces(), func(g *messages.WorkspaceGrant) bool {
		return g.GetProjectDir() != "" && g.GetWorker() == worker
	})
	switch {
	case i >= 0 && s.svc.Copies != nil:
		return s.grant.GetWorkspaces()[i], nil
	case worker != "" && s.workers[worker] == nil:
		return nil, messages.Fail(messages.CodeNotFound, fmt.Sprintf("session %s has no worker %q", s.id, worker), "")
	case worker != "":
		return nil, messages.Fail(messages.CodeNoWorkspace, "worker "+worker+" works in no copy of its own", "make one with: troupe workers new SESSION --isolate")
	}
	return nil, messages.Fail(messages.CodeNoWorkspace, "session "+s.id+" works in no copy of a folder", "begin one with: troupe run --isolate")
}

// copyDir is the folder of a copy with all that belongs to it.
func copyDir(g *messages.WorkspaceGrant) string { return filepath.Dir(g.GetClonePath()) }
