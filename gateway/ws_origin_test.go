package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// TestAPageOfAnotherOriginOpensNoWebSocket opens one as a browser does for a page, and as a program does.
func TestAPageOfAnotherOriginOpensNoWebSocket(t *testing.T) {
	api := gateway.New(always(&messages.Workspaces{}), gateway.Options{})
	srv := httptest.NewServer(api)
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	for name, c := range map[string]struct {
		header http.Header
		opens  bool
	}{
		"a program":                           {http.Header{}, true},
		"a page of the server":                {http.Header{"Origin": {"http://" + host}}, true},
		"a page of the server, newer browser": {http.Header{"Origin": {"http://" + host}, "Sec-Fetch-Site": {"same-origin"}}, true},
		"a page of elsewhere":                 {http.Header{"Origin": {"https://evil.example"}}, false},
		"a page of elsewhere, newer browser":  {http.Header{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}}, false},
		"another port of this machine":        {http.Header{"Origin": {"http://127.0.0.1:1"}, "Sec-Fetch-Site": {"same-site"}}, false},
		"a file, or a frame without rights":   {http.Header{"Origin": {"null"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ws, res, err := websocket.Dial(t.Context(), "ws://"+host+"/ws", &websocket.DialOptions{HTTPHeader: c.header})
			if err == nil {
				_ = ws.CloseNow()
			}
			if (err == nil) != c.opens {
				t.Fatalf("opened: %t, %v", err == nil, err)
			}
			if !c.opens && res.StatusCode != http.StatusForbidden {
				t.Errorf("status %d", res.StatusCode)
			}
		})
	}
}
