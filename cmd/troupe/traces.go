package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/internal/telemetry/export"
)

// flushTime bounds what is sent of traces when a command ends; flushTimeServed when a server does.
const (
	flushTime       = 500 * time.Millisecond
	flushTimeServed = 3 * time.Second
)

// tracing is where traces are sent: to the endpoint of the configuration, else where the standard variables say.
func (a *app) tracing(loaded *config.Loaded, log *slog.Logger) (export.Options, error) {
	o, err := export.Options{
		Endpoint: loaded.Config.Telemetry.OTLPEndpoint, Console: a.err, Version: readVersion().Version, Logger: log,
	}.Settled(func(name string) string { return a.env[name] })
	if err != nil {
		return o, &exitError{code: exitConfig, what: err.Error(), hint: "without it nothing is traced; see docs/telemetry.md", err: err}
	}
	return o, nil
}

// openTraces begins to send traces, for a house that runs agents; nil when nobody asks for them.
func (a *app) openTraces(ctx context.Context, in opening, log *slog.Logger) (*export.Traces, error) {
	if !in.work || in.alone {
		return nil, nil //nolint:nilnil // nil sends nothing
	}
	o, err := a.tracing(in.loaded, log)
	if err != nil {
		return nil, err
	}
	return export.Open(ctx, o)
}

// openMetrics begins to count calls of models: for who reads /metrics, and for a collector.
func (a *app) openMetrics(ctx context.Context, in opening) (*export.Metrics, error) {
	if !in.work || in.alone {
		return nil, nil //nolint:nilnil // nil counts nothing
	}
	o, err := export.Options{
		Endpoint: in.loaded.Config.Telemetry.OTLPEndpoint, Version: readVersion().Version,
	}.MetricsSettled(func(name string) string { return a.env[name] })
	if err != nil {
		return nil, &exitError{code: exitConfig, what: err.Error(), hint: "without it nothing is sent; see docs/telemetry.md", err: err}
	}
	return export.OpenMetrics(ctx, o, in.registry)
}

// closeTraces sends what is left, within bounds. A collector that does not answer is no reason to fail.
func (h *house) closeTraces(ctx context.Context) {
	bound := flushTime
	if h.ending > 0 {
		bound = flushTimeServed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	if err := errors.Join(h.traces.Close(ctx), h.metrics.Close(ctx)); err != nil && h.log != nil {
		h.log.logger.Warn("the last traces or metrics are lost", "err", err)
	}
}

// abandoned ends traces of a house that could not be opened.
func abandoned(ctx context.Context, t *export.Traces, m *export.Metrics, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	return errors.Join(err, t.Close(ctx), m.Close(ctx))
}
