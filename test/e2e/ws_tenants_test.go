package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// TestACallOfAnotherTenantIsOneThatThereIsNot: who guesses its id learns nothing, and takes nothing away.
func TestACallOfAnotherTenantIsOneThatThereIsNot(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{Tenant: "acme"})
	server := httptest.NewServer(gateway.New(h.rt, gateway.Options{Authenticate: func(r *http.Request) (gateway.Principal, error) {
		tenant := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		return gateway.Principal{Name: "a token of " + tenant, Tenant: tenant, Scopes: gateway.Scopes()}, nil
	}}))
	defer server.Close()
	open := func(tenant string) *wire {
		ws, _, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1)+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + tenant}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ws.CloseNow() })
		return &wire{t, ws}
	}
	owner, stranger := open("acme"), open("umbrella")
	owner.say(fmt.Sprintf(`{"type":"attach","session":%q,"workspace":"lap:/x","name":"lap","trust":"full"}`, s.GetId()))
	owner.hear("attach")
	got := later(t, h.rt, toolCall(s.GetId(), "c", "read_file", `{"path":"a","workspace_id":"lap"}`))
	id := owner.hear("tool_call")["call_id"]
	nothing := func(when string) {
		t.Helper()
		for _, text := range []string{"mine", "theirs"} {
			stranger.say(fmt.Sprintf(`{"type":"tool_result","call_id":%q,"result":%q}`, id, text))
			if f := stranger.hear("error"); f["code"] != "unknown_call" {
				t.Errorf("%s: %v", when, f)
			}
		}
	}
	nothing("while it runs")
	owner.say(fmt.Sprintf(`{"type":"tool_result","call_id":%q,"result":"mine"}`, id))
	if r := <-got; r.GetContent() != "mine" {
		t.Errorf("came to %v", r)
	}
	nothing("when it is over")
}
