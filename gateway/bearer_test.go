package gateway_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// one is a Bearer that knows the token "good".
func one(perSecond int) *gateway.Bearer {
	return &gateway.Bearer{Rate: perSecond, Find: func(_ context.Context, hash [sha256.Size]byte) (*messages.Token, error) {
		if hash != sha256.Sum256([]byte("good")) {
			return nil, messages.Fail(messages.CodeNotFound, "there is no such token", "")
		}
		return &messages.Token{Name: "g", Scopes: []string{"read", "prompt", "approve", "admin"}}, nil
	}}
}

func TestOnlyOneTokenInItsOneFormIsTaken(t *testing.T) {
	s := serve(t, always(&messages.Sessions{}), gateway.Options{Authenticate: one(0).Authenticate})
	for value, want := range map[string]int{
		"Bearer good": 200, "bearer good": 200, "Bearer  good ": 200,
		"": 401, "good": 401, "Basic good": 401, "Bearer": 401, "Bearer ": 401, "Bearer bad": 401, "Bearer good good": 401, "Bearer " + strings.Repeat("x", 5000): 401, "Bearer \xff": 401,
	} {
		res, body := s.do(t, "GET", "/api/sessions", "", "Authorization", value)
		if res.StatusCode != want || strings.Contains(body, "good") && want != 200 {
			t.Errorf("%q: %s %s", value, res.Status, body)
		}
	}
}

func TestEveryRouteButTheOpenOnesWantsAToken(t *testing.T) {
	b := always(&messages.Ack{})
	s := serve(t, b, gateway.Options{Authenticate: one(0).Authenticate})
	open := 0
	for _, r := range gateway.Routes() {
		path := strings.NewReplacer("{id}", "ses_1", "{", "", "}", "", "...", "").Replace(r.Path)
		res, body := s.do(t, r.Method, path, "")
		if r.Scope == gateway.ScopeNone {
			open++
			continue
		}
		if res.StatusCode != 401 && res.StatusCode != 429 {
			t.Errorf("%s %s: %s %s", r.Method, r.Path, res.Status, body)
		}
	}
	if asked := b.questions(); len(asked) != 0 {
		t.Errorf("the house was asked %v", asked)
	}
	if open > 4 {
		t.Errorf("%d routes are open", open)
	}
}

func TestWhoSendsTooMuchIsToldToWaitAndNobodyElse(t *testing.T) {
	s := serve(t, always(&messages.Sessions{}), gateway.Options{Authenticate: one(1).Authenticate})
	var seen []int
	for range 6 {
		res, _ := s.do(t, "GET", "/api/sessions", "", "Authorization", "Bearer good")
		seen = append(seen, res.StatusCode)
		if res.StatusCode == 429 && res.Header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}
	if got := fmt.Sprint(seen); got != "[200 200 200 200 429 429]" {
		t.Errorf("a burst of six got %s", got)
	}
	busy := serve(t, always(&messages.Sessions{}), gateway.Options{Authenticate: one(1000).Authenticate})
	told := false
	for range 200 {
		res, _ := busy.do(t, "GET", "/api/sessions", "", "Authorization", "Bearer guess")
		told = told || res.StatusCode == 429
	}
	if !told {
		t.Error("who guesses is never told to wait")
	}
	if res, _ := busy.do(t, "GET", "/api/sessions", "", "Authorization", "Bearer good"); res.StatusCode != 200 {
		t.Errorf("the guesses of others keep a good token out: %s", res.Status)
	}
}

func TestAnotherHostNameIsRefused(t *testing.T) {
	s := serve(t, always(&messages.Sessions{}), gateway.Options{Hosts: gateway.LoopbackHosts})
	for host, want := range map[string]int{
		"127.0.0.1:7777": 200, "localhost": 200, "LOCALHOST:1": 200, "[::1]:7777": 200, "127.8.8.8": 200,
		"evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:7777": 421, "10.0.0.1": 421, "[::2]": 421,
	} {
		if got := status(t, s.path, "GET /livez HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); got != want {
			t.Errorf("host %s: %d", host, got)
		}
	}
}

func TestHeadersCannotBeSmuggled(t *testing.T) {
	b := always(&messages.Sessions{})
	s := serve(t, b, gateway.Options{Authenticate: one(0).Authenticate, Hosts: gateway.LoopbackHosts})
	for name, raw := range map[string]string{
		"two hosts":            "GET /api/sessions HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nAuthorization: Bearer good\r\n\r\n",
		"a line in a value":    "GET /api/sessions HTTP/1.1\r\nHost: localhost\r\nX: a\rAuthorization: Bearer good\r\n\r\n",
		"a space before colon": "GET /api/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer good\r\n\r\n",
		"two lengths":          "POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
		"length and chunks":    "POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good\r\nContent-Length: 2\r\nTransfer-Encoding: chunked, identity\r\n\r\n{}",
		"two tokens":           "GET /api/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer bad\r\nAuthorization: Bearer good\r\nConnection: close\r\n\r\n",
		"no host":              "GET /api/sessions HTTP/1.1\r\nAuthorization: Bearer good\r\n\r\n",
	} {
		if got := status(t, s.path, raw); got < 400 || got > 501 {
			t.Errorf("%s: %d", name, got)
		}
	}
	if asked := b.questions(); len(asked) != 0 {
		t.Errorf("the house was asked %v", asked)
	}
}

// status sends bytes as they are and reads the status of what comes back.
func status(t *testing.T, path, raw string) (code int) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanf(c, "HTTP/1.1 %d", &code); err != nil {
		t.Errorf("%q is answered with %v", raw, err)
	}
	return code
}

// A stream is looked at again for as long as it lasts: that takes none of its token's requests, and never lasts on because others guess.
func TestALookAtARequestThatLastsIsNoFurtherRequest(t *testing.T) {
	for what, open := range map[string]bool{"a token": false, "the owner of an open server": true} {
		b := one(1)
		b.Open = func() bool { return open }
		find := b.Find
		look := func(w http.ResponseWriter, r *http.Request) {
			for range 10 {
				if _, err := b.Authenticate(r); err != nil {
					t.Errorf("%s is looked at again: %v", what, err)
				}
			}
			open = false
			b.Find = func(context.Context, [sha256.Size]byte) (*messages.Token, error) {
				return nil, messages.Fail(messages.CodeNotFound, "there is no such token", "")
			}
			for range 200 {
				_, err := b.Authenticate(r)
				if f := (*messages.Failure)(nil); !errors.As(err, &f) || f.GetCode() != messages.CodeUnauthorized {
					t.Errorf("%s does not count any more: %v", what, err)
				}
			}
			b.Find = find
		}
		mount := gateway.Mount{Pattern: "GET /look", Scope: gateway.ScopeRead, Handler: http.HandlerFunc(look)}
		s := serve(t, always(&messages.Sessions{}), gateway.Options{Authenticate: b.Authenticate, Mounts: []gateway.Mount{mount}})
		for _, path := range []string{"/look", "/api/sessions", "/api/sessions", "/api/sessions"} {
			if res, _ := s.do(t, "GET", path, "", "Authorization", "Bearer good"); res.StatusCode != 200 {
				t.Errorf("%s: %s: %s", what, path, res.Status)
			}
		}
	}
}
