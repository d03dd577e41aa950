package troupe

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
)

// TraceIDs makes the ids of spans for a provider of OpenTelemetry's SDK: sdktrace.WithIDGenerator(troupe.TraceIDs{}). With it the span of a
// turn has the same id in every process that works on the turn, and a trace stays one tree when the process was restarted in the middle.
type TraceIDs = telemetry.IDs

func tracer(p trace.TracerProvider) trace.Tracer {
	if p == nil {
		return nil
	}
	return p.Tracer(telemetry.Scope)
}

// measures are what a program wants to have counted. Instruments that its provider does not make are not there.
func measures(o *Options) *actors.Measures {
	if o.MeterProvider == nil {
		return nil
	}
	m, err := actors.NewMeasures(o.MeterProvider.Meter(telemetry.Scope))
	if err != nil {
		o.Logger.Warn("calls of models are not counted", "err", err)
	}
	return m
}

// carry has an input say which span it was sent in: that of ctx, unless it names one. The message stays as it is, since its
// sender may send it again.
func (rt *Runtime) carry(ctx context.Context, m proto.Message) proto.Message {
	if rt.svc.Tracer == nil {
		return m
	}
	span := telemetry.Traceparent(ctx)
	if p := traceparent(m); p == nil || *p != "" || span == "" {
		return m
	}
	m = proto.Clone(m)
	*traceparent(m) = span
	return m
}

// traceparent is where a command names the span that it was sent in; nil: nowhere.
func traceparent(m proto.Message) *string {
	switch m := m.(type) {
	case *messages.CreateSession:
		if m.GetRun() != nil {
			return &m.GetRun().Traceparent
		}
		return ofInput(m.GetFirst())
	case *messages.ToSession:
		switch {
		case m.GetSubmit() != nil:
			return ofInput(m.GetSubmit())
		case m.GetRun() != nil:
			return ofInput(m.GetRun().GetInput())
		case m.GetTakeTurn() != nil:
			return &m.GetTakeTurn().Traceparent
		case m.GetCallTool() != nil:
			return &m.GetCallTool().Traceparent
		}
	}
	return nil
}

func ofInput(m *messages.SubmitInput) *string {
	if m == nil {
		return nil
	}
	return &m.Traceparent
}
