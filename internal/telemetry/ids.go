package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"

	"go.opentelemetry.io/otel/trace"
)

// IDs makes the ids of spans, for a provider of OpenTelemetry's SDK (its option WithIDGenerator). They are random, except that of a turn's
// span, which follows from the turn's id, and those of a run's span and its trace, which follow from the run's: so the process that goes on with a turn after a restart goes on with its span, and what the
// process before it has sent still has its parent.
type IDs struct{}

// wanted is the key of what Turn leaves in a context.
type wanted struct{}

// OfTurn asks IDs for the id of the span of a turn, or of a run, for the one span that is begun with the context. A span that begins a trace gives
// that its id in the same way.
func OfTurn(ctx context.Context, turn string) context.Context {
	return context.WithValue(ctx, wanted{}, turn)
}

// SpanOf is the id of the span of a turn or a run.
func SpanOf(turn string) (id trace.SpanID) {
	sum := sha256.Sum256([]byte(turn))
	copy(id[:], sum[16:])
	return id
}

// NewIDs are the ids of a trace and of its first span.
func (g IDs) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	if turn, ok := ctx.Value(wanted{}).(string); ok {
		sum := sha256.Sum256([]byte(turn))
		copy(t[:], sum[:16])
		return t, SpanOf(turn)
	}
	for !t.IsValid() {
		_, _ = rand.Read(t[:]) // crypto/rand ends the process rather than fail
	}
	return t, g.NewSpanID(ctx, t)
}

// NewSpanID is the id of a further span of a trace.
func (IDs) NewSpanID(ctx context.Context, _ trace.TraceID) (s trace.SpanID) {
	if turn, ok := ctx.Value(wanted{}).(string); ok {
		return SpanOf(turn)
	}
	for !s.IsValid() {
		_, _ = rand.Read(s[:])
	}
	return s
}
