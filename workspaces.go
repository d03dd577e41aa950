package troupe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// Workspace is one workspace of a session.
type Workspace = messages.WorkspaceGrant

// WorkspaceSpec asks for a workspace.
type WorkspaceSpec struct {
	// URI is local:/abs/path or an absolute path; troupe:/sessions/ID, what another session keeps; or git:HOST/OWNER/REPO[@REF][//FOLDER],
	// of which a clone is made; or HOST:PATH, a folder of another machine, whose owner connects (ConnectOwner).
	URI     string
	Isolate bool     // of a folder: agents work in a copy of it
	Name    string   // by which agents call it; "" is the folder's own
	Trust   Trust    // unspecified is Restricted
	Tools   []string // what it offers; nil: every tool
	Mode    string   // where its commands run: local, or container, which takes Options.Containers; "" is as Options.Modes says, or local
}

func (s WorkspaceSpec) message() (*messages.WorkspaceSpec, error) {
	m := &messages.WorkspaceSpec{Uri: s.URI, Name: s.Name, Trust: s.Trust, Tools: s.Tools, Isolate: s.Isolate, Mode: s.Mode}
	if !filepath.IsAbs(s.URI) {
		return m, nil
	}
	addr, _, err := workspace.Local(s.URI)
	if err != nil {
		return nil, fmt.Errorf("attach folder %s: %w", s.URI, err)
	}
	m.Uri = addr.Canonical
	return m, nil
}

// Attach adds a workspace to the session. It is durable, and counts from each worker's next turn on, when Attach returns.
func (s *Session) Attach(ctx context.Context, w WorkspaceSpec) (*Workspace, error) {
	spec, err := w.message()
	if err != nil {
		return nil, err
	}
	return ask[*messages.WorkspaceGrant](ctx, s.rt, s.session, &messages.AttachWorkspace{Workspace: spec, By: "program"})
}

// Detach takes a workspace, named by its id, name or address, from the session. When it returns, that is durable, and nothing starts
// there any more; what still ran there has been told to end.
func (s *Session) Detach(ctx context.Context, name string) error {
	_, err := ask[*messages.Ack](ctx, s.rt, s.session, &messages.DetachWorkspace{Workspace: name, By: "program"})
	return err
}

// Changes is what was changed in a working copy.
type Changes = messages.Changes

// Changes says what was changed in the session's copy of its folder (SessionOptions.Isolate) since it was made, or last applied.
func (s *Session) Changes(ctx context.Context) (*Changes, error) {
	return ask[*messages.Changes](ctx, s.rt, s.session, &messages.DiffCopy{})
}

// Apply brings what was changed in the session's copy back to its folder: all of it, or nothing. It waits for a minute at most until nobody works in either. A
// Failure of code conflict names what was changed in both in the same places.
func (s *Session) Apply(ctx context.Context) (*Changes, error) {
	return ask[*messages.Changes](ctx, s.rt, s.session, &messages.ApplyCopy{By: "program"})
}

// Changes says what was changed in the copy that the worker has of its own (WorkerOptions.Isolate) since it was made, or last applied.
func (w *Worker) Changes(ctx context.Context) (*Changes, error) {
	return ask[*messages.Changes](ctx, w.rt, w.session, &messages.DiffCopy{Worker: w.id})
}

// Apply brings what was changed in the worker's copy back to the folder, as Session.Apply does. The copy goes with the worker, applied or not.
func (w *Worker) Apply(ctx context.Context) (*Changes, error) {
	return ask[*messages.Changes](ctx, w.rt, w.session, &messages.ApplyCopy{Worker: w.id, By: "program"})
}

// Workspaces lists the workspaces of the session: in the order of attachment, its own last.
func (s *Session) Workspaces(ctx context.Context) ([]*Workspace, error) {
	v, err := ask[*messages.SessionView](ctx, s.rt, s.session, &messages.DescribeSession{})
	if err != nil {
		return nil, err
	}
	return v.GetWorkspaces(), nil
}

// listWorkspaces answers from the listing: it wakes no session.
func (rt *Runtime) listWorkspaces(ctx context.Context, m *messages.ListWorkspaces) (*messages.Workspaces, error) {
	var all []*messages.SessionView
	if m.GetSessionId() != "" {
		v, err := rt.session(ctx, m.GetSessionId())
		if err != nil {
			return nil, err
		}
		all = []*messages.SessionView{v}
	} else {
		l, err := rt.listSessions(ctx, &messages.ListSessions{})
		if err != nil {
			return nil, err
		}
		all = l.GetSessions()
	}
	out := &messages.Workspaces{}
	for _, v := range all {
		for _, w := range v.GetWorkspaces() {
			state := "attached"
			if w.GetOwner() != "" {
				if !rt.svc.Owners.Connected(actors.Place{Session: v.GetId(), URI: w.GetUri()}) {
					state = "offline"
				}
			} else if info, err := os.Stat(w.GetPath()); w.GetKind() != string(workspace.KindServer) && (err != nil || !info.IsDir()) {
				state = "gone"
			}
			out.Workspaces = append(out.Workspaces, &messages.SessionWorkspace{SessionId: v.GetId(), Workspace: w, State: state})
		}
	}
	return out, nil
}
