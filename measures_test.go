package troupe_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/model"
)

func TestCallsOfModelsAreCountedUnderTheNamesOfTheConventions(t *testing.T) {
	ctx, reader := t.Context(), metric.NewManualReader()
	p := metric.NewMeterProvider(metric.WithReader(reader))
	defer func() { _ = p.Shutdown(context.WithoutCancel(ctx)) }()
	rt, err := troupe.New(ctx, troupe.Options{MeterProvider: p, Model: scripted(`
rules:
  - steps:
      - tool_calls: [{name: create_directory, arguments: {path: made}}, {name: no_such_tool, arguments: {}}]
      - text: looked
`)})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(ctx))
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run(ctx, "a prompt")
	if err != nil {
		t.Fatal(err)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Histogram[int64]:
				for _, x := range d.DataPoints {
					kind, _ := x.Attributes.Value("gen_ai.token.type")
					got = append(got, fmt.Sprint(m.Name, " ", kind.AsString(), " ", x.Sum))
				}
			case metricdata.Histogram[float64]:
				for _, x := range d.DataPoints {
					operation, _ := x.Attributes.Value("gen_ai.operation.name")
					got = append(got, fmt.Sprint(m.Name, " ", operation.AsString(), " ", x.Count))
				}
			}
		}
	}
	slices.Sort(got)
	want := []string{
		"gen_ai.client.operation.duration chat 2", "gen_ai.client.operation.time_to_first_chunk chat 2", "gen_ai.invoke_agent.duration invoke_agent 1", "gen_ai.execute_tool.duration execute_tool 1",
	}
	for kind, n := range map[string]int64{"input": r.Usage.InputTokens, "output": r.Usage.OutputTokens} {
		if n > 0 {
			want = append(want, fmt.Sprint("gen_ai.client.token.usage ", kind, " ", n))
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("counted is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// crashes is a model whose adapter panics.
type crashes struct{}

func (crashes) Stream(context.Context, *model.Request) iter.Seq2[model.Event, error] {
	panic("no model")
}

// lines keeps what is written.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func TestLogLinesOfATracedTurnNameItsTrace(t *testing.T) {
	ctx := t.Context()
	provider, kept := gatherTraces(t)
	log := &lines{}
	rt, err := troupe.New(ctx, troupe.Options{Model: crashes{}, TracerProvider: provider, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(ctx))
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(ctx, "a prompt"); err != nil {
		t.Fatal(err)
	}
	if want := "trace_id=" + kept.GetSpans()[0].SpanContext.TraceID().String(); !strings.Contains(lineWith(log.text(), "model adapter panicked"), want) {
		t.Errorf("%s is not in: %.300s", want, log.text())
	}
}
