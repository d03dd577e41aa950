package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// workspaces lists those of one session, or of all.
func (a *api) workspaces(_ http.ResponseWriter, r *http.Request) (answer, error) {
	l, err := ask[*messages.Workspaces](r.Context(), a, &messages.ListWorkspaces{SessionId: r.PathValue("id")})
	if err != nil {
		return answer{}, err
	}
	return ok(l.JSON())
}

// attach answers once the workspace is durably the session's, and counts from each worker's next turn on.
func (a *api) attach(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.AttachJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	spec, err := body.Proto()
	if err != nil {
		return answer{}, err
	}
	g, err := ask[*messages.WorkspaceGrant](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_AttachWorkspace{AttachWorkspace: &messages.AttachWorkspace{Workspace: spec}},
	})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: g.JSON()}, nil
}

// detach takes a workspace, named by its id, name or address, from a session.
func (a *api) detach(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "by")
	if err != nil {
		return answer{}, err
	}
	return a.done(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_DetachWorkspace{
		DetachWorkspace: &messages.DetachWorkspace{Workspace: r.PathValue("workspace"), By: q.Get("by")},
	}})
}

// changes says what was changed in the working copy of the session, or of one of its workers.
func (a *api) changes(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "worker")
	if err != nil {
		return answer{}, err
	}
	x, err := ask[*messages.Changes](r.Context(), a, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_DiffCopy{DiffCopy: &messages.DiffCopy{Worker: q.Get("worker")}}})
	if err != nil {
		return answer{}, err
	}
	return ok(x.JSON())
}

// apply brings them back to the folder: all, or none.
func (a *api) apply(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.ApplyJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	x, err := ask[*messages.Changes](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_ApplyCopy{ApplyCopy: &messages.ApplyCopy{By: body.By, Worker: body.Worker}},
	})
	if err != nil {
		return answer{}, err
	}
	return ok(x.JSON())
}
