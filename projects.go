package troupe

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
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

// tellProject has the sessions of a project that are in memory take its variables. The others read them when they come there.
func (rt *Runtime) tellProject(ctx context.Context, project string) error {
	live, err := rt.live(ctx)
	if err != nil {
		return err
	}
	for id := range live {
		v, err := rt.session(ctx, id)
		if err != nil || v.GetProjectId() != project {
			continue // it is not listed any more, or another's
		}
		m := &messages.ToSession{SessionId: id, Command: &messages.ToSession_TakeVariables{TakeVariables: &messages.TakeVariables{}}}
		if _, err := send[*messages.Ack](ctx, rt, m); err != nil {
			return fmt.Errorf("tell session %s of its variables: %w", id, err)
		}
	}
	return nil
}
