// Package export makes the provider that sends a program's traces away: over OTLP (HTTP), or as lines of JSON to a writer. It is the one
// place that knows OpenTelemetry's SDK.
//
// Whoever ends a span never waits for it: finished spans stand in a queue of a fixed length, and what does not fit is dropped and counted.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Where traces go.
const (
	None    = "none"
	OTLP    = "otlp"
	Console = "console"
)

// The variables that say so; those of the exporter, of sampling and of batches are read by OpenTelemetry itself.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// Options say where traces go. The zero value sends nothing.
type Options struct {
	Exporter string    // None, OTLP or Console; "": OTLP when there is an endpoint, else None
	Endpoint string    // of OTLP, without /v1/traces; "": what the environment says, else http://localhost:4318
	Console  io.Writer // of Console
	Version  string    // of the program
	Logger   *slog.Logger
	Queue    int // finished spans that wait; default 2048
}

// Settled is what of the options and of the environment counts: an option goes before a variable.
func (o Options) Settled(getenv func(string) string) (Options, error) {
	endpoint := cmp.Or(getenv(envTracesEndpoint), getenv(envEndpoint))
	switch {
	case o.Endpoint != "":
		o.Exporter = cmp.Or(o.Exporter, OTLP)
	case strings.EqualFold(getenv(envDisabled), "true"):
		o.Exporter = None
	case o.Exporter == "" && getenv(envExporter) != "":
		o.Exporter = getenv(envExporter)
	case o.Exporter == "" && endpoint != "":
		o.Exporter = OTLP
	}
	switch o.Exporter = cmp.Or(o.Exporter, None); o.Exporter {
	case None, Console:
		return o, nil
	case OTLP:
	default:
		return o, fmt.Errorf("%s: there is no exporter %q: it is %s, %s or %s", envExporter, o.Exporter, OTLP, Console, None)
	}
	if p := cmp.Or(getenv(envTracesProtocol), getenv(envProtocol)); p != "" && p != "http/protobuf" {
		return o, fmt.Errorf("%s: traces are not sent as %q: set it to http/protobuf", envProtocol, p)
	}
	for name, text := range map[string]string{"telemetry.otlp_endpoint": o.Endpoint, envEndpoint: getenv(envEndpoint), envTracesEndpoint: getenv(envTracesEndpoint)} {
		if text == "" {
			continue
		}
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return o, fmt.Errorf("%s: it is no address of a collector: http://localhost:4318 is one", name)
		}
	}
	return o, nil
}

// Traces sends what is traced. Its zero value, and nil, send nothing.
type Traces struct {
	provider *sdktrace.TracerProvider
	out      *counted
	gate     *gate
}

// maxAttribute bounds a value in a span: the queue counts spans, not bytes.
const maxAttribute = 1024

// Open begins to send, in the background; it connects to nobody before there is a trace. Without anywhere to send to it returns nil. The
// caller ends it with Close.
func Open(ctx context.Context, o Options) (*Traces, error) {
	o.Queue = cmp.Or(o.Queue, 2048)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	// The SDK prints what it does not understand in a variable, and that may be a key.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	var to sdktrace.SpanExporter
	var err error
	switch o.Exporter {
	case OTLP:
		reach, fault := collectorClient("TRACES")
		if fault != nil {
			return nil, fmt.Errorf("open the exporter of traces: %w", fault)
		}
		opts := []otlptracehttp.Option{otlptracehttp.WithHTTPClient(reach)}
		if o.Endpoint != "" {
			opts = append(opts, otlptracehttp.WithEndpointURL(strings.TrimRight(o.Endpoint, "/")+"/v1/traces"))
		}
		to, err = otlptracehttp.New(ctx, opts...)
	case Console:
		to, err = stdouttrace.New(stdouttrace.WithWriter(o.Console))
	default:
		return nil, nil //nolint:nilnil // nothing is what was asked for
	}
	if err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	res, err := named(ctx, o.Version)
	if err != nil {
		return nil, err
	}
	t := &Traces{out: &counted{to: to, log: o.Logger}}
	batches := sdktrace.NewBatchSpanProcessor(
		t.out, sdktrace.WithMaxQueueSize(o.Queue), sdktrace.WithMaxExportBatchSize(min(o.Queue, 512)),
	)
	t.gate = &gate{SpanProcessor: batches, room: int64(o.Queue), out: t.out}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithRawSpanLimits(limits), sdktrace.WithSpanProcessor(t.gate), sdktrace.WithIDGenerator(telemetry.IDs{}), sdktrace.WithResource(res))
	return t, nil
}

// named says what program it is that sends.
func named(ctx context.Context, version string) (*resource.Resource, error) {
	res, err := resource.New(
		ctx, resource.WithAttributes(telemetry.ServiceName.String("troupe"), telemetry.ServiceVersion.String(version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv(),
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) && !errors.Is(err, resource.ErrSchemaURLConflict) {
		return nil, fmt.Errorf("name the resource of what is sent: %w", err)
	}
	return res, nil
}

// Provider is what programs make spans with; nil when nothing is sent.
func (t *Traces) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Counts says what became of the spans that ended.
func (t *Traces) Counts() (sent, failed, dropped uint64) {
	if t == nil {
		return 0, 0, 0
	}
	return t.out.sent.Load(), t.out.failed.Load(), t.gate.dropped.Load()
}

// Close sends what is left, until ctx ends at the latest; then a request that is still under way is cut off, and the rest is lost.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	err := t.gate.Shutdown(ctx) // the provider's own does nothing when ctx has ended
	if err != nil {             // the batches still wait for somebody who does not answer
		t.out.stop(ctx)
		err = fmt.Errorf("send the last traces: %w", err)
	}
	return errors.Join(err, t.provider.Shutdown(context.WithoutCancel(ctx)))
}
