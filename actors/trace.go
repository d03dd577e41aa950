package actors

import (
	"context"
	"fmt"
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

// runTrace is where the spans of a run are: below the span that it was begun in, or else first in a trace of their own. Their ids follow from the run's, so that
// whoever works on the run, in whichever process and whenever, works in that trace. A run that was begun again after it had ended is told of once more, in a
// span of its own below the first one.
type runTrace struct {
	run, parent string
	again       int
}

func (r *PipelineRun) trace() runTrace {
	return runTrace{r.id, r.state.Started.GetTraceparent(), r.state.Again}
}

// name is what the id of the newest span is made of.
func (t runTrace) name() string {
	if t.again == 0 {
		return t.run
	}
	return fmt.Sprintf("%s#%d", t.run, t.again)
}

// runSpan begins the newest span of a run.
func (s *Services) runSpan(t runTrace, at time.Time, attrs ...attribute.KeyValue) trace.Span {
	attrs = append(attrs, telemetry.Run.String(t.run))
	above := telemetry.From(context.Background(), t.parent)
	if t.again > 0 {
		attrs = append(attrs, telemetry.Resumed.Bool(true))
		first := s.span(telemetry.OfTurn(above, t.run), telemetry.SpanRun, at).SpanContext() // it was told of when the run ended first
		if first.SpanID() == telemetry.SpanOf(t.run) {
			above = trace.ContextWithRemoteSpanContext(above, first)
		}
	}
	return s.span(telemetry.OfTurn(above, t.name()), telemetry.SpanRun, at, attrs...)
}

// inRun is what names the span of a run to the work that the run asks for. "" where nobody collects traces, or whoever does gives spans ids of
// his own: that work then begins traces of its own.
func (s *Services) inRun(t runTrace) string {
	if s.Tracer == nil {
		return ""
	}
	span := s.runSpan(t, s.Now()).SpanContext() // it is never ended: the one that is told of is made at the end
	if span.SpanID() != telemetry.SpanOf(t.name()) {
		return ""
	}
	return telemetry.Written(span)
}

// traceRun tells of a run that is over.
func (s *Services) traceRun(session string, t runTrace, begun time.Time, status string) {
	if s.Tracer == nil {
		return
	}
	class := ""
	if status != pipeline.Succeeded {
		class = status
	}
	s.ends(s.runSpan(t, begun, telemetry.Session.String(session)), class, telemetry.Outcome.String(status))
}

// tracedInput is traceInput for an input that is written down with something larger.
func (s *Services) tracedInput(f *messages.InputAccepted, session, worker string) *messages.InputAccepted {
	if span := s.traceInput(f, session, worker); span != nil {
		s.ends(span, "")
	}
	return f
}
