package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// How people come at the files that a session keeps (acceptance row 78): through the same confinement as its agents, and what changes
// something under a lease as theirs.

const (
	filesWait  = time.Minute // for the lease
	maxListing = 10_000      // entries of one listing
)

// useFile serves a person off the mailbox.
func (s *Session) useFile(c actor.Context, m *messages.UseFile) {
	home := named(s.grant.GetWorkspaces(), HomeName)
	if home == nil || home.GetKind() != string(workspace.KindServer) {
		s.answer(c, messages.Fail(messages.CodeNoWorkspace, "the session keeps no files", ""))
		return
	}
	svc, sys, asker, away := s.svc, c.ActorSystem(), c.Sender(), &s.rest.away
	away.Add(1)
	svc.spawn(sys, asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		v := &visit{svc: svc, sys: sys, home: home}
		out, err := v.use(m)
		if err != nil {
			return fileFailure(err)
		}
		return out
	})
}

// visit is one person's use of a workspace.
type visit struct {
	svc  *Services
	sys  *actor.ActorSystem
	home *messages.WorkspaceGrant
}

func (v *visit) use(m *messages.UseFile) (*messages.Files, error) {
	ctx, cancel := context.WithTimeout(context.Background(), filesWait)
	defer cancel()
	// The Workspace makes the folder known with its first message: it has come to that when it answers.
	if _, err := act.AskSoon[*messages.WorkspaceView](ctx, v.sys, workspacePID(v.sys, v.home.GetId()), &messages.DescribeWorkspace{}); err != nil {
		return nil, messages.Fail(messages.CodeUnavailable, "the session's own workspace is not ready", "try again")
	}
	ws, err := v.svc.folders.handle(v.home)
	if err != nil {
		return nil, err
	}
	switch m.GetAction() {
	case messages.UseFile_LIST:
		return v.list(ws, m.GetPath())
	case messages.UseFile_READ:
		f, err := ws.ReadFile(m.GetPath(), workspace.MaxFile)
		if err != nil {
			return nil, err
		}
		return &messages.Files{Entries: []*messages.FileEntry{entryOf(&f.Info)}, Data: f.Data}, nil
	case messages.UseFile_PUT:
		if strings.Contains(m.GetPath(), `\`) { // as archives of other systems name what is to lie elsewhere
			return nil, messages.Fail(messages.CodeInvalidPath, fmt.Sprintf("write %q: a path has no backslash", m.GetPath()), "folders are told apart by /")
		}
		return v.change(func() (*workspace.Info, error) {
			return ws.WriteFile(m.GetPath(), m.GetData(), workspace.WriteOptions{Parents: true})
		})
	case messages.UseFile_DELETE:
		return v.change(func() (*workspace.Info, error) { return ws.Remove(m.GetPath()) })
	}
	return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("there is no such action: %v", m.GetAction()), "")
}

func (v *visit) list(ws *workspace.Workspace, path string) (*messages.Files, error) {
	out := &messages.Files{}
	if path == "" {
		path = "."
	}
	_, err := ws.Walk(context.Background(), path, func(e *workspace.Entry) error {
		if len(out.GetEntries()) == maxListing {
			return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("there are more than %d files", maxListing), "list a folder of them")
		}
		out.Entries = append(out.Entries, entryOf(&e.Info))
		return nil
	})
	var refused *workspace.Error
	if errors.As(err, &refused) && refused.Code == workspace.CodeNotFound && path == "." { // it is made at first use
		return out, nil
	}
	slices.SortFunc(out.GetEntries(), func(a, b *messages.FileEntry) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	return out, err
}

func entryOf(i *workspace.Info) *messages.FileEntry {
	return &messages.FileEntry{Path: i.Path, Size: i.Size, Folder: i.IsDir(), ModifiedUnixMs: i.ModTime.UnixMilli()}
}

// change does one thing under a lease of its own (I6).
func (v *visit) change(do func() (*workspace.Info, error)) (*messages.Files, error) {
	var info *workspace.Info
	err := underLease(context.Background(), v.svc, v.sys, v.home, func() (err error) {
		info, err = do()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &messages.Files{Entries: []*messages.FileEntry{entryOf(info)}}, nil
}

// underLease does something for a person while nobody else works in a workspace, as an effect under a lease (I6).
func underLease(parent context.Context, svc *Services, sys *actor.ActorSystem, g *messages.WorkspaceGrant, do func() error) error {
	in := act.NewInbox(sys, 8)
	defer in.Close()
	ctx, cancel := context.WithTimeout(parent, filesWait)
	defer cancel()
	pid, holder, exec := workspacePID(sys, g.GetId()), messages.NewID("person_"), messages.NewID(messages.ExecPrefix)
	lease := &messages.LeaseToken{Workspace: g.GetUri()}
	sys.Root.RequestWithCustomSender(pid, &messages.AcquireLease{Workspace: g.GetUri(), Holder: holder, Request: 1}, in.PID())
	defer func() {
		sys.Root.Send(pid, &messages.ReleaseLease{Workspace: g.GetUri(), Token: lease.GetToken(), Request: 1, Holder: holder})
	}()
	for lease.GetToken() == 0 {
		msgs, _, err := in.Take(ctx)
		if err != nil {
			return messages.Fail(messages.CodeBusy, "an agent works in "+known(g)+", and nothing there is changed by others meanwhile", "try again when its turn has ended")
		}
		for _, m := range msgs {
			switch m := m.(type) {
			case *messages.LeaseGranted:
				lease.Token = m.GetToken()
			case *messages.Failure:
				return m
			}
		}
	}
	svc.folders.began(lease, exec)
	defer func() {
		svc.folders.ended(lease, exec)
		sys.Root.Send(pid, &messages.EffectEnded{Workspace: lease.GetWorkspace(), Token: lease.GetToken(), ExecId: exec})
	}()
	if _, err := act.AskSoon[*messages.EffectAllowed](ctx, sys, pid, &messages.EffectBegun{Workspace: lease.GetWorkspace(), Token: lease.GetToken(), ExecId: exec}); err != nil {
		return err
	}
	return do()
}

// fileFailure is the refusal that an error is to a person.
func fileFailure(err error) *messages.Failure {
	var own *messages.Failure
	var refused *workspace.Error
	switch {
	case errors.As(err, &own):
		return own
	case !errors.As(err, &refused):
		return messages.Fail(messages.CodeInternal, err.Error(), "")
	}
	switch refused.Code {
	case workspace.CodeNotFound:
		return messages.Fail(messages.CodeNotFound, "no file "+refused.Path, "")
	case workspace.CodeTooLarge:
		return messages.Fail(messages.CodeTooLarge, err.Error(), "")
	case workspace.CodeChanged:
		return messages.Fail(messages.CodeConflict, err.Error(), "try again")
	case workspace.CodeInvalidPath:
		return messages.Fail(messages.CodeInvalidPath, err.Error(), "name a file in the session's own workspace")
	case workspace.CodeInternal:
		return messages.Fail(messages.CodeInternal, err.Error(), "")
	}
	return messages.Fail(messages.CodeBadRequest, err.Error(), "")
}
