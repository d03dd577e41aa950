// Package gateway speaks HTTP with the world and messages with the house: every route turns a request
// into one command or question of package messages, and its one reply, or Failure, back into
// JSON. Events go out as server-sent events.
//
// Who may reach the handler is the listener's business: ListenSocket admits nobody but the user of this process. What they
// may do there is that of their Principal, which Options.Authenticate tells; without it everybody is the owner.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Backend is the house as this package needs it.
type Backend interface {
	// Ask answers one command or question. A refusal is a *messages.Failure.
	Ask(ctx context.Context, m proto.Message) (proto.Message, error)
	// Events yields a session's events with a seq above after, then live ones, until ctx ends.
	// An error is the last thing it yields.
	Events(ctx context.Context, session string, after uint64) iter.Seq2[*messages.Event, error]
}

// Options configure the handler. The zero value works.
type Options struct {
	Logger    *slog.Logger  // default: nothing is logged
	Version   string        // of the program, for GET /version
	Keepalive time.Duration // between comments on an idle event stream; default 15 s
	Ping      time.Duration // between pings on a WebSocket; default 15 s
	MaxBody   int64         // bytes of a request's body; default 16 MiB
	BodyTime  time.Duration // for a request's body to arrive, of an import for each piece; default 1 min

	// ClientApproval is how long an approval may wait of a call that a client makes over the WebSocket without announcing that it shows approvals;
	// default 5 min, less than 0: as any.
	ClientApproval time.Duration

	// Authenticate says who sends a request; nil: whoever reaches the handler is the owner. It is not asked about routes that are open.
	Authenticate Authenticator
	// Roots are the folders below which workspaces may be attached by who has no scope admin, absolute and with their links resolved.
	Roots []string
	// Mounts are handlers beside the API and the console.
	Mounts []Mount

	// Hosts says by which names, as the header Host has them, the server may be called; nil: any.
	Hosts func(host string) bool

	Ready    func() error // why GET /readyz says 503; nil, or no error: it says 200
	Stopping func() bool  // true: nothing new is begun any more; nil: never
	Stop     func()       // begins an orderly stop of the server; nil: there is none to stop
	Metrics  *Metrics     // what is counted; nil: nothing is

	TracerProvider trace.TracerProvider // gets a span of each request that changes something; nil: nothing is traced
}

const (
	defaultKeepalive = 15 * time.Second
	defaultMaxBody   = 16 << 20
	// readTime is how long a body may take to arrive, writeTime an answer or one event to be taken: a
	// consumer that is slower is dropped, and resumes by cursor.
	readTime  = time.Minute
	writeTime = 30 * time.Second
)

// api is the handler that New makes.
type api struct {
	backend Backend // as the principal of a request may use it
	raw     Backend // as it is: for what is told to everybody alike
	opts    Options
	log     *slog.Logger
	started time.Time
	mux     *http.ServeMux
	guard   http.Handler // mux behind the checks

	ending context.Context //nolint:containedctx // ended: streams and long polls end
	end    context.CancelFunc
	ws     sockets
	pieces sync.Pool // of what event streams gather
}

// endpoint answers one request. What it returns is written by the api.
type endpoint func(w http.ResponseWriter, r *http.Request) (answer, error)

// answer is a reply before it is written. A nil body is no content.
type answer struct {
	status int
	body   any
	header map[string]string
}

func ok(body any) (answer, error) { return answer{status: http.StatusOK, body: body}, nil }

func nothing() (answer, error) { return answer{status: http.StatusNoContent}, nil }

func bad(format string, args ...any) error { return refusal(messages.CodeBadRequest, format, args...) }

func refusal(code string, format string, args ...any) error {
	return messages.Fail(code, fmt.Sprintf(format, args...), "")
}

// New is the API over a backend. It starts nothing and holds nothing open: an event stream or a long
// poll lives as long as its request.
func New(b Backend, o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Keepalive <= 0 {
		o.Keepalive = defaultKeepalive
	}
	if o.Ping <= 0 {
		o.Ping = defaultPing
	}
	if o.MaxBody <= 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.BodyTime <= 0 {
		o.BodyTime = readTime
	}
	if o.ClientApproval == 0 {
		o.ClientApproval = messages.OldApprovalMs * time.Millisecond
	}
	a := &api{backend: &checked{all: b, roots: o.Roots}, raw: b, opts: o, log: o.Logger, started: time.Now(), mux: http.NewServeMux()}
	a.ending, a.end = context.WithCancel(context.Background())
	a.routes()
	// A page of another origin, open in a browser, may not send commands.
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.problem(w, r, http.StatusForbidden, messages.Fail(messages.CodeBadRequest, "the request comes from another origin", ""))
	}))
	a.guard = a.hosted(origin.Handler(http.HandlerFunc(a.dispatch)))
	return a
}

func (a *api) routes() {
	for _, r := range a.table() {
		h := r.stream
		if h == nil {
			h = a.traced(r.pattern, a.recovered(a.handler(r)))
		}
		if r.begins {
			h = a.beginning(h)
		}
		if r.in == nil && r.takes == "" {
			h = a.bodiless(h)
		}
		a.mux.HandleFunc(r.pattern, a.opts.Metrics.measured(r.pattern, a.recovered(a.admit(r.scope, h))))
	}
	for pattern, file := range a.consoleRows() {
		a.mux.HandleFunc(pattern, a.admit(ScopeNone, a.console(file)))
	}
	for _, m := range a.opts.Mounts {
		a.mux.HandleFunc(m.Pattern, a.opts.Metrics.measured(m.Pattern, a.recovered(a.admit(m.Scope, m.serve))))
	}
}

func (a *api) handler(route row) http.HandlerFunc {
	write := a.write
	if route.paged() {
		write = a.writeTagged
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ans, err := route.serve(w, r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		for k, v := range ans.header {
			w.Header().Set(k, v)
		}
		write(w, r, ans.status, "application/json", ans.body)
	}
}

// ServeHTTP answers every request, also one that makes a handler panic.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.recovered(a.guard.ServeHTTP)(w, timed(w, r, a.opts.BodyTime))
}

// dispatch finds the route. ServeMux's own refusals are texts, and it redirects what it would
// clean: both become problems.
func (a *api) dispatch(w http.ResponseWriter, r *http.Request) {
	if err := printable("the address", r.URL.Path); err != nil {
		a.fail(w, r, err)
		return
	}
	_, pattern := a.mux.Handler(r)
	clean := path.Clean(r.URL.EscapedPath()) == r.URL.EscapedPath()
	switch {
	case clean && pattern != "" && r.Method != http.MethodHead:
		a.mux.ServeHTTP(w, r)
	case clean && a.allowed(r) != "":
		w.Header().Set("Allow", a.allowed(r))
		a.problem(w, r, http.StatusMethodNotAllowed, messages.Fail(messages.CodeBadRequest, r.Method+" is not served here", "use "+a.allowed(r)))
	default:
		a.problem(w, r, 0, messages.Fail(messages.CodeNotFound, fmt.Sprintf("there is nothing at %s", r.URL.Path), ""))
	}
}

// allowed lists the methods that an address has, when there are any.
func (a *api) allowed(r *http.Request) string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = m
		if _, pattern := a.mux.Handler(probe); pattern != "" && strings.HasPrefix(pattern, m+" ") {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

// drain ends the event streams and long polls, so that a server can stop.
func (a *api) drain() { a.end() }

var errStopping = errors.New("the server is stopping")

// untilStopped is a request's context that also ends when the server stops.
func (a *api) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(a.ending, func() { cancel(errStopping) }) // no goroutine for each of them
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

// ask puts a question to the house and expects a reply of one type.
func ask[T proto.Message](ctx context.Context, a *api, m proto.Message) (T, error) {
	var zero T
	reply, err := a.askAny(ctx, m)
	if err != nil {
		return zero, err
	}
	r, ok := reply.(T)
	if !ok {
		return zero, fmt.Errorf("ask %T: answered %T instead of %T", m, reply, zero)
	}
	return r, nil
}

func (a *api) askAny(ctx context.Context, m proto.Message) (proto.Message, error) {
	reply, err := a.backend.Ask(ctx, m)
	if err != nil {
		return nil, err
	}
	if f, refused := reply.(*messages.Failure); refused {
		return nil, f
	}
	return reply, nil
}

// printable refuses text that a record, a log or a terminal should not get.
func printable(what, s string) error {
	if !utf8.ValidString(s) {
		return bad("%s is not UTF-8", what)
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return bad("%s has control characters", what)
	}
	return nil
}
