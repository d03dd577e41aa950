package export

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// gate lets no more spans into the batches than there is room for: what these would drop they would not count.
type gate struct {
	sdktrace.SpanProcessor
	room    int64
	out     *counted
	dropped atomic.Uint64
}

// OnEnd takes a finished span, or counts it as dropped. It never waits.
func (g *gate) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if g.out.pending.Add(1) > g.room {
		g.out.pending.Add(-1)
		g.dropped.Add(1)
		return
	}
	g.SpanProcessor.OnEnd(s)
}

// counted is an exporter that counts. A failure stands in the log when it begins, and nowhere else: the SDK would print it.
type counted struct {
	to  sdktrace.SpanExporter
	log *slog.Logger

	pending      atomic.Int64
	sent, failed atomic.Uint64
	failing      atomic.Bool
	stopping     sync.Once
}

// ExportSpans sends a batch.
func (c *counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer c.pending.Add(-int64(len(spans)))
	err := c.to.ExportSpans(ctx, spans)
	if err == nil {
		c.sent.Add(uint64(len(spans)))
		c.failing.Store(false)
		return nil
	}
	c.failed.Add(uint64(len(spans)))
	if !c.failing.Swap(true) {
		c.log.Warn("traces cannot be sent", "err", clip(err.Error()))
	}
	return nil
}

// clip shortens what a collector answered, whatever answers there.
func clip(s string) string {
	const most = 1024
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// Shutdown ends the exporter, once: the SDK and stop may both ask for it.
func (c *counted) Shutdown(ctx context.Context) error {
	c.stop(ctx)
	return nil
}

// stopTime bounds the end of the exporter, which has nothing to send any more.
const stopTime = 100 * time.Millisecond

func (c *counted) stop(ctx context.Context) {
	c.stopping.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if err := c.to.Shutdown(ctx); err != nil {
			c.log.Debug("the exporter of traces did not end well", "err", err)
		}
	})
}
