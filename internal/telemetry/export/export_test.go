package export

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

// end makes n spans and ends them.
func end(t *testing.T, traces *Traces, n int) {
	t.Helper()
	for range n {
		_, span := traces.Provider().Tracer(telemetry.Scope).Start(t.Context(), "a span", trace.WithAttributes(telemetry.Turn.String("trn_1")))
		span.End()
	}
}

func TestTracesArriveAtACollector(t *testing.T) {
	arrived := make(chan *collector.ExportTraceServiceRequest, 8)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		m := &collector.ExportTraceServiceRequest{}
		if err != nil || proto.Unmarshal(body, m) != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		arrived <- m
	}))
	defer srv.Close()
	o, err := Options{Endpoint: srv.URL, Version: "v1"}.Settled(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	traces, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	end(t, traces, 3)
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := <-arrived
	spans := m.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
	if len(spans) != 3 || spans[0].GetName() != "a span" || spans[0].GetAttributes()[0].GetValue().GetStringValue() != "trn_1" {
		t.Errorf("%v", spans)
	}
	if text := m.GetResourceSpans()[0].GetResource().String(); !strings.Contains(text, `"troupe"`) || !strings.Contains(text, `"v1"`) {
		t.Errorf("the resource is %s", text)
	}
	if sent, failed, dropped := traces.Counts(); sent != 3 || failed != 0 || dropped != 0 {
		t.Errorf("%d sent, %d failed, %d dropped", sent, failed, dropped)
	}
}

func TestACollectorThatHangsHoldsNobodyUp(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	reached := make(chan struct{}, 8)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // then the server notices that the client left
		reached <- struct{}{}
		<-r.Context().Done()
	}))
	defer srv.Close()
	traces, err := Open(t.Context(), Options{Exporter: OTLP, Endpoint: srv.URL, Queue: 4})
	if err != nil {
		t.Fatal(err)
	}
	end(t, traces, 4) // a whole batch
	<-reached
	end(t, traces, 96)
	if sent, failed, dropped := traces.Counts(); sent != 0 || failed != 0 || dropped != 96 {
		t.Errorf("%d sent, %d failed, %d dropped", sent, failed, dropped)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := traces.Close(over); err == nil {
		t.Error("what was lost is not told")
	}
}

func TestACollectorThatIsNotThereIsCountedAndLoggedOnce(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, strings.Repeat("a page ", 100_000))
	}))
	defer srv.Close()
	var log bytes.Buffer
	traces, err := Open(t.Context(), Options{Exporter: OTLP, Endpoint: srv.URL, Queue: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(2) {
		end(t, traces, 2) // a whole batch
		if err := traces.provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, failed, _ := traces.Counts(); failed != 2*(n+1) {
			t.Errorf("%d failed after %d batches", failed, n+1)
		}
	}
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sent, failed, dropped := traces.Counts(); sent != 0 || failed != 4 || dropped != 0 {
		t.Errorf("%d sent, %d failed, %d dropped", sent, failed, dropped)
	}
	if lines := strings.Count(log.String(), "traces cannot be sent"); lines != 1 || log.Len() > 2000 {
		t.Errorf("%d lines, %d bytes: %.300s", lines, log.Len(), log.String())
	}
}

func TestWhatStandsInVariablesIsNotPrinted(t *testing.T) {
	if os.Getenv("TROUPE_TEST_CHILD") != "" {
		traces, err := Open(t.Context(), Options{Exporter: OTLP, Endpoint: "http://127.0.0.1:1"})
		if err == nil {
			_ = traces.Close(t.Context())
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestWhatStandsInVariablesIsNotPrinted$", "-test.v")
	cmd.Env = append(os.Environ(), "TROUPE_TEST_CHILD=1", "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer s3cret%zz,another5ecret")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: TestWhatStandsInVariablesIsNotPrinted") || strings.Contains(string(out), "ecret") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestAValueInASpanIsBounded(t *testing.T) {
	var out strings.Builder
	traces, err := Open(t.Context(), Options{Exporter: Console, Console: &out})
	if err != nil {
		t.Fatal(err)
	}
	_, span := traces.Provider().Tracer(telemetry.Scope).Start(t.Context(), "a span", trace.WithAttributes(telemetry.Turn.String(strings.Repeat("x", 1<<20))))
	span.End()
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "x"); n < 500 || n > 2000 {
		t.Errorf("%d bytes of it are sent", n)
	}
}

func TestTracesOnTheConsoleAreLinesOfJSON(t *testing.T) {
	var out strings.Builder
	traces, err := Open(t.Context(), Options{Exporter: Console, Console: &out})
	if err != nil {
		t.Fatal(err)
	}
	end(t, traces, 1)
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), `{"Name":"a span"`) {
		t.Errorf("%s", out.String())
	}
}

func TestWhereTracesGo(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint string
		env      map[string]string
		exporter string
		fault    string
	}{
		"nobody asks":               {exporter: None},
		"an endpoint":               {env: map[string]string{envEndpoint: "http://h:1"}, exporter: OTLP},
		"one for traces":            {env: map[string]string{envTracesEndpoint: "http://h:1/x"}, exporter: OTLP},
		"an endpoint, and none":     {env: map[string]string{envEndpoint: "http://h:1", envExporter: "none"}, exporter: None},
		"the usual collector":       {env: map[string]string{envExporter: "otlp"}, exporter: OTLP},
		"the console":               {env: map[string]string{envExporter: "console"}, exporter: Console},
		"the configuration":         {endpoint: "http://h:1", exporter: OTLP},
		"it goes before variables":  {endpoint: "http://h:1", env: map[string]string{envExporter: "none"}, exporter: OTLP},
		"disabled":                  {env: map[string]string{envEndpoint: "http://h:1", envDisabled: "true"}, exporter: None},
		"an exporter of others":     {env: map[string]string{envExporter: "zipkin"}, fault: `there is no exporter "zipkin"`},
		"another protocol":          {env: map[string]string{envEndpoint: "http://h:1", envProtocol: "grpc"}, fault: "http/protobuf"},
		"no address":                {env: map[string]string{envEndpoint: "collector:4318"}, fault: envEndpoint},
		"no address, and not asked": {env: map[string]string{envEndpoint: "collector:4318", envExporter: "none"}, exporter: None},
	} {
		o, err := Options{Endpoint: c.endpoint}.Settled(func(name string) string { return c.env[name] })
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %v", name, err)
		case c.fault == "" && (err != nil || o.Exporter != c.exporter):
			t.Errorf("%s: %q %v", name, o.Exporter, err)
		}
	}
	traces, err := Open(t.Context(), Options{Exporter: None})
	if err != nil || traces.Provider() != nil || traces.Close(t.Context()) != nil {
		t.Errorf("%v %v", traces, err)
	}
}
