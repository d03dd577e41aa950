package gateway

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

// traced makes a span of each request of a route, below the one that the request names. Who only looks, and belongs to no trace,
// makes none: consoles and scrapers look all the time.
func (a *api) traced(route string, next http.HandlerFunc) http.HandlerFunc {
	if a.opts.TracerProvider == nil {
		return next
	}
	tracer := a.opts.TracerProvider.Tracer(telemetry.Scope)
	method, path, _ := strings.Cut(route, " ")
	return func(w http.ResponseWriter, r *http.Request) {
		if method == http.MethodGet && r.Header.Get(telemetry.Header) == "" {
			next(w, r)
			return
		}
		ctx, span := tracer.Start(telemetry.Arrived(r.Context(), r.Header), route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			telemetry.HTTPMethod.String(method), telemetry.HTTPRoute.String(path),
		))
		seen := &statusWriter{ResponseWriter: w}
		defer func() {
			span.SetAttributes(telemetry.HTTPStatus.Int(seen.code()))
			if seen.code() >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}()
		next(seen, r.WithContext(ctx))
	}
}
