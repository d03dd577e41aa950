package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

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

// annAndBob lets "ann" and "bob" in, each of a tenant of the same name, and answers WhoseIs: what has a tenant in its id is that tenant's.
func annAndBob(t *testing.T, reply func() proto.Message) (*backend, *server) {
	t.Helper()
	b := &backend{answer: func(_ context.Context, m proto.Message) (proto.Message, error) {
		if w, asks := m.(*messages.WhoseIs); asks {
			if !strings.Contains(w.GetId(), w.GetTenant()) {
				return nil, messages.Fail(messages.CodeNotFound, "none", "")
			}
			return &messages.Belongs{SessionId: "ses_" + w.GetTenant()}, nil
		}
		return reply(), nil
	}}
	who := map[string]gateway.Principal{}
	for _, name := range []string{"ann", "bob"} {
		who[name] = gateway.Principal{Name: name, Tenant: name, Scopes: gateway.Scopes()}
	}
	return b, serve(t, b, gateway.Options{Authenticate: byHeader(who)})
}

func TestWhoWorksInAFolderIsToldToItsOwnTenantAlone(t *testing.T) {
	var reply proto.Message
	_, s := annAndBob(t, func() proto.Message { return proto.Clone(reply) })
	for _, behind := range []string{"ses_ann", "ses_bob"} {
		v := &messages.WorkerView{Id: "w", SessionId: "ses_bob", WaitsFor: "the workspace local:/x, in which session " + behind + " works", Waiting: &messages.Waiting{Kind: "lease", Subject: "local:/x", Session: behind}}
		session := &messages.SessionView{Id: "ses_bob", Tenant: "bob", Workers: []*messages.WorkerView{v}}
		for _, c := range []struct {
			request, body string
			reply         proto.Message
		}{
			{"GET /api/workers", "", &messages.Workers{Workers: []*messages.WorkerView{v}}},
			{"GET /api/sessions", "", &messages.Sessions{Sessions: []*messages.SessionView{session}}},
			{"GET /api/sessions/ses_bob", "", &messages.Shown{Session: session}},
			{"POST /api/sessions/ses_bob/open", "{}", session},
			{"POST /api/sessions/ses_bob/fork", "{}", &messages.Forked{Session: session}},
			{"PATCH /api/sessions/ses_bob", `{"model":"m/m"}`, v},
		} {
			reply = c.reply
			method, path, _ := strings.Cut(c.request, " ")
			res, text := s.do(t, method, path, c.body, "Authorization", "bob")
			if res.StatusCode >= 300 || !strings.Contains(text, "local:/x") || strings.Contains(text, "ses_ann") {
				t.Errorf("%s behind %s: %s %s", c.request, behind, res.Status, text)
			}
			if behind == "ses_bob" && !strings.Contains(text, "session ses_bob works") {
				t.Errorf("%s: who of one's own works there is not told: %s", c.request, text)
			}
		}
	}
}

// A listing that cannot be narrowed is refused: without some of what is one's own it would be wrong.
func TestAListingThatCannotBeNarrowedIsRefused(t *testing.T) {
	b, s := annAndBob(t, func() proto.Message { return &messages.Calls{Calls: []*messages.CallView{{SessionId: "ses_bob"}}} })
	known := b.answer
	b.answer = func(ctx context.Context, m proto.Message) (proto.Message, error) {
		if _, asks := m.(*messages.WhoseIs); asks {
			return nil, messages.Fail(messages.CodeUnavailable, "not now", "")
		}
		return known(ctx, m)
	}
	res, body := s.do(t, "GET", "/api/calls", "", "Authorization", "bob")
	refused(t, res, body, 503, messages.CodeUnavailable)
}
