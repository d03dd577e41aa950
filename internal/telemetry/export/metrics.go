package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	prom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

const (
	envMetricsExporter = "OTEL_METRICS_EXPORTER"
	envMetricsEndpoint = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
	envMetricsProtocol = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"
)

// MetricsSettled is Settled for metrics: OTLP or None.
func (o Options) MetricsSettled(getenv func(string) string) (Options, error) {
	names := map[string]string{envTracesEndpoint: envMetricsEndpoint, envExporter: envMetricsExporter, envTracesProtocol: envMetricsProtocol}
	out, err := o.Settled(func(name string) string { return getenv(cmp.Or(names[name], name)) })
	if err == nil && out.Exporter == Console {
		return out, fmt.Errorf("%s: metrics are not written to the console: it is %s or %s", envMetricsExporter, OTLP, None)
	}
	if err != nil {
		err = errors.New(strings.NewReplacer(envTracesEndpoint, envMetricsEndpoint, envExporter, envMetricsExporter, "traces", "metrics").Replace(err.Error()))
	}
	return out, err
}

// Metrics counts for others to read, or sends what it counts every minute. Nil does neither.
type Metrics struct{ provider *sdkmetric.MeterProvider }

// OpenMetrics begins to count: into a registry, unless that is nil, and over OTLP where the options say so. Without either it returns nil. The caller ends it with Close.
func OpenMetrics(ctx context.Context, o Options, into prometheus.Registerer) (*Metrics, error) {
	otel.SetLogger(logr.Discard()) // as for traces
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	var readers []sdkmetric.Option
	if into != nil {
		r, err := prom.New(prom.WithRegisterer(into), prom.WithoutScopeInfo(), prom.WithoutTargetInfo(), prom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
		if err != nil {
			return nil, fmt.Errorf("show what is counted: %w", err)
		}
		readers = append(readers, sdkmetric.WithReader(r))
	}
	if o.Exporter == OTLP {
		reach, err := collectorClient("METRICS")
		if err != nil {
			return nil, fmt.Errorf("open the exporter of metrics: %w", err)
		}
		opts := []otlpmetrichttp.Option{otlpmetrichttp.WithHTTPClient(reach)}
		if o.Endpoint != "" {
			opts = append(opts, otlpmetrichttp.WithEndpointURL(strings.TrimRight(o.Endpoint, "/")+"/v1/metrics"))
		}
		to, err := otlpmetrichttp.New(ctx, opts...)
		if err != nil {
			return nil, fmt.Errorf("open the exporter of metrics: %w", err)
		}
		readers = append(readers, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(to)))
	}
	if len(readers) == 0 {
		return nil, nil //nolint:nilnil // nothing is what was asked for
	}
	res, err := named(ctx, o.Version)
	if err != nil {
		return nil, err
	}
	return &Metrics{sdkmetric.NewMeterProvider(append(readers, sdkmetric.WithResource(res))...)}, nil
}

// Provider is what programs make instruments with; nil when nothing is counted.
func (m *Metrics) Provider() metric.MeterProvider {
	if m == nil {
		return nil
	}
	return m.provider
}

// Close sends what is left, until ctx ends at the latest.
func (m *Metrics) Close(ctx context.Context) error {
	if m == nil {
		return nil
	}
	return m.provider.Shutdown(ctx)
}
