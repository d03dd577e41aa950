package actors

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
)

// Measures are what is counted of turns and of calls of models and tools, under the names of OpenTelemetry's conventions; nil counts nothing. It is safe for concurrent use.
type Measures struct {
	tokens   metric.Int64Histogram
	duration metric.Float64Histogram
	first    metric.Float64Histogram
	turns    metric.Float64Histogram
	calls    metric.Float64Histogram

	mu     sync.Mutex
	models map[string]bool // that are counted by name
	others map[string]bool // agents and tools, the same
}

// maxMeasured is how many models are counted by name. Whoever may prompt may name any model of a provider, and each makes its own series, for ever.
const maxMeasured = 128

// otherModels is what all others are counted as, and so with agents and tools.
const otherModels = "_OTHER"

// modelName is the label of a model.
func (x *Measures) modelName(provider, name string) string {
	return x.bounded(x.models, provider+"/"+name, name)
}

func (x *Measures) bounded(known map[string]bool, key, name string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case known[key]:
	case len(known) >= maxMeasured:
		return otherModels
	default:
		known[key] = true
	}
	return name
}

// NewMeasures makes the instruments.
func NewMeasures(m metric.Meter) (*Measures, error) {
	out := &Measures{models: make(map[string]bool), others: make(map[string]bool)}
	var err error
	if out.tokens, err = m.Int64Histogram(telemetry.MetricTokenUsage, metric.WithUnit("{token}"), metric.WithDescription("Tokens of a call of a model."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)); err != nil {
		return nil, err
	}
	seconds := metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
	if out.duration, err = m.Float64Histogram(telemetry.MetricOperationDuration, metric.WithUnit("s"), metric.WithDescription("How long a call of a model took."), seconds); err != nil {
		return nil, err
	}
	if out.first, err = m.Float64Histogram(telemetry.MetricFirstChunk, metric.WithUnit("s"), metric.WithDescription("How long a call of a model took to its first answer."), seconds); err != nil {
		return nil, err
	}
	if out.calls, err = m.Float64Histogram(telemetry.MetricToolDuration, metric.WithUnit("s"), metric.WithDescription("How long a call of a tool took."), seconds); err != nil {
		return nil, err
	}
	out.turns, err = m.Float64Histogram(telemetry.MetricAgentDuration, metric.WithUnit("s"), metric.WithDescription("How long a turn took, since its input was accepted."),
		metric.WithExplicitBucketBoundaries(.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600))
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

// turnBegan is when the input of the open turn was accepted; the zero time without one, or where nobody counts.
func (w *Worker) turnBegan() time.Time {
	if t := w.state.Turn(); w.svc.Measures != nil && t != nil && len(t.Inputs) > 0 {
		return time.UnixMilli(t.Inputs[0].AtMs)
	}
	return time.Time{}
}

// counted counts the turn and the calls of tools that came to their ends with facts. A call that never ran took no time, and is none.
func (w *Worker) counted(facts []proto.Message, began time.Time) {
	x := w.svc.Measures
	if x == nil {
		return
	}
	for _, f := range facts {
		switch f := f.(type) {
		case *messages.ToolFinished:
			if f.GetDurationUs() > 0 {
				tool := w.toolName(f.GetTool())
				about := []attribute.KeyValue{telemetry.Operation.String(telemetry.OperationTool), telemetry.ToolName.String(x.bounded(x.others, "tool "+tool, tool))}
				if f.GetStatus() != messages.ToolFinished_OK {
					about = append(about, telemetry.ErrorType.String(strings.ToLower(f.GetStatus().String())))
				}
				x.calls.Record(context.Background(), (time.Duration(f.GetDurationUs()) * time.Microsecond).Seconds(), metric.WithAttributes(about...))
			}
		case *messages.TurnCompleted:
			if !began.IsZero() {
				agent := w.state.Agent()
				about := []attribute.KeyValue{telemetry.Operation.String(telemetry.OperationTurn), telemetry.AgentName.String(x.bounded(x.others, "agent "+agent, agent))}
				if f.GetOutcome() != messages.TurnCompleted_DONE {
					about = append(about, telemetry.ErrorType.String(conversation.OutcomeName(f.GetOutcome())))
				}
				x.turns.Record(context.Background(), max(0, w.svc.Now().Sub(began).Seconds()), metric.WithAttributes(about...))
			}
		}
	}
}
