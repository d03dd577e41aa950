package gateway_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// TestAListThatHasNotChangedIsNotSentAgain asks like a console that is open: for all that there is, every few seconds.
func TestAListThatHasNotChangedIsNotSentAgain(t *testing.T) {
	for _, path := range []string{"/api/pipelines/runs", "/api/sessions", "/api/sessions?limit=1"} {
		name := "nightly"
		more := []*messages.SessionView{{Id: "ses_1", Title: "one"}}
		s := serve(t, &backend{answer: func(_ context.Context, m proto.Message) (proto.Message, error) {
			if _, runs := m.(*messages.ListRuns); runs {
				return &messages.Runs{Runs: []*messages.RunView{{RunId: "run_1", Name: name}}}, nil
			}
			for _, v := range more {
				v.Title = name
			}
			return &messages.Sessions{Sessions: more}, nil
		}}, gateway.Options{})
		res, first := s.do(t, "GET", path, "")
		tag := res.Header.Get("ETag")
		if res.StatusCode != 200 || tag == "" || res.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%s: %s, tag %q", path, res.Status, tag)
		}
		for _, said := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			if res, body := s.do(t, "GET", path, "", "If-None-Match", said); res.StatusCode != 304 || body != "" || res.Header.Get("ETag") != tag {
				t.Errorf("%s, %s: %s %q", path, said, res.Status, body)
			}
		}
		if res, body := s.do(t, "GET", path, "", "If-None-Match", `"other"`); res.StatusCode != 200 || body != first {
			t.Errorf("%s, of another: %s %q", path, res.Status, body)
		}
		name = "weekly"
		if res, body := s.do(t, "GET", path, "", "If-None-Match", tag); res.StatusCode != 200 || body == first || res.Header.Get("ETag") == tag {
			t.Errorf("%s, changed: %s %q", path, res.Status, body)
		}
	}
}
