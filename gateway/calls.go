package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// resolve takes a person's word on a call in doubt: no content once it is durable.
func (a *api) resolve(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.ResolveJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto(r.PathValue("exec"))
	if err != nil {
		return answer{}, err
	}
	return a.done(r, m)
}
