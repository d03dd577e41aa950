package gateway_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// byHeader takes a principal from a header, as a test of what follows from it needs.
func byHeader(who map[string]gateway.Principal) gateway.Authenticator {
	return func(r *http.Request) (gateway.Principal, error) {
		p, known := who[r.Header.Get("Authorization")]
		if !known {
			return p, messages.Fail(messages.CodeUnauthorized, "no token was sent", "send one")
		}
		return p, nil
	}
}

func TestARouteIsForWhoHasItsScope(t *testing.T) {
	reader := gateway.Principal{Name: "reader", Scopes: []gateway.Scope{gateway.ScopeRead}}
	s := serve(t, always(&messages.Sessions{}), gateway.Options{Authenticate: byHeader(map[string]gateway.Principal{"reader": reader})})
	if res, _ := s.do(t, "GET", "/api/sessions", "", "Authorization", "reader"); res.StatusCode != 200 {
		t.Errorf("a reader may not list: %s", res.Status)
	}
	res, body := s.do(t, "POST", "/api/sessions", "{}", "Authorization", "reader")
	refused(t, res, body, 403, messages.CodeForbidden)
	res, body = s.do(t, "GET", "/api/sessions", "")
	refused(t, res, body, 401, messages.CodeUnauthorized)
	if res.Header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
	if res, _ := s.do(t, "GET", "/livez", ""); res.StatusCode != 200 {
		t.Errorf("/livez: %s", res.Status)
	}
}

func TestAMountIsBehindTheSameChecks(t *testing.T) {
	mount := gateway.Mount{Pattern: "GET /extra", Scope: gateway.ScopeRead, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, gateway.PrincipalOf(r.Context()).Name)
	})}
	who := map[string]gateway.Principal{"a": {Name: "ann", Scopes: []gateway.Scope{gateway.ScopeRead}}, "b": {Name: "bob"}}
	s := serve(t, always(&messages.Ack{}), gateway.Options{Authenticate: byHeader(who), Mounts: []gateway.Mount{mount}})
	if res, body := s.do(t, "GET", "/extra", "", "Authorization", "a"); res.StatusCode != 200 || body != "ann" {
		t.Errorf("%s %q", res.Status, body)
	}
	res, body := s.do(t, "GET", "/extra", "", "Authorization", "b")
	refused(t, res, body, 403, messages.CodeForbidden)
}
