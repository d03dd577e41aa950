package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

func TestAFrameThatCannotBeMeantIsRefusedByNameAndTheNextOneIsTaken(t *testing.T) {
	ws := socketTo(t, serve(t, takesOwners(), gateway.Options{Version: "v9"}))
	for _, c := range []struct {
		say  string
		want []string
	}{
		{`{"type":"hello"}`, []string{`"code":"invalid_message"`, `hello names no version`, `speaks version 1`}},
		{`{"type":"hello","version":5,"features":["preview","unheard of"]}`, []string{`"version":1`, `"troupe v9"`, `"features":["preview"]`}},
		{`{"type":"hello","version":1}`, []string{`"about":"hello"`, `hello is the first frame, once`}},
		{`{"type":"request_resolved","call_id":"c"}`, []string{`"about":"request_resolved"`, `frame request_resolved is for clients`}},
		{`{"type":"approval_request","approval":{}}`, []string{`frame approval_request is for clients`}},
		{`{"type":"tool_call","tool_name":"t","session":"s"}`, []string{`"about":"tool_call"`, `tool_call has no call_id`}},
		{`{"type":"tool_call","call_id":"c","session":"s"}`, []string{`"call_id":"c"`, `names no tool`}},
		{`{"type":"tool_call","call_id":"c","tool_name":"t"}`, []string{`"call_id":"c"`, `names no session`, `attach first`}},
		{`{"type":"tool_call","call_id":"c","tool_name":"t","session":"s","workspace":"lap:/x"}`, []string{`"code":"invalid_message"`, `"call_id":"c"`, `workspace_id in arguments`}},
		{`{"type":"tool_call","call_id":"c","tool_name":"t","session":"s","preview":true}`, []string{`"code":"invalid_message"`, `is no preview`}},
		{`{"type":"tool_result","call_id":"c","result":"x"}`, []string{`"code":"unknown_call"`, `nobody waits for a result`}},
		{`{"type":"approval_response","approval_id":"a","decision":"perhaps"}`, []string{`"approval_id":"a"`, `decision \"perhaps\" is not known`}},
		{`{"type":"attach"}`, []string{`"about":"attach"`, `attach names no session`}},
		{`{"type":"attach","session":"a\u0000b"}`, []string{`"about":"attach"`, `the session`}},
		{`{"type":"attach","session":"s","workspace":"nowhere"}`, []string{`"code":"invalid_uri"`, `is no address HOST:PATH`}},
		{`{"type":"attach","session":"s","workspace":"LOCAL:/x"}`, []string{`"code":"permission_denied"`, `is the server's own`}},
		{`{"type":"attach","session":"s","workspace":"lap:/x","trust":"much"}`, []string{`trust \"much\"`, `one of full, restricted`}},
		{`{"type":"error","code":"c","message":"m"}`, nil},
		{`{"type":"ping","pong":true}`, nil}, // neither is answered: the next answer is that of the next frame
		{`{"type":"ping","id":"7"}`, []string{`{"type":"ping","id":"7","pong":true}`}},
	} {
		say(t, ws, c.say)
		if c.want != nil {
			hear(t, ws, c.want...)
		}
	}
}

func TestARequestThatOpensNoWebSocketIsToldWhatToSend(t *testing.T) {
	s := serve(t, takesOwners(), gateway.Options{})
	for want, header := range map[string][]string{
		"does not ask for one":                        {"Connection", "Upgrade"},
		"this version of the WebSocket":               {"Connection", "keep-alive, upgrade", "Upgrade", "WebSocket", "Sec-WebSocket-Version", "8", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="},
		"Sec-WebSocket-Key is not 16 bytes in base64": {"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAA"},
	} {
		res, body := s.do(t, "GET", "/ws", "", header...)
		if p := refused(t, res, body, http.StatusUpgradeRequired, messages.CodeBadRequest); !strings.Contains(p.Detail, want) || !strings.Contains(p.Hint, "RFC 6455") {
			t.Errorf("%q: %s", want, body)
		}
	}
}

func TestWhatTheHouseCannotAnswerIsSaidOfItsFrame(t *testing.T) {
	b := takesOwners()
	b.answer = func(_ context.Context, m proto.Message) (proto.Message, error) {
		return nil, fmt.Errorf("the test fails %T", m)
	}
	ws := socketTo(t, serve(t, b, gateway.Options{}))
	for _, c := range [][]string{
		{`{"type":"attach","session":"s"}`, `"about":"attach"`, `"session":"s"`, `ListWorkspaces`},
		{`{"type":"approval_response","approval_id":"a","decision":"approved"}`, `"about":"approval_response"`, `"approval_id":"a"`, `ListApprovals`},
		{`{"type":"tool_call","call_id":"c","tool_name":"t","session":"s"}`, `"about":"tool_call"`, `"call_id":"c"`, `ToSession`},
	} {
		say(t, ws, c[0])
		hear(t, ws, append(c[1:], `"code":"internal_error"`, `the test fails`)...)
	}
}

func TestAConnectionDoesWhatItsTokenMayDo(t *testing.T) {
	const attach, owner = `{"type":"attach","session":"s"}`, `{"type":"attach","session":"s","workspace":"lap:/x"}`
	const call, answer = `{"type":"tool_call","call_id":"c","tool_name":"t","session":"s"}`, `{"type":"approval_response","approval_id":"a","decision":"approved"}`
	for _, c := range []struct {
		scopes []gateway.Scope
		says   [][2]string // frames, and what is in their answers
	}{
		{[]gateway.Scope{gateway.ScopeRead}, [][2]string{{attach, `"type":"attach"`}, {owner, "this needs scope prompt"}, {call, "this needs scope prompt"}, {answer, "this needs scope approve"}}},
		{[]gateway.Scope{gateway.ScopeRead, gateway.ScopePrompt}, [][2]string{{attach, `"type":"attach"`}, {call, `"type":"tool_result"`}, {answer, "this needs scope approve"}}},
	} {
		b := takesOwners()
		ws := socketTo(t, serve(t, b, with(gateway.Principal{Name: "n", Scopes: c.scopes})))
		for _, s := range c.says {
			say(t, ws, s[0])
			hear(t, ws, s[1])
		}
		if n := len(askedFor[*messages.ResolveApproval](b.backend)); n != 0 || len(b.owners) != 0 {
			t.Errorf("with scopes %v: %d answers and %d owners were taken", c.scopes, n, len(b.owners))
		}
	}
}

// Sixteen requests wait for the house; every kind of the next one is told so, and pings are answered meanwhile.
func TestAConnectionHasOnlySoManyRequestsUnderWay(t *testing.T) {
	b, goOn := takesOwners(), make(chan struct{})
	house := b.answer
	b.answer = func(ctx context.Context, m proto.Message) (proto.Message, error) {
		<-goOn
		return house(ctx, m)
	}
	ws := socketTo(t, serve(t, b, gateway.Options{}))
	for i := range 16 {
		say(t, ws, fmt.Sprintf(`{"type":"attach","session":"s%d"}`, i))
	}
	for _, c := range [][]string{
		{`{"type":"attach","session":"s"}`, `"about":"attach"`, `"session":"s"`},
		{`{"type":"approval_response","approval_id":"a","decision":"approved"}`, `"approval_id":"a"`},
		{`{"type":"tool_call","call_id":"c","tool_name":"t","session":"s"}`, `"call_id":"c"`},
	} {
		say(t, ws, c[0])
		hear(t, ws, append(c[1:], `"code":"busy"`, `16 requests of the connection are under way`)...)
	}
	say(t, ws, `{"type":"ping"}`)
	hear(t, ws, `"pong":true`)
	close(goOn)
	for range 16 {
		hear(t, ws, `"type":"attach"`)
	}
}

func TestAConnectionTakesPartInOnlySoManySessions(t *testing.T) {
	ws := socketTo(t, serve(t, takesOwners(), gateway.Options{}))
	for i := range 64 {
		say(t, ws, fmt.Sprintf(`{"type":"attach","session":"s%d"}`, i))
		hear(t, ws, fmt.Sprintf(`{"type":"attach","session":"s%d"}`, i))
	}
	say(t, ws, `{"type":"attach","session":"one more"}`)
	hear(t, ws, `"code":"busy"`, `at most 64 sessions`, `open another one`)
	say(t, ws, `{"type":"attach","session":"s63"}`)
	hear(t, ws, `{"type":"attach","session":"s63"}`) // it has its place
}

func TestAPanicBehindAFrameEndsItsConnectionAndNoOther(t *testing.T) {
	b := takesOwners()
	house := b.answer
	b.answer = func(ctx context.Context, m proto.Message) (proto.Message, error) {
		if l, ok := m.(*messages.ListWorkspaces); ok && l.GetSessionId() == "bad" {
			panic("of the test")
		}
		return house(ctx, m)
	}
	s := serve(t, b, gateway.Options{})
	other, ws := socketTo(t, s), socketTo(t, s)
	say(t, ws, `{"type":"attach","session":"bad"}`)
	if _, got, err := ws.Read(t.Context()); err == nil {
		t.Errorf("it said %s", got)
	}
	say(t, other, `{"type":"attach","session":"s"}`)
	hear(t, other, `{"type":"attach","session":"s"}`)
}

func TestATokenThatIsRevokedEndsItsWebSocketAndSaysWhy(t *testing.T) {
	revoke := make(chan context.CancelCauseFunc, 1)
	api := gateway.New(takesOwners(), gateway.Options{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		revoke <- cancel
		api.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(srv.Close)
	ws, _, err := websocket.Dial(t.Context(), "ws://"+strings.TrimPrefix(srv.URL, "http://")+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	(<-revoke)(messages.Fail(messages.CodeUnauthorized, "the token was revoked", ""))
	_, _, err = ws.Read(t.Context())
	var end websocket.CloseError
	if !errors.As(err, &end) || end.Code != websocket.StatusPolicyViolation || end.Reason != "the token was revoked" {
		t.Errorf("it ended with %v", err)
	}
}
