package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collected is a collector that keeps what it gets.
type collected struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*spans.Span
}

func collect(t *testing.T) *collected {
	t.Helper()
	c := &collected{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.URL.Path != "/v1/traces" { // metrics
			return
		}
		m := &collector.ExportTraceServiceRequest{}
		if err != nil || proto.Unmarshal(body, m) != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, res := range m.GetResourceSpans() {
			for _, scope := range res.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// named are the spans of a name.
func (c *collected) named(name string) (out []*spans.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.GetName() == name {
			out = append(out, s)
		}
	}
	return out
}

func TestATraceIsOneTreeWhenTheServerWasKilledInItsMiddle(t *testing.T) {
	m, c := newMachine(t), collect(t)
	m.env = append(m.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_BSP_SCHEDULE_DELAY=20")
	m.killedAndBack(func() {
		m.eventually("the call of the model is not told of", func() bool { return len(c.named("troupe.append")) >= 2 })
	})
	turns := c.named("invoke_agent default")
	if len(turns) != 1 {
		t.Fatalf("%d spans of the turn", len(turns))
	}
	known := make(map[string]bool)
	for _, span := range c.spans {
		known[hex.EncodeToString(span.GetSpanId())] = true
	}
	roots := 0
	for _, span := range c.spans {
		if string(span.GetTraceId()) != string(turns[0].GetTraceId()) {
			continue // other requests
		}
		parent := hex.EncodeToString(span.GetParentSpanId())
		if parent == "" {
			roots++
		} else if !known[parent] {
			t.Errorf("the parent of %s is not there", span.GetName())
		}
	}
	if calls := c.named("execute_tool exec"); roots != 1 || len(c.named("troupe.input")) != 1 || len(calls) == 0 {
		t.Errorf("%d roots, %d calls", roots, len(calls))
	}
}

func TestACollectorThatHangsHoldsNeitherATurnNorTheEndOfAServerUp(t *testing.T) {
	m := newMachine(t)
	reached := make(chan struct{}, 64)
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // then it is noticed that the client left
		reached <- struct{}{}
		<-r.Context().Done()
	}))
	defer hung.Close()
	m.env = append(m.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+hung.URL, "OTEL_BSP_SCHEDULE_DELAY=20")
	s := m.serve()
	for range 2 {
		if code, out, stderr := m.run("run", "hello", "-C", "a", "-m", "scripted/echo", "--server", s.url); code != 0 || out != "You said: hello\n" {
			t.Fatalf("run ended with %d: %s%s", code, out, stderr)
		}
	}
	<-reached
	if got := s.get("/metrics"); got != 200 {
		t.Errorf("/metrics answers %d", got)
	}
	s.signal(syscall.SIGTERM)
	if code, _ := s.wait(); code != 0 {
		t.Errorf("the server ended with %d: %s", code, s.stderr.String())
	}
	log, err := os.ReadFile(filepath.Join(m.home, ".local/state/troupe/troupe.log"))
	if err != nil || !strings.Contains(string(log), "the last traces or metrics are lost") {
		t.Errorf("the log does not say that traces were lost: %v\n%s", err, log)
	}
}
