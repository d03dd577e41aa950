package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// An answer that comes after the turn was cancelled is too late, and the call has one result.
func TestAnApprovalOfACancelledTurnIsTooLate(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{Ask: true})
	w := h.wire(t, `{"type":"hello","version":1,"features":["approvals","error_code"]}`, fmt.Sprintf(`{"type":"attach","session":%q}`, s.GetId()))
	w.hear("attach")
	w.say(`{"type":"tool_call","call_id":"c","tool_name":"write_file","arguments":{"path":"a","content":"x"},"requires_approval":true}`)
	id := w.hear("approval_request")["approval"].(map[string]any)["id"]
	ask[*messages.Cancelled](t, h.rt, &messages.ToSession{SessionId: s.GetId(), Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{By: "test"}}})
	if f := w.hear("tool_result"); f["call_id"] != "c" || f["error"] == nil || f["result"] != nil {
		t.Errorf("the call came to %v", f)
	}
	w.say(fmt.Sprintf(`{"type":"approval_response","approval_id":%q,"decision":"approved"}`, id))
	if f := w.hear("error"); f["code"] != "already_resolved" {
		t.Errorf("a late answer: %v", f)
	}
	w.say(`{"type":"tool_call","call_id":"c","tool_name":"write_file","arguments":{"path":"a","content":"other"}}`)
	if f := w.hear("error"); f["code"] != "conflict" || f["call_id"] != "c" {
		t.Errorf("the same id with other arguments: %v", f)
	}
	w.say(`{"type":"tool_call","call_id":"d","tool_name":"read_file","arguments":"{\"path\":"}`)
	if f := w.hear("tool_result"); f["error_code"] != "invalid_arguments" {
		t.Errorf("arguments that are no JSON: %v", f)
	}
}

// Row 77, and the scopes of frames: who comes with a token may do what that may.
func TestAHostNameBelongsToTheTokenThatCameWithItFirst(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{})
	server := httptest.NewServer(gateway.New(h.rt, gateway.Options{Authenticate: func(r *http.Request) (gateway.Principal, error) {
		name, scopes, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ":")
		p := gateway.Principal{Name: name}
		for _, s := range strings.Split(scopes, ",") {
			p.Scopes = append(p.Scopes, gateway.Scope(s))
		}
		if name == "" {
			return p, messages.Fail(messages.CodeUnauthorized, "no token", "")
		}
		return p, nil
	}}))
	defer server.Close()
	open := func(token string) *wire {
		ws, _, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1)+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ws.CloseNow() })
		return &wire{t, ws}
	}
	if ws, _, err := websocket.Dial(context.WithoutCancel(t.Context()), strings.Replace(server.URL, "http", "ws", 1)+"/ws", nil); err == nil {
		_ = ws.CloseNow()
		t.Error("it was let in without a token")
	}
	attach := func(path string) string {
		return fmt.Sprintf(`{"type":"attach","session":%q,"workspace":"lap:%s"}`, s.GetId(), path)
	}
	reader := open("r:read")
	for _, frame := range []string{
		attach("/x"), `{"type":"tool_call","call_id":"c","tool_name":"todo","session":"` + s.GetId() + `"}`, `{"type":"approval_response","approval_id":"a","decision":"approved"}`,
	} {
		reader.say(frame)
		if f := reader.hear("error"); f["code"] != "forbidden" {
			t.Errorf("with scope read, %s: %v", frame, f)
		}
	}
	first := open("one:read,prompt")
	first.say(attach("/x"))
	first.hear("attach")
	second := open("two:read,prompt")
	for _, path := range []string{"/x", "/y"} {
		second.say(attach(path))
		if f := second.hear("error"); f["code"] != "permission_denied" || !strings.Contains(fmt.Sprint(f["message"]), "another token") {
			t.Errorf("another token's name: %v", f)
		}
	}
	first.say(attach("/z"))
	first.hear("attach")
}
