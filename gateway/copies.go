package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// fork makes a session that goes on from a record of another one.
func (a *api) fork(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.ForkJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	f, err := ask[*messages.Forked](r.Context(), a, m)
	if err != nil {
		return answer{}, err
	}
	return answer{
		status: http.StatusCreated, body: f.JSON(), header: map[string]string{"Location": sessionPath + f.GetSession().GetId()},
	}, nil
}
