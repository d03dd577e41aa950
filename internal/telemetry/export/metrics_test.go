package export

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

func TestWhatIsCountedArrivesAtACollectorAndInARegistry(t *testing.T) {
	arrived := make(chan *collector.ExportMetricsServiceRequest, 8)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		m := &collector.ExportMetricsServiceRequest{}
		if err != nil || proto.Unmarshal(body, m) != nil || r.URL.Path != "/v1/metrics" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		arrived <- m
	}))
	defer srv.Close()
	o, err := Options{Endpoint: srv.URL}.MetricsSettled(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m, err := OpenMetrics(t.Context(), o, registry)
	if err != nil {
		t.Fatal(err)
	}
	h, err := m.Provider().Meter(telemetry.Scope).Int64Histogram(telemetry.MetricTokenUsage, metric.WithUnit("{token}"))
	if err != nil {
		t.Fatal(err)
	}
	h.Record(t.Context(), 7, metric.WithAttributes(telemetry.TokenType.String("input")))
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "gen_ai_client_token_usage" {
		t.Errorf("%v %v", families, err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := (<-arrived).GetResourceMetrics()[0].GetScopeMetrics()[0].GetMetrics()
	if len(got) != 1 || got[0].GetName() != telemetry.MetricTokenUsage || got[0].GetHistogram().GetDataPoints()[0].GetSum() != 7 {
		t.Errorf("%v", got)
	}
}

func TestAnAnswerOfACollectorIsReadUpToABound(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(make([]byte, 10*maxAnswer))
	}))
	defer srv.Close()
	c, err := collectorClient("TRACES")
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || len(b) != maxAnswer {
		t.Errorf("%d bytes are read, %v", len(b), err)
	}
}

func TestWhatCannotReachACollectorIsToldAtTheStart(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_CERTIFICATE": t.TempDir() + "/none", "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE": "none", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if c, err := collectorClient("TRACES"); err == nil {
				t.Errorf("it passes: %v", c)
			}
		})
	}
}
