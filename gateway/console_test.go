package gateway_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

func TestTheConsoleIsServedAndItsPolicyLetsNothingElseIn(t *testing.T) {
	s := serve(t, always(&messages.Ack{}), gateway.Options{Authenticate: byHeader(nil)}) // nobody is known: the console is open all the same
	for _, path := range []string{"/", "/approvals", "/workers", "/runs", "/runs/run_1", "/sessions/ses_1", "/sessions/ses_1/fields"} {
		res, body := s.do(t, "GET", path, "")
		if res.StatusCode != 200 || !strings.HasPrefix(body, "<!doctype html>") || res.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %s %.40s", path, res.Status, body)
		}
		csp := res.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'self';") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, res.Header)
		}
	}
	res, body := s.do(t, "GET", "/console/console.js", "")
	tag := res.Header.Get("ETag")
	if res.StatusCode != 200 || len(body) < 10_000 || tag == "" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/javascript") {
		t.Fatalf("%s, %d bytes, tag %q", res.Status, len(body), tag)
	}
	if res, body := s.do(t, "GET", "/console/console.js", "", "If-None-Match", tag); res.StatusCode != 304 || body != "" {
		t.Errorf("%s %.40q", res.Status, body)
	}
	for _, path := range []string{"/console/sources.sha256", "/console/x.js", "/console/..%2fweb.go", "/nothing"} {
		res, body := s.do(t, "GET", path, "")
		refused(t, res, body, 404, messages.CodeNotFound)
	}
	res, _ = s.do(t, "POST", "/", "")
	if res.StatusCode != 405 {
		t.Errorf("POST /: %s", res.Status)
	}
}
