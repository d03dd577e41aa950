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
	"github.com/troupe-dev/troupe/pipeline"
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

// runSpan begins the span of a run of a pipeline, the first one of a trace. Both have ids that follow from the run's, so that whoever works on the
// run, in whichever process and whenever, works in that trace, and nothing of it is written down.
func (s *Services) runSpan(run string, at time.Time, attrs ...attribute.KeyValue) trace.Span {
	return s.span(telemetry.OfTurn(context.Background(), run), telemetry.SpanRun, at, append(attrs, telemetry.Run.String(run))...)
}

// inRun is what names the span of a run to the work that the run asks for. "" where nobody collects traces, or whoever does gives spans ids of
// his own: that work then begins traces of its own.
func (s *Services) inRun(run string) string {
	if s.Tracer == nil {
		return ""
	}
	span := s.runSpan(run, s.Now()).SpanContext() // it is never ended: the one that is told of is made at the end
	if span.SpanID() != telemetry.SpanOf(run) {
		return ""
	}
	return telemetry.Written(span)
}

// traceRun tells of a run that is over.
func (s *Services) traceRun(session, run string, begun time.Time, status string) {
	if s.Tracer == nil {
		return
	}
	class := ""
	if status != pipeline.Succeeded {
		class = status
	}
	s.ends(s.runSpan(run, begun, telemetry.Session.String(session)), class, telemetry.Outcome.String(status))
}

// tracedInput is traceInput for an input that is written down with something larger.
func (s *Services) tracedInput(f *messages.InputAccepted, session, worker string) *messages.InputAccepted {
	if span := s.traceInput(f, session, worker); span != nil {
		s.ends(span, "")
	}
	return f
}
