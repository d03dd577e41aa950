package gateway

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
)

// Metrics are what GET /metrics tells, in a registry of its own. No label holds an id, a name or an address that came with a request: routes are
// those of the table. One Metrics may serve several handlers.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	time     *prometheus.HistogramVec
	open     prometheus.Gauge
	turns    *prometheus.CounterVec
	tokens   *prometheus.CounterVec
	cost     prometheus.Counter
	refused  prometheus.Counter
}

// NewMetrics makes the metrics of a process of a version.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: telemetry.MetricRequests, Help: "Requests that were answered."}, []string{"route", "code"}),
		time: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: telemetry.MetricRequestTime, Help: "How long requests took; streams and long polls count when they end.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60},
		}, []string{"route"}),
		open:   prometheus.NewGauge(prometheus.GaugeOpts{Name: telemetry.MetricRequestsOpen, Help: "Requests under way, streams and long polls among them."}),
		turns:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: telemetry.MetricTurns, Help: "Turns that ended, by outcome."}, []string{"outcome"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: telemetry.MetricTokens, Help: "Tokens of turns that ended."}, []string{"kind"}),
		cost:   prometheus.NewCounter(prometheus.CounterOpts{Name: telemetry.MetricCost, Help: "Cost of turns that ended, in US dollars."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: telemetry.MetricConnectionsRefused, Help: "Connections that were closed because there were too many, of all or of one address.",
		}),
	}
	built := prometheus.NewGauge(prometheus.GaugeOpts{Name: telemetry.MetricBuild, Help: "1; the version is in the label.", ConstLabels: prometheus.Labels{"version": version}})
	built.Set(1)
	m.registry.MustRegister(m.requests, m.time, m.open, m.turns, m.tokens, m.cost, m.refused, built,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Registry takes what others count, for GET /metrics; nil takes nothing.
func (m *Metrics) Registry() prometheus.Registerer {
	if m == nil {
		return nil
	}
	return m.registry
}

// TurnEnded counts a turn; nil counts none.
func (m *Metrics) TurnEnded(outcome string, u *messages.Usage) {
	if m == nil {
		return
	}
	m.turns.WithLabelValues(outcome).Inc()
	m.tokens.WithLabelValues("input").Add(float64(max(u.GetInputTokens(), 0)))
	m.tokens.WithLabelValues("output").Add(float64(max(u.GetOutputTokens(), 0)))
	m.cost.Add(max(float64(u.GetCostMicroUsd())/1e6, 0))
}

// ConnectionRefused counts a connection for which there was no place; nil counts none.
func (m *Metrics) ConnectionRefused() {
	if m != nil {
		m.refused.Inc()
	}
}

// Traces tells what became of the spans that ended, as counts gives it.
func (m *Metrics) Traces(counts func() (sent, failed, dropped uint64)) {
	for result, of := range map[string]func() uint64{
		"sent":    func() uint64 { sent, _, _ := counts(); return sent },
		"failed":  func() uint64 { _, failed, _ := counts(); return failed },
		"dropped": func() uint64 { _, _, dropped := counts(); return dropped },
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: telemetry.MetricSpans, Help: "Spans of traces that ended: sent, refused by who was to get them, or dropped since too many waited.", ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(of()) }))
	}
}

// measured counts the requests of one route.
func (m *Metrics) measured(route string, next http.HandlerFunc) http.HandlerFunc {
	if m == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		begun, seen, done := time.Now(), &statusWriter{ResponseWriter: w}, false
		m.open.Inc()
		defer func() {
			m.open.Dec()
			m.time.WithLabelValues(route).Observe(time.Since(begun).Seconds())
			m.requests.WithLabelValues(route, strconv.Itoa(seen.code(done))).Inc()
		}()
		next(seen, r)
		done = true
	}
}

// scrapeTime bounds the look at the live tree for a scrape.
const scrapeTime = 2 * time.Second

// metrics tells what was counted, and who is in memory at this moment.
func (a *api) metrics(w http.ResponseWriter, r *http.Request) {
	if a.opts.Metrics == nil {
		a.problem(w, r, 0, messages.Fail(messages.CodeNotFound, "nothing is counted here", ""))
		return
	}
	live := prometheus.NewRegistry()
	live.MustRegister(a.actors(r.Context())...)
	all := prometheus.Gatherers{a.opts.Metrics.registry, live}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// actors counts the children of the root, as it knows them.
func (a *api) actors(ctx context.Context) []prometheus.Collector {
	count := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: telemetry.MetricActors, Help: "Actors in memory, by kind and state."}, []string{"kind", "state"})
	restarts := prometheus.NewGauge(prometheus.GaugeOpts{Name: telemetry.MetricRestarts, Help: "Restarts of the actors in memory."})
	live := prometheus.NewGauge(prometheus.GaugeOpts{Name: telemetry.MetricMemory, Help: "Heap and stacks of the process, in bytes; divided by the sessions in memory it is what one takes."})
	room := prometheus.NewGauge(prometheus.GaugeOpts{Name: telemetry.MetricRoom, Help: "Sessions that may be in memory at the same time; 0 is no limit."})
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	t, err := ask[*messages.Tree](ctx, &api{backend: a.raw}, &messages.DescribeTree{})
	if err != nil {
		a.log.Debug("scrape without actors", "err", err)
	}
	for _, c := range t.GetRoot().GetChildren() {
		count.WithLabelValues(c.GetKind(), c.GetState()).Inc()
		restarts.Add(float64(c.GetRestarts()))
	}
	live.Set(float64(t.GetRoot().GetMemoryBytes()))
	room.Set(float64(t.GetRoot().GetRoom()))
	return []prometheus.Collector{count, restarts, live, room}
}
