package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend writes down what it is asked and answers as it is told.
type backend struct {
	answer func(ctx context.Context, m proto.Message) (proto.Message, error)
	events func(ctx context.Context, session string, after uint64) iter.Seq2[*messages.Event, error]

	mu    sync.Mutex
	asked []proto.Message
}

func (b *backend) Ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	b.mu.Lock()
	b.asked = append(b.asked, m)
	b.mu.Unlock()
	if b.answer != nil {
		return b.answer(ctx, m)
	}
	if m, belongs := m.(*messages.WhoseIs); belongs {
		return &messages.Belongs{SessionId: m.GetId()}, nil
	}
	return &messages.Workers{}, nil
}

func (b *backend) Events(ctx context.Context, session string, after uint64) iter.Seq2[*messages.Event, error] {
	return b.events(ctx, session, after)
}

func (b *backend) questions() []proto.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]proto.Message(nil), b.asked...)
}

// always answers everything with the same reply.
func always(reply proto.Message) *backend {
	return &backend{answer: func(context.Context, proto.Message) (proto.Message, error) { return reply, nil }}
}

// server is a gateway on a real socket.
type server struct {
	path   string
	client *http.Client
	stop   func() error // ends it and says how; may be called twice
}

func serve(t *testing.T, b gateway.Backend, o gateway.Options) *server {
	t.Helper()
	l, path, err := gateway.ListenSocket(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gateway.Serve(ctx, l, gateway.New(b, o)) }()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	s := &server{path: path, client: &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	s.stop = sync.OnceValue(func() error {
		cancel()
		err := <-done
		tr.CloseIdleConnections()
		return err
	})
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// open sends a request and hands out the response with its body still open.
func (s *server) open(ctx context.Context, t *testing.T, method, path, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://troupe"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

// do sends a request and reads the whole answer.
func (s *server) do(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	res := s.open(t.Context(), t, method, path, body, header...)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return res, strings.TrimSuffix(string(b), "\n")
}

// reply is an answer that came while the test did something else.
type reply struct {
	status int
	kind   string
	body   string
	err    error
}

// later sends a request and delivers its answer.
func (s *server) later(ctx context.Context, method, path, body string) <-chan reply {
	got := make(chan reply, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, method, "http://troupe"+path, strings.NewReader(body))
		if err != nil {
			got <- reply{err: err}
			return
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := s.client.Do(req)
		if err != nil {
			got <- reply{err: err}
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		got <- reply{res.StatusCode, res.Header.Get("Content-Type"), strings.TrimSuffix(string(b), "\n"), err}
	}()
	return got
}

// refused checks that an answer is a problem with a status and code, and returns it.
func refused(t *testing.T, res *http.Response, body string, status int, code string) messages.ProblemJSON {
	t.Helper()
	var p messages.ProblemJSON
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%s %s: %s: %s is no problem: %v", res.Request.Method, res.Request.URL, res.Status, body, err)
	}
	if res.StatusCode != status || p.Status != status || p.Code != code || p.Detail == "" || p.Title != http.StatusText(status) ||
		res.Header.Get("Content-Type") != messages.ProblemType {
		t.Errorf("%s %s: %s %s, want %d %s", res.Request.Method, res.Request.URL, res.Status, body, status, code)
	}
	return p
}
