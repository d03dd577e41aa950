package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// promlint is what `promtool check metrics` runs.
func TestMetricsAreWhatPromtoolAccepts(t *testing.T) {
	m := gateway.NewMetrics("v1")
	m.TurnEnded("done", &messages.Usage{InputTokens: 3, OutputTokens: 4, CostMicroUsd: 5})
	m.Traces(func() (sent, failed, dropped uint64) { return 1, 2, 3 })
	h := gateway.New(always(&messages.Tree{}), gateway.Options{Metrics: m})
	for _, path := range []string{"/livez", "/nothing", "/metrics"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody))
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	text := w.Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v\n%s", w.Code, err, text)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "troupe_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, want := range []string{
		`troupe_turns_total{outcome="done"} 1`, `troupe_tokens_total{kind="input"} 3`, `troupe_cost_usd_total 5e-06`, `troupe_trace_spans_total{result="dropped"} 3`,
		`troupe_http_requests_total{code="200",route="GET /livez"} 1`, `troupe_build_info{version="v1"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not there:\n%s", want, text)
		}
	}
	if ids := regexp.MustCompile(`="(ses|wrk|trn|exe|apr)_`).FindString(text); ids != "" {
		t.Errorf("a label holds an id: %s", ids)
	}
	listed, err := os.ReadFile(filepath.Join("..", "internal", "telemetry", "names.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^# TYPE (troupe_\S+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(listed), `"`+name[1]+`"`) {
			t.Errorf("%s is not among the names", name[1])
		}
	}
}
