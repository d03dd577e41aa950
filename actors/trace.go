package actors

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
)

// span begins a span at a time of this house's clock.
func (s *Services) span(ctx context.Context, name string, at time.Time, attrs ...attribute.KeyValue) trace.Span {
	_, span := s.Tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithAttributes(attrs...))
	return span
}

// ends ends a span now, as failed when class is not empty.
func (s *Services) ends(span trace.Span, class string, attrs ...attribute.KeyValue) {
	if class != "" {
		span.SetStatus(codes.Error, "")
		attrs = append(attrs, telemetry.ErrorType.String(class))
	}
	span.SetAttributes(attrs...)
	span.End(trace.WithTimestamp(s.Now()))
}

// traceInput begins the span of an input's acceptance, below the span that its sender named, and puts its own in that one's place: the
// turn belongs there, whichever process works on it. Without a tracer the journal keeps nothing of it.
func (s *Services) traceInput(f *messages.InputAccepted, session, worker string) trace.Span {
	if s.Tracer == nil {
		f.Traceparent = ""
		return nil
	}
	span := s.span(
		telemetry.From(context.Background(), f.GetTraceparent()), telemetry.SpanInput, s.Now(),
		telemetry.Session.String(session), telemetry.Worker.String(worker), telemetry.Conversation.String(session),
		telemetry.Mode.String(strings.ToLower(f.GetMode().String())), telemetry.Origin.String(strings.ToLower(f.GetOrigin().String())),
	)
	f.Traceparent = telemetry.Written(span.SpanContext())
	return span
}

// tracedInput is traceInput for an input that is written down with something larger.
func (s *Services) tracedInput(f *messages.InputAccepted, session, worker string) *messages.InputAccepted {
	if span := s.traceInput(f, session, worker); span != nil {
		s.ends(span, "")
	}
	return f
}
