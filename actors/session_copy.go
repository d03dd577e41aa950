package actors

import (
	"context"
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// Copies makes working copies of folders, and brings their changes back; see package tools/workcopy. A nil one: nobody works
// in a copy. dir is the folder that was made for the copy. It is asked off the mailbox.
type Copies interface {
	Make(ctx context.Context, folder, dir string) error
	Changes(ctx context.Context, folder, dir string) (*messages.Changes, error)
	Apply(ctx context.Context, folder, dir string) (*messages.Changes, error)
}

// applied is what an apply came to: the leases that it took are no longer needed.
type applied struct {
	asker *actor.PID
	reply proto.Message
}

// diffCopy compares a copy of the session's, or of one of its workers, with what it was made of. Agents may be at work in it.
func (s *Session) diffCopy(c actor.Context, m *messages.DiffCopy) {
	g, fail := s.copyOf(m.GetWorker())
	if fail != nil {
		s.answer(c, fail)
		return
	}
	svc, away := s.svc, &s.rest.away
	ctx, cancel := svc.whileRunning(s.living())
	away.Add(1)
	svc.spawn(c.ActorSystem(), c.Sender(), func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		defer cancel()
		out, err := svc.Copies.Changes(ctx, g.GetProjectDir(), copyDir(g))
		if err != nil {
			return asFailure(err)
		}
		out.Folder = g.GetSource()
		return out
	})
}

// applyCopy brings what was changed in such a copy back to the folder, when nobody works in either.
func (s *Session) applyCopy(c actor.Context, m *messages.ApplyCopy) {
	g, fail := s.copyOf(m.GetWorker())
	if fail != nil {
		s.answer(c, fail)
		return
	}
	svc, sys, asker, away, session := s.svc, c.ActorSystem(), c.Sender(), &s.rest.away, s.id
	ctx, cancel := svc.whileRunning(s.living())
	away.Add(1)
	svc.spawn(sys, c.Self(), func(p *act.Panic) any {
		return &applied{asker, messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		defer away.Add(-1)
		defer cancel()
		var out *messages.Changes
		held, fail := copyAndFolder(svc, sys, session, g) //nolint:contextcheck // the Supervisor answers at once
		if fail != nil {
			return &applied{asker, fail}
		}
		err := underLeases(ctx, svc, sys, held, func() (err error) {
			out, err = svc.Copies.Apply(ctx, g.GetProjectDir(), copyDir(g))
			return err
		})
		if err != nil {
			return &applied{asker, asFailure(err)}
		}
		out.Folder = g.GetSource()
		return &applied{asker, out}
	})
}

// applied answers, and lets go of the folder.
func (s *Session) applied(c actor.Context, m *applied) {
	if !s.building { // else who builds says it when that is through
		s.keepWorkspaces(c)
	}
	s.tell(c, m.asker, m.reply)
}

// copyAndFolder opens the folder that a copy was made of, and lists what is held while changes are brought back: both, and the folders
// that overlap the one, in canonical order.
func copyAndFolder(svc *Services, sys *actor.ActorSystem, session string, g *messages.WorkspaceGrant) ([]*messages.WorkspaceGrant, *messages.Failure) {
	addr, err := workspace.Parse(g.GetSource(), svc.ServerName)
	if err != nil {
		return nil, messages.Fail(messages.CodeCorrupt, err.Error(), "")
	}
	folder := &messages.WorkspaceGrant{Id: addr.ID(), Uri: addr.Canonical, Kind: string(addr.Kind), Mode: "local", Path: g.GetProjectDir(), Trust: g.GetTrust()}
	open := &messages.Grant{Workspaces: []*messages.WorkspaceGrant{folder}}
	if fail := openWorkspaces(svc, sys, session, open); fail != nil {
		return nil, fail
	}
	held := append(leasesOf(open), g)
	slices.SortFunc(held, func(a, b *messages.WorkspaceGrant) int { return strings.Compare(a.GetUri(), b.GetUri()) })
	return held, nil
}

// underLeases does something while nobody else works in some workspaces, which come in canonical order.
func underLeases(ctx context.Context, svc *Services, sys *actor.ActorSystem, held []*messages.WorkspaceGrant, do func() error) error {
	if len(held) == 0 {
		return do()
	}
	return underLease(ctx, svc, sys, held[0], func() error { return underLeases(ctx, svc, sys, held[1:], do) })
}
