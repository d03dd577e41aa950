package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// gathered is a provider that keeps the spans that end.
func gathered(t *testing.T) (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	p := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept))
	t.Cleanup(func() { _ = p.Shutdown(context.WithoutCancel(t.Context())) })
	return p, kept
}

func TestAHandlerThatPanicsIsAnErrorToTheClientInTheTraceAndInTheMetrics(t *testing.T) {
	provider, kept := gathered(t)
	b := &backend{answer: func(_ context.Context, m proto.Message) (proto.Message, error) {
		if _, create := m.(*messages.CreateSession); create {
			panic("of the test")
		}
		return &messages.Tree{}, nil
	}}
	s := serve(t, b, gateway.Options{TracerProvider: provider, Metrics: gateway.NewMetrics("v1"), Mounts: []gateway.Mount{
		{Pattern: "GET /silent", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			panic("before a word")
		})},
		{Pattern: "GET /half", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic("in the middle")
		})},
		{Pattern: "GET /begun", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic("after the header")
		})},
	}})
	res, body := s.do(t, "POST", "/api/sessions", "{}")
	refused(t, res, body, 500, messages.CodeInternal)
	res, body = s.do(t, "GET", "/silent", "")
	refused(t, res, body, 500, messages.CodeInternal)
	for _, path := range []string{"/half", "/begun"} {
		res = s.open(t.Context(), t, "GET", path, "")
		if b, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("%s: %q passes for a whole answer", path, b)
		}
		res.Body.Close()
	}
	_, text := s.do(t, "GET", "/metrics", "")
	for _, route := range []string{"POST /api/sessions", "GET /silent", "GET /half", "GET /begun"} {
		if want := `troupe_http_requests_total{code="500",route="` + route + `"} 1`; !strings.Contains(text, want) {
			t.Errorf("%s is not there", want)
		}
	}
	spans := kept.GetSpans()
	if len(spans) != 1 || spans[0].Status.Code.String() != "Error" || statusOf(spans[0]) != 500 {
		t.Errorf("the spans are %v", spans)
	}
}

func statusOf(s tracetest.SpanStub) int64 {
	for _, a := range s.Attributes {
		if a.Key == attribute.Key("http.response.status_code") {
			return a.Value.AsInt64()
		}
	}
	return 0
}

func TestWhoMayNotDoEverythingJoinsNoTraceAndHidesFromNone(t *testing.T) {
	provider, kept := gathered(t)
	const known, unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	all := gateway.Scopes()
	s := serve(t, always(&messages.SessionView{}), gateway.Options{TracerProvider: provider, Authenticate: byHeader(map[string]gateway.Principal{
		"owner": gateway.Owner(), "admin": {Name: "a", Scopes: all}, "prompter": {Name: "p", Scopes: all[:3]}, "stranger": {Name: "s", Tenant: "other", Scopes: all},
	})})
	for _, c := range []struct {
		who, method, sent string
		spans             int
		joined            bool
		links             int
	}{
		{"owner", "POST", known, 1, true, 0},
		{"admin", "POST", known, 1, true, 0},
		{"admin", "POST", unsampled, 0, true, 0},
		{"admin", "GET", known, 1, true, 0},
		{"prompter", "POST", known, 1, false, 1},
		{"prompter", "POST", unsampled, 1, false, 1},
		{"prompter", "POST", "nonsense", 1, false, 0},
		{"prompter", "POST", "", 1, false, 0},
		{"prompter", "GET", known, 0, false, 0},
		{"stranger", "POST", known, 1, false, 1},
	} {
		kept.Reset()
		path, body := "/api/sessions", "{}"
		if c.method == "GET" {
			path, body = "/api/sessions/ses_1", ""
		}
		s.do(t, c.method, path, body, "Authorization", c.who, "Traceparent", c.sent)
		spans := kept.GetSpans()
		if len(spans) != c.spans {
			t.Errorf("%s %s %q: %d spans", c.who, c.method, c.sent, len(spans))
			continue
		}
		for _, span := range spans {
			joined := span.SpanContext.TraceID().String() == "4bf92f3577b34da6a3ce929d0e0e4736"
			if joined != c.joined || span.Parent.IsValid() != c.joined || len(span.Links) != c.links {
				t.Errorf("%s %s %q: joined %v, parent %v, links %v", c.who, c.method, c.sent, joined, span.Parent, span.Links)
			}
			if c.links > 0 && (len(span.Links) == 0 || span.Links[0].SpanContext.SpanID().String() != "00f067aa0ba902b7") {
				t.Errorf("%s %s %q: the link leads elsewhere", c.who, c.method, c.sent)
			}
		}
	}
}

func TestABodyForAMountHasItsOwnTime(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
		}
		_, _ = w.Write(b)
	})
	s := serve(t, always(&messages.SessionView{}), gateway.Options{BodyTime: time.Nanosecond, Mounts: []gateway.Mount{
		{Pattern: "POST /slow", Handler: read},
		{Pattern: "POST /bounded", Handler: read, BodyTime: time.Nanosecond},
		{Pattern: "POST /ignored", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})},
	}})
	say := func(path string) (net.Conn, string) {
		c, err := net.Dial("unix", s.path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nha"); err != nil {
			t.Fatal(err)
		}
		if path == "/slow" {
			if _, err := io.WriteString(c, "lf"); err != nil {
				t.Fatal(err)
			}
			return c, ""
		}
		all, err := io.ReadAll(c) // the connection ends by itself
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return c, string(all)
	}
	for path, want := range map[string]string{"/api/sessions": "400 ", "/bounded": "408 ", "/ignored": "200 "} {
		if _, got := say(path); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%s: %q", path, got)
		}
	}
	c, _ := say("/slow")
	line := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(c, line); err != nil || string(line) != "HTTP/1.1 200" {
		t.Errorf("a slow body for a mount: %q %v", line, err)
	}
}
