package telemetry

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Header is the header of W3C Trace Context that names the caller's span.
const Header = "Traceparent"

// Traceparent writes the span of ctx as the header of W3C Trace Context has it; "" when there is none.
func Traceparent(ctx context.Context) string { return Written(trace.SpanContextFromContext(ctx)) }

// Written writes a span's context as Traceparent does.
func Written(s trace.SpanContext) string {
	if !s.IsValid() {
		return ""
	}
	id, span, flags := s.TraceID(), s.SpanID(), byte(s.TraceFlags()&trace.FlagsSampled)
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, id[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, span[:])
	b = append(b, '-')
	return string(hex.AppendEncode(b, []byte{flags}))
}

// From gives ctx the span that a traceparent names as the parent of what is begun with it. What is empty or no
// traceparent changes nothing.
func From(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{strings.ToLower(Header): traceparent})
}

// Arrived gives ctx the span that a request says it belongs to.
func Arrived(ctx context.Context, h http.Header) context.Context { return From(ctx, h.Get(Header)) }

// Named is the span that a request says it belongs to; not a valid one when it names none.
func Named(ctx context.Context, h http.Header) trace.SpanContext {
	return trace.SpanContextFromContext(Arrived(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), h))
}

// TraceID is the id of the trace that ctx belongs to; "" when it belongs to none.
func TraceID(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}

// TraceOf is the id of the trace that a traceparent names; "" when it names none.
func TraceOf(traceparent string) string {
	_, rest, _ := strings.Cut(traceparent, "-")
	id, _, _ := strings.Cut(rest, "-")
	if t, err := trace.TraceIDFromHex(id); err == nil && t.IsValid() {
		return id
	}
	return ""
}

// Leave writes the span of ctx, if it has one, into the header of a request.
func Leave(ctx context.Context, h http.Header) {
	if s := Traceparent(ctx); s != "" {
		h.Set(Header, s)
	}
}

// Retried notes in the span of ctx, if it has one, that the attempt-th request failed and goes out again after a pause.
func Retried(ctx context.Context, attempt int, class string, pause time.Duration) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(EventRetry, trace.WithAttributes(Attempt.Int(attempt), ErrorType.String(class), PauseTime.Float64(pause.Seconds())))
	}
}
