package gateway

import (
	"strings"
)

// Route is one row of the API, for who walks over it: a description, a test.
type Route struct {
	Method, Path string // the path with its parameters, as in /api/sessions/{id}
	Scope        Scope
	Summary      string
}

// Routes lists the API.
func Routes() []Route {
	var out []Route
	for _, r := range (&api{}).table() {
		method, path, _ := strings.Cut(r.pattern, " ")
		out = append(out, Route{Method: method, Path: path, Scope: r.scope, Summary: r.summary})
	}
	return out
}
