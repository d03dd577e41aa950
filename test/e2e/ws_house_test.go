package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
)

// wire is a WebSocket on which a test says each word itself.
type wire struct {
	t  *testing.T
	ws *websocket.Conn
}

// wire opens one on the house's socket, and says the frames.
func (h *house) wire(t *testing.T, frames ...string) *wire {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", h.socket)
	}}
	ws, _, err := websocket.Dial(t.Context(), "ws://troupe/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: tr}})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(2 * messages.MaxFrame)
	t.Cleanup(func() { _ = ws.CloseNow(); tr.CloseIdleConnections() })
	w := &wire{t, ws}
	for _, f := range frames {
		w.say(f)
	}
	return w
}

func (w *wire) say(text string) {
	w.t.Helper()
	if err := w.ws.Write(w.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		w.t.Fatalf("say %.200s: %v", text, err)
	}
}

// hear waits for the next frame of a type; others are passed over.
func (w *wire) hear(kind string) map[string]any {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute) // a test that hangs says where
	defer cancel()
	var passed []string
	for {
		_, b, err := w.ws.Read(ctx)
		if err != nil {
			w.t.Fatalf("waiting for %s: %v; heard %s", kind, err, strings.Join(passed, " "))
		}
		var f map[string]any
		if err := json.Unmarshal(b, &f); err != nil {
			w.t.Fatalf("heard %.200s: %v", b, err)
		}
		if f["type"] == kind {
			return f
		}
		passed = append(passed, string(b))
	}
}

// laptop owns a folder lap:/x of a session, over connections of its own.
type laptop struct {
	dir    string
	ledger *tools.FileLedger
	owner  *owner.Owner
	ship   *client.Ownership
	ready  chan *messages.AttachFrame
}

func newLaptop(t *testing.T, session string) *laptop {
	t.Helper()
	l := &laptop{dir: t.TempDir(), ready: make(chan *messages.AttachFrame, 16)}
	var err error
	if l.ledger, err = tools.OpenLedger(t.TempDir(), time.Now); err != nil {
		t.Fatal(err)
	}
	l.owner, err = owner.New(owner.Options{Folders: map[string]string{"lap:/x": l.dir}, Trust: messages.Trust_FULL, Ledger: l.ledger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.owner.Close(); _ = l.ledger.Close() })
	l.ship = &client.Ownership{
		Session: session, Workspace: "lap:/x", Name: "lap", Trust: "full", Client: "laptop", Program: "test", Owner: l.owner,
		Attached: func(f *messages.AttachFrame) { l.ready <- f },
	}
	return l
}

// share begins to share the folder; end ends that, and gives what Own came to.
func (l *laptop) share(t *testing.T, c *client.Client) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Own(ctx, l.ship) }()
	t.Cleanup(cancel)
	select {
	case <-l.ready:
	case err := <-done:
		t.Fatalf("share: %v", err)
	}
	return func() error {
		cancel()
		return <-done
	}
}

func toolCall(session, id, tool, args string) *messages.ToSession {
	return &messages.ToSession{SessionId: session, Command: &messages.ToSession_CallTool{CallTool: &messages.CallTool{CallId: id, Tool: tool, Arguments: args}}}
}

// later asks, and gives the answer when it is there.
func later(t *testing.T, n node, m *messages.ToSession) <-chan *messages.ToolReply {
	t.Helper()
	ch := make(chan *messages.ToolReply, 1)
	go func() {
		reply, err := n.Ask(t.Context(), m)
		r, ok := reply.(*messages.ToolReply)
		if err != nil || !ok {
			t.Errorf("call: %v %v", reply, err)
		}
		ch <- r
	}()
	return ch
}
