package actors

import (
	"context"
	"fmt"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/troupe-dev/troupe/model"
)

// TestModelsThatAnybodyNamesMakeABoundedNumberOfSeries: a name comes with a prompt, and a series stays.
func TestModelsThatAnybodyNamesMakeABoundedNumberOfSeries(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	m, err := NewMeasures(provider.Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(&Services{Measures: m})
	for i := range 10 * maxMeasured {
		for range 2 {
			w.measured(&generation{provider: "p", model: &Resolved{Name: fmt.Sprint("m", i)}}, &generated{completion: &model.Completion{}})
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	calls := uint64(0)
	h, ok := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64])
	if !ok || len(h.DataPoints) != maxMeasured+1 {
		t.Fatalf("%T: %d series", all.ScopeMetrics[0].Metrics[0].Data, len(h.DataPoints))
	}
	for _, p := range h.DataPoints {
		calls += p.Count
	}
	if calls != 20*maxMeasured {
		t.Errorf("%d calls are counted", calls)
	}
}
