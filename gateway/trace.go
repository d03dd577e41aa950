package gateway

import (
	"log/slog"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

// logOf names the trace that a request belongs to, when it has one.
func (a *api) logOf(r *http.Request) *slog.Logger {
	if id := telemetry.TraceID(r.Context()); id != "" {
		return a.log.With("trace_id", id)
	}
	return a.log
}

// traced makes a span of each request of a route, below the one that the request names. Who only looks, and belongs to no trace,
// makes none: consoles and scrapers look all the time.
//
// Only who may do everything here (the owner, and scope admin of the default tenant) is believed that its request belongs to a trace: anybody else could hide what it does, by a flag that says that nothing is
// to be kept, or put spans into somebody else's trace. The others' requests begin a trace of their own, with a link to the span that they name.
func (a *api) traced(route string, next http.HandlerFunc) http.HandlerFunc {
	if a.opts.TracerProvider == nil {
		return next
	}
	tracer := a.opts.TracerProvider.Tracer(telemetry.Scope)
	method, path, _ := strings.Cut(route, " ")
	return func(w http.ResponseWriter, r *http.Request) {
		trusted := wholeStore(PrincipalOf(r.Context())) == nil
		if method == http.MethodGet && (!trusted || r.Header.Get(telemetry.Header) == "") {
			next(w, r)
			return
		}
		ctx, opts := r.Context(), []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			telemetry.HTTPMethod.String(method), telemetry.HTTPRoute.String(path),
		)}
		if named := telemetry.Named(ctx, r.Header); trusted {
			ctx = telemetry.Arrived(ctx, r.Header)
		} else if named.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: named}))
		}
		ctx, span := tracer.Start(ctx, route, opts...)
		seen, done := &statusWriter{ResponseWriter: w}, false
		defer func() {
			code := seen.code(done)
			span.SetAttributes(telemetry.HTTPStatus.Int(code))
			if code >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}()
		next(seen, r.WithContext(ctx))
		done = true
	}
}
