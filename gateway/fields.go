package gateway

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// fields shows what a workspace of a session holds besides its files.
func (a *api) fields(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "workspace")
	if err != nil {
		return answer{}, err
	}
	return a.fieldsOf(r, &messages.ToSession{Command: &messages.ToSession_ReadFields{ReadFields: &messages.ReadFields{Workspace: q.Get("workspace")}}})
}

// declareFields says which fields a workspace has.
func (a *api) declareFields(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.DeclareFieldsJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	return a.fieldsOf(r, &messages.ToSession{Command: &messages.ToSession_DeclareFields{DeclareFields: body.Proto()}})
}

func (a *api) fieldsOf(r *http.Request, m *messages.ToSession) (answer, error) {
	m.SessionId = r.PathValue("id")
	v, err := ask[*messages.FieldsView](r.Context(), a, m)
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}

// setField answers once the edit is durable, and in the prompt of every later model call.
func (a *api) setField(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.SetFieldJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	set, err := body.Proto(r.PathValue("name"))
	if err != nil {
		return answer{}, err
	}
	done, err := ask[*messages.FieldUpdated](r.Context(), a, proto.Message(&messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_SetField{SetField: set},
	}))
	if err != nil {
		return answer{}, err
	}
	return ok(done.JSON())
}
