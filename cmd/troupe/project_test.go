package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// projectsOf is a node that keeps projects, as an Ask of one does, and no more; set is what becomes of SetVariables.
type projectsOf struct {
	node
	all []*messages.Project
	set func(p *messages.Project) error
}

func (n *projectsOf) Ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	switch m := m.(type) {
	case *messages.SaveProject:
		n.all = append(n.all, &messages.Project{Id: "prj_1", Name: "a", Path: m.GetPath()})
		return n.all[0], nil
	case *messages.ListProjects:
		return &messages.Projects{Projects: n.all}, nil
	case *messages.RemoveProject:
		n.all = slices.DeleteFunc(n.all, func(p *messages.Project) bool { return p.GetId() == m.GetProject() })
		return &messages.Ack{}, nil
	case *messages.SetVariables:
		return n.all[0], n.set(n.all[0])
	}
	return nil, errors.New("another command")
}

// TestAProjectThatWasMadeInVainIsTakenBack unless its variables may have been set, by this command or another.
func TestAProjectThatWasMadeInVainIsTakenBack(t *testing.T) {
	refused := messages.Fail(messages.CodeBadRequest, "no such variable", "")
	put := func(p *messages.Project) {
		p.Variables = append(p.Variables, &messages.Variable{Name: "A", Value: "1"})
	}
	for name, x := range map[string]struct {
		set   func(cancel func(), p *messages.Project) error
		stays bool
		says  string
	}{
		"refused":                         {func(func(), *messages.Project) error { return refused }, false, ""},
		"refused, and interrupted":        {func(cancel func(), _ *messages.Project) error { cancel(); return refused }, false, ""},
		"refused, and another was faster": {func(_ func(), p *messages.Project) error { put(p); return refused }, true, "somebody else"},
		"done, and the answer was lost": {func(_ func(), p *messages.Project) error {
			put(p)
			return errors.New("the connection broke")
		}, true, "not known"},
		"done, and the answer was late": {func(_ func(), p *messages.Project) error {
			put(p)
			return messages.Fail(messages.CodeUnavailable, "it took too long", "")
		}, true, "not known"},
		"interrupted before it was done": {func(cancel func(), _ *messages.Project) error { cancel(); return context.Canceled }, true, "not known"},
		"done":                           {func(_ func(), p *messages.Project) error { put(p); return nil }, true, "is the project a now\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := &projectsOf{}
			n.set = func(p *messages.Project) error { return x.set(cancel, p) }
			var said bytes.Buffer
			a := &app{err: &said}
			var want error
			err := a.inNewProject(ctx, n, "/proj", func(ctx context.Context, n node, p *messages.Project) error {
				_, want = ask[*messages.Project](ctx, n, &messages.SetVariables{Project: p.GetId()})
				return want
			})
			if !errors.Is(err, want) || (len(n.all) > 0) != x.stays || !strings.Contains(said.String(), x.says) || x.says == "" && said.Len() > 0 {
				t.Errorf("%v; there are %v; it says %q", err, n.all, said.String())
			}
		})
	}
}
