package gateway_test

import (
	"context"
	"iter"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// socketTo opens a WebSocket to a server, over a connection that the test can look at.
func socketTo(t *testing.T, s *server) *websocket.Conn {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.path)
	}}
	ws, _, err := websocket.Dial(t.Context(), "ws://troupe/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: tr}})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	t.Cleanup(func() { _ = ws.CloseNow(); tr.CloseIdleConnections() })
	return ws
}

// flood tells one big event after the other until nobody listens; ended is closed then.
func flood() (b *backend, ended chan struct{}) {
	ended = make(chan struct{})
	b = always(&messages.Workspaces{})
	b.events = func(ctx context.Context, _ string, _ uint64) iter.Seq2[*messages.Event, error] {
		return func(yield func(*messages.Event, error) bool) {
			defer close(ended)
			for e := (&messages.Event{Type: messages.EventTextDelta, Text: strings.Repeat("x", 1<<20)}); yield(e, nil); {
				if ctx.Err() != nil {
					return
				}
			}
		}
	}
	return b, ended
}

func say(t *testing.T, ws *websocket.Conn, frames ...string) {
	t.Helper()
	for _, f := range frames {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(f)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAWebSocketThatIsReadTooSlowlyIsDropped(t *testing.T) {
	b, ended := flood()
	ws := socketTo(t, serve(t, b, gateway.Options{}))
	say(t, ws, `{"type":"hello","version":1,"features":["events"]}`, `{"type":"attach","session":"s"}`)
	<-ended // nothing is read: what waits is bounded
}

func TestAWebSocketThatAnswersNoPingIsClosed(t *testing.T) {
	b, ended := always(&messages.Workspaces{}), make(chan struct{})
	b.events = func(ctx context.Context, _ string, _ uint64) iter.Seq2[*messages.Event, error] {
		return func(func(*messages.Event, error) bool) { <-ctx.Done(); close(ended) }
	}
	ws := socketTo(t, serve(t, b, gateway.Options{Ping: 10 * time.Millisecond}))
	say(t, ws, `{"type":"hello","version":1,"features":["events"]}`, `{"type":"attach","session":"s"}`)
	<-ended // pongs are sent by who reads, and nobody does
}

// Nothing is sent that a client has to refuse: it would close the connection, and ask for it again.
func TestAFrameThatIsTooLargeIsNamedAndNotSent(t *testing.T) {
	b := always(&messages.Workspaces{})
	b.events = func(ctx context.Context, _ string, _ uint64) iter.Seq2[*messages.Event, error] {
		return func(yield func(*messages.Event, error) bool) {
			for _, text := range []string{strings.Repeat("x", messages.MaxFrame), "short"} {
				if !yield(&messages.Event{Type: messages.EventTextDelta, Text: text}, nil) {
					return
				}
			}
			<-ctx.Done()
		}
	}
	ws := socketTo(t, serve(t, b, gateway.Options{}))
	say(t, ws, `{"type":"hello","version":1,"features":["events"]}`, `{"type":"attach","session":"s"}`)
	for i, want := range []string{`"type":"hello"`, `"type":"attach"`, `"code":"message_too_large"`, `"text":"short"`} {
		if _, got, err := ws.Read(t.Context()); err != nil || len(got) > messages.MaxFrame || !strings.Contains(string(got), want) {
			t.Fatalf("frame %d, of %d bytes: %.300s %v, want %s", i, len(got), got, err, want)
		}
	}
}

func TestAServerThatStopsEndsItsWebSockets(t *testing.T) {
	s := serve(t, always(&messages.Workspaces{}), gateway.Options{})
	ws := socketTo(t, s)
	say(t, ws, `{"type":"ping"}`)
	if _, b, err := ws.Read(t.Context()); err != nil || string(b) != `{"type":"ping","pong":true}` {
		t.Errorf("%s %v", b, err)
	}
	go func() { _ = s.stop() }() // looked at when the test ends
	if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("it ended with %v", err)
	}
}

func TestAnOwnerIsRefusedWhereTheHouseTakesNone(t *testing.T) {
	ws := socketTo(t, serve(t, always(&messages.Workspaces{}), gateway.Options{}))
	say(t, ws, `{"type":"attach","session":"s","workspace":"lap:/x"}`)
	if _, b, err := ws.Read(t.Context()); err != nil || !strings.Contains(string(b), "takes no owners") {
		t.Errorf("%s %v", b, err)
	}
}
