package gateway_test

import (
	"context"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// TestAPageOfAnAuditIsAskedForAsSuch: what is asked of the runtime is a page and not the whole, and the page says where the one before it ends.
func TestAPageOfAnAuditIsAskedForAsSuch(t *testing.T) {
	var asked *messages.ListAudit
	next := ""
	s := serve(t, &backend{answer: func(_ context.Context, m proto.Message) (proto.Message, error) {
		asked, _ = m.(*messages.ListAudit)
		return &messages.Audit{Next: next, Entries: []*messages.AuditView{{What: "a"}}}, nil
	}}, gateway.Options{})
	for _, c := range []struct {
		query, next, link string
		want              *messages.ListAudit
	}{
		{"", "", "", &messages.ListAudit{}},
		{"?limit=3&session=ses_1", "2.7.1.ses_1", `</api/audit?before=2.7.1.ses_1&limit=3&session=ses_1>; rel="next"`, &messages.ListAudit{SessionId: "ses_1", Limit: 3}},
		{"?limit=3&before=2.7.1.ses_1", "", "", &messages.ListAudit{Limit: 3, Before: "2.7.1.ses_1"}},
	} {
		next = c.next
		res, text := s.do(t, "GET", "/api/audit"+c.query, "")
		if res.StatusCode != http.StatusOK || !proto.Equal(asked, c.want) || res.Header.Get("Link") != c.link {
			t.Errorf("%q: %s %s: asked %v, leads to %q", c.query, res.Status, text, asked, res.Header.Get("Link"))
		}
	}
	for _, wrong := range []string{"?limit=-1", "?limit=2000000000", "?since=1"} {
		if res, text := s.do(t, "GET", "/api/audit"+wrong, ""); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s %s", wrong, res.Status, text)
		}
	}
}
