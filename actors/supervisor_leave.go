package actors

import (
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// sessionIdle stops routing to a session that wants to leave memory, and says so. What comes from now on
// waits until it has left, or says that it stays.
func (s *Supervisor) sessionIdle(c actor.Context, m *messages.SessionIdle) {
	k := s.kids[m.GetSessionId()]
	if k == nil || k.pid == nil {
		return
	}
	k.leaving, k.pid = k.pid, nil
	delete(s.room.asked, k.name)
	c.Request(k.leaving, &messages.Passivate{})
}

// staying routes to a session again.
func (s *Supervisor) staying(c actor.Context, m *messages.Staying) {
	k := s.kids[m.GetSessionId()]
	if k == nil {
		return
	}
	k.stayedMs = s.now()
	s.use(k) // others are asked before it next time
	delete(s.room.asked, k.name)
	if k.leaving != nil {
		k.pid, k.leaving = k.leaving, nil
		k.queue.Forward(c, k.pid)
	}
	s.roomChanged(c)
}

// forget lets go of a child that left: what waited for that, and the next message, is handled as if it
// had never been there. The workspaces that nobody uses any more are told.
func (s *Supervisor) forget(c actor.Context, k *kid) {
	s.drop(k)
	for _, name := range k.uses {
		s.left(c, name)
	}
	s.again(c, k)
	s.roomChanged(c)
}

func (s *Supervisor) drop(k *kid) {
	if s.kids[k.name] == k {
		s.vacate(k)
	}
	delete(s.kids, k.name)
	s.places.remove(place(k.grant))
}

// left counts one session less that uses a workspace.
func (s *Supervisor) left(c actor.Context, name string) {
	if w := s.kids[name]; w != nil {
		w.users--
		s.retire(c, w)
	}
}

// keepWorkspaces notes which workspaces a session still uses.
func (s *Supervisor) keepWorkspaces(c actor.Context, m *messages.KeepWorkspaces) {
	k := s.kids[m.GetSessionId()]
	if k == nil {
		return
	}
	var kept, gone []string
	for _, name := range k.uses {
		if slices.Contains(m.GetIds(), strings.TrimPrefix(name, workspaceName(""))) {
			kept = append(kept, name)
		} else {
			gone = append(gone, name)
		}
	}
	k.uses = kept
	for _, name := range gone {
		s.left(c, name)
	}
}

// again handles what waited for a child, in order and ahead of what comes later.
func (s *Supervisor) again(c actor.Context, k *kid) {
	q := k.queue
	k.queue = act.Stash{}
	q.Replay(c, s.Receive, func() bool { return true })
}

func workspaceName(id string) string { return "workspace-" + id }

// openingWorkspaces asks the Supervisor for the workspaces of a session; it is answered with workspacesOpened.
type openingWorkspaces struct {
	session string
	grants  []*messages.WorkspaceGrant
}

type workspacesOpened struct{ overlaps []*messages.Overlap }

// openWorkspaces opens the workspaces of a session, in their order.
func (s *Supervisor) openWorkspaces(c actor.Context, m *openingWorkspaces) {
	user := s.kids[m.session]
	if user == nil {
		c.Respond(messages.Fail(messages.CodeClosed, "the session has ended", ""))
		return
	}
	opened := &workspacesOpened{}
	for _, g := range m.grants {
		with, now := s.openFor(c, g, user)
		if !now {
			return
		}
		for _, o := range with {
			opened.overlaps = append(opened.overlaps, &messages.Overlap{Workspace: g.GetUri(), With: o})
		}
	}
	c.Respond(opened)
}

// openWorkspace opens a workspace for good, or for a session.
func (s *Supervisor) openWorkspace(c actor.Context, m *messages.OpenWorkspace) {
	user := s.kids[m.GetSessionId()]
	if m.GetSessionId() != "" && user == nil {
		c.Respond(messages.Fail(messages.CodeClosed, "the session has ended", ""))
		return
	}
	if with, now := s.openFor(c, m.GetGrant(), user); now {
		c.Respond(&messages.WorkspaceReady{Overlaps: with})
	}
}

// openFor makes sure that the Workspace of an address is there, and stays as long as the session that
// asks for it; and those of the folders that overlap it, whose leases are needed, too: of two that overlap, whoever opened his
// folder later takes both leases. now is false while an earlier Workspace of the address ends: the message is handled again when it has.
func (s *Supervisor) openFor(c actor.Context, g *messages.WorkspaceGrant, user *kid) (with []*messages.WorkspaceRef, now bool) {
	name := workspaceName(g.GetId())
	k := s.kids[name]
	switch {
	case k != nil && k.ended:
		k.queue.Put(c)
		return nil, false
	case k == nil:
		k = s.newWorkspace(c, name, g)
	}
	s.used(k, user)
	for _, other := range s.places.overlaps(place(g)) {
		if o := s.kids[other]; o != nil && !o.ended && o.gaveUp == "" {
			s.used(o, user)
			with = append(with, &messages.WorkspaceRef{Id: strings.TrimPrefix(other, workspaceName("")), Uri: o.grant.GetUri()})
		}
	}
	return with, true
}

// used notes that a session uses a workspace; without a session it is kept for good.
func (s *Supervisor) used(k, user *kid) {
	switch {
	case user == nil:
		k.users++
	case !slices.Contains(user.uses, k.name):
		k.users++
		user.uses = append(user.uses, k.name)
	}
}

func (s *Supervisor) newWorkspace(c actor.Context, name string, grant *messages.WorkspaceGrant) *kid {
	k := s.keep(c, name, func(c actor.Context) *actor.PID {
		pid := s.spawn(c, s.props.workspace, name)
		c.Send(pid, &messages.OpenWorkspace{Grant: grant, Epoch: s.svc.Store.Boot() << 12})
		return pid
	})
	k.grant = grant
	s.places.add(place(grant), name)
	return k
}

// retire asks a Workspace that nobody uses to say when nothing runs in it any more.
func (s *Supervisor) retire(c actor.Context, w *kid) {
	switch {
	case w.users > 0 || !w.shared():
		return
	case w.gaveUp != "": // whoever comes next tries it anew
		s.drop(w)
		return
	case w.pid == nil: // once it is there again
		return
	}
	w.retired++
	c.Send(w.pid, &messages.RetireWorkspace{Generation: w.retired})
}

// workspaceUnused ends a Workspace, unless somebody has come since.
func (s *Supervisor) workspaceUnused(c actor.Context, m *messages.WorkspaceUnused) {
	k := s.kids[m.GetId()]
	if k == nil || k.pid == nil || k.users > 0 || k.retired != m.GetGeneration() {
		return
	}
	k.ended = true
	c.Poison(k.pid)
	k.pid = nil
}

// tellReplaced tells the workers that may wait for a Workspace or Limiter that it is there anew, or never will be.
func (s *Supervisor) tellReplaced(c actor.Context, k *kid) {
	for _, user := range s.kids {
		if user.pid != nil && strings.HasPrefix(user.name, messages.SessionPrefix) && (!k.shared() || slices.Contains(user.uses, k.name)) {
			c.Send(user.pid, &messages.Replaced{Name: k.name, Reason: k.gaveUp})
		}
	}
}

// fieldChanged tells the sessions in memory that use a workspace of an edit there.
func (s *Supervisor) fieldChanged(c actor.Context, m *messages.FieldChanged) {
	for _, user := range s.kids {
		if user.pid != nil && slices.Contains(user.uses, workspaceName(m.GetId())) {
			c.Send(user.pid, m)
		}
	}
}

// shared says whether a child belongs to those sessions that use it, and not to all.
func (k *kid) shared() bool { return strings.HasPrefix(k.name, workspaceName("")) }

// find tells who asks what became of a Workspace or Limiter. While it is being replaced, the word is on its way.
func (s *Supervisor) find(c actor.Context, m *messages.FindActor) {
	switch k := s.kids[m.GetName()]; {
	case k == nil:
		c.Respond(&messages.Replaced{Name: m.GetName(), Reason: "it is not there"})
	case k.gaveUp != "" || k.pid != nil:
		c.Respond(&messages.Replaced{Name: k.name, Reason: k.gaveUp})
	}
}
