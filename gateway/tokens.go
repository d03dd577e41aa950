package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// tokens lists them without their secrets.
func (a *api) tokens(_ http.ResponseWriter, r *http.Request) (answer, error) {
	if _, err := query(r); err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Tokens](r.Context(), a, &messages.ListTokens{})
	if err != nil {
		return answer{}, err
	}
	return ok(l.JSON())
}

// createToken answers once the token is durable and counts.
func (a *api) createToken(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.CreateTokenJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto()
	if err != nil {
		return answer{}, err
	}
	t, err := ask[*messages.Token](r.Context(), a, m)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: t.JSON()}, nil
}

// revokeToken answers once the token lets nobody in any more.
func (a *api) revokeToken(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "by")
	if err != nil {
		return answer{}, err
	}
	return a.done(r, &messages.RevokeToken{Name: r.PathValue("token"), By: q.Get("by")})
}
