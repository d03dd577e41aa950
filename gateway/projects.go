package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// projects lists them without the values of secrets.
func (a *api) projects(_ http.ResponseWriter, r *http.Request) (answer, error) {
	l, err := ask[*messages.Projects](r.Context(), a, &messages.ListProjects{})
	if err != nil {
		return answer{}, err
	}
	return ok(l.JSON())
}

func (a *api) saveProject(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.SaveProjectJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	p, err := ask[*messages.Project](r.Context(), a, &messages.SaveProject{Name: body.Name, Path: body.Path})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: p.JSON()}, nil
}

func (a *api) removeProject(_ http.ResponseWriter, r *http.Request) (answer, error) {
	return a.done(r, &messages.RemoveProject{Project: r.PathValue("project")})
}

// setVariables answers once the project's sessions have them.
func (a *api) setVariables(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.SetVariablesJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	p, err := ask[*messages.Project](r.Context(), a, body.Proto(r.PathValue("project")))
	if err != nil {
		return answer{}, err
	}
	return ok(p.JSON())
}
