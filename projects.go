package troupe

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

func (rt *Runtime) listProjects(ctx context.Context) (*messages.Projects, error) {
	all, err := actors.ReadProjects(ctx, rt.svc.Store)
	if err != nil {
		return nil, err
	}
	out := &messages.Projects{}
	for _, p := range all {
		out.Projects = append(out.Projects, actors.Shown(p))
	}
	return out, nil
}

func (rt *Runtime) saveProject(ctx context.Context, m *messages.SaveProject) (proto.Message, error) {
	rt.projects.Lock()
	defer rt.projects.Unlock()
	return rt.svc.SaveProject(ctx, m)
}

func (rt *Runtime) removeProject(ctx context.Context, m *messages.RemoveProject) (proto.Message, error) {
	rt.projects.Lock()
	defer rt.projects.Unlock()
	p, err := rt.svc.RemoveProject(ctx, m)
	if err != nil {
		return nil, err
	}
	return &messages.Ack{}, rt.tellProject(ctx, p.GetId())
}

func (rt *Runtime) setVariables(ctx context.Context, m *messages.SetVariables) (proto.Message, error) {
	rt.projects.Lock()
	defer rt.projects.Unlock()
	p, err := rt.svc.SetVariables(ctx, m)
	if err != nil {
		return nil, err
	}
	return p, rt.tellProject(ctx, p.GetId())
}

// tellProject has the sessions of a project that are in memory take its variables, also those that are being made or are about to
// leave: whether it is theirs they know themselves. The others read them when they come there.
func (rt *Runtime) tellProject(ctx context.Context, project string) error {
	tree, err := act.Ask[*messages.Tree](ctx, rt.sys, rt.root, &messages.DescribeTree{})
	if err != nil {
		return fmt.Errorf("look at the live tree: %w", err)
	}
	for _, c := range tree.GetRoot().GetChildren() {
		if c.GetKind() != "session" {
			continue
		}
		m := &messages.ToSession{SessionId: c.GetId(), Command: &messages.ToSession_TakeVariables{TakeVariables: &messages.TakeVariables{ProjectId: project}}}
		_, err := send[*messages.Ack](ctx, rt, m)
		var refused *Failure
		if errors.As(err, &refused) && refused.GetCode() != messages.CodeUnavailable {
			continue // it came to nothing, was closed, or cannot be read: it runs no command
		}
		if err != nil {
			return fmt.Errorf("tell session %s of its variables: %w", c.GetId(), err)
		}
	}
	return nil
}
