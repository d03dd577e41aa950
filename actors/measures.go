package actors

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Measures are what is counted of model calls, under the names of OpenTelemetry's conventions; nil counts nothing. It is safe for concurrent use.
type Measures struct {
	tokens   metric.Int64Histogram
	duration metric.Float64Histogram
	first    metric.Float64Histogram

	mu     sync.Mutex
	models map[string]bool // that are counted by name
}

// maxMeasured is how many models are counted by name. Whoever may prompt may name any model of a provider, and each makes its own series, for ever.
const maxMeasured = 128

// otherModels is what all others are counted as.
const otherModels = "_OTHER"

// modelName is the label of a model.
func (x *Measures) modelName(provider, name string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch key := provider + "/" + name; {
	case x.models[key]:
	case len(x.models) >= maxMeasured:
		return otherModels
	default:
		x.models[key] = true
	}
	return name
}

// NewMeasures makes the instruments.
func NewMeasures(m metric.Meter) (*Measures, error) {
	out := &Measures{models: make(map[string]bool)}
	var err error
	if out.tokens, err = m.Int64Histogram(telemetry.MetricTokenUsage, metric.WithUnit("{token}"), metric.WithDescription("Tokens of a call of a model."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)); err != nil {
		return nil, err
	}
	seconds := metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
	if out.duration, err = m.Float64Histogram(telemetry.MetricOperationDuration, metric.WithUnit("s"), metric.WithDescription("How long a call of a model took."), seconds); err != nil {
		return nil, err
	}
	out.first, err = m.Float64Histogram(telemetry.MetricFirstChunk, metric.WithUnit("s"), metric.WithDescription("How long a call of a model took to its first answer."), seconds)
	return out, err
}

// measured counts a model call. Providers are those of the configuration; models are bounded.
func (w *Worker) measured(g *generation, m *generated) {
	x := w.svc.Measures
	if x == nil {
		return
	}
	ctx := context.Background()
	about := []attribute.KeyValue{
		telemetry.Operation.String(telemetry.OperationChat), telemetry.Provider.String(g.provider), telemetry.RequestModel.String(x.modelName(g.provider, g.model.Name)),
	}
	timed := about
	if class := classOf(m.err); class != "" {
		timed = append(timed[:len(timed):len(timed)], telemetry.ErrorType.String(class))
	}
	x.duration.Record(ctx, m.took.Seconds(), metric.WithAttributes(timed...))
	if m.first > 0 {
		x.first.Record(ctx, m.first.Seconds(), metric.WithAttributes(about...))
	}
	u := m.completion.Usage
	for kind, n := range map[string]int64{"input": u.GetInputTokens(), "output": u.GetOutputTokens()} {
		if n > 0 {
			x.tokens.Record(ctx, n, metric.WithAttributes(append(about[:len(about):len(about)], telemetry.TokenType.String(kind))...))
		}
	}
}
