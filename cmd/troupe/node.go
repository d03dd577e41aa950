package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/internal/telemetry/export"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// node answers for a data directory: the runtime in this process, or the client of the one that
// holds the directory.
type node interface {
	Ask(ctx context.Context, m proto.Message) (proto.Message, error)
	Events(ctx context.Context, session string, after uint64) iter.Seq2[*messages.Event, error]
	Backup(ctx context.Context, w io.Writer, since *messages.BackupMark) error
	Export(ctx context.Context, session string, w io.Writer) error
	ImportSession(ctx context.Context, in io.Reader, m *messages.ImportSession) (*messages.Imported, error)
}

const (
	// holderWait is how long a holder that is starting or ending is waited for.
	holderWait = 5 * time.Second
	holderPoll = 50 * time.Millisecond
	// stopTime bounds the orderly stop: with Ctrl-C everything must be over within a second. What it
	// cuts off is recovered from the journal.
	stopTime = 700 * time.Millisecond
)

// house is an opened data directory. Exactly one of rt and client is set.
type house struct {
	node
	data   string
	rt     *troupe.Runtime
	store  persistence.Store // of the options; nil: the runtime has its own
	client *client.Client
	holder int           // pid of the process that holds the directory, when it is another one
	remote bool          // client speaks with a server of the network
	ending time.Duration // how long an orderly end may take; 0: stopTime
	note   func(format string, args ...any)

	secrets  *config.Redactor // takes them out of what a crash left
	models   *models
	log      *logFile
	traces   *export.Traces    // nil: nothing is traced
	metrics  *export.Metrics   // nil: calls of models are not counted
	listener *countingListener // nil: nobody is served
	most     int               // connections to it at a time
	crash    string            // the file that tells what this process dies of; "" when there is none
	gateway  gateway.Options   // of who comes by the socket
}

// opening is how a house is opened.
type opening struct {
	loaded   *config.Loaded
	models   *models
	dir      string                          // the folder at work, as -C names it
	work     bool                            // agents may run; without it there is only a short look, which makes others wait
	alone    bool                            // nobody else is served
	env      []string                        // added to the environment of every call
	count    func(troupe.Hooks) troupe.Hooks // stands around the hooks; nil: nothing does
	registry prometheus.Registerer           // of what is counted, for /metrics; nil: nobody reads it
	serve    bool                            // a server: it is nobody's client, and goes on with everything that is open
}

// openHouse takes the data directory, or becomes the client of the process that has it. Only a house
// that may run agents serves others.
func (a *app) openHouse(ctx context.Context, o opening) (*house, error) {
	loaded := o.loaded
	if loaded.Config.Server.URL != "" && !o.serve && !o.alone {
		return a.remoteHouse(ctx, loaded)
	}
	log, err := a.openLog(loaded)
	if err != nil {
		return nil, err
	}
	options, err := a.runtimeOptions(ctx, o, log.logger)
	if err != nil {
		return nil, errors.Join(err, log.close())
	}
	traces, err := a.openTraces(ctx, o, log.logger)
	if err != nil {
		return nil, errors.Join(err, log.close())
	}
	metrics, err := a.openMetrics(ctx, o)
	if err != nil {
		return nil, errors.Join(abandoned(ctx, traces, nil, err), log.close())
	}
	options.TracerProvider, options.MeterProvider = traces.Provider(), metrics.Provider()
	h, err := settle(ctx, o, options, log)
	if err == nil {
		if err = recordable(o, h); err != nil {
			err, h = errors.Join(err, h.close(ctx)), nil
		}
	}
	if err == nil && h.rt != nil {
		h.traces, h.metrics = traces, metrics
	} else {
		err = abandoned(ctx, traces, metrics, err)
	}
	if err != nil || h.log == nil {
		err = errors.Join(err, log.close())
	}
	if h != nil {
		h.note, h.secrets = a.note, a.secrets
		if h.rt != nil {
			h.watchCrash()
		}
		h.missing()
	}
	if errors.Is(err, persistence.ErrLocked) {
		return nil, heldError(loaded, !o.serve, err)
	}
	return h, storeError(err)
}

// missing says which MCP servers are not there: their agents go on without them.
func (h *house) missing() {
	if h.rt == nil {
		return
	}
	for _, s := range h.rt.MCPServers() {
		if s.Err != nil {
			h.note("troupe: its tools are missing: %s", visible(s.Err.Error()))
		}
	}
}

// settle opens the directory or finds its holder, whichever comes first. A holder that is
// starting or ending is waited for; then the error is ErrLocked.
func settle(ctx context.Context, o opening, options troupe.Options, log *logFile) (*house, error) {
	bound := time.NewTimer(holderWait)
	defer bound.Stop()
	poll := time.NewTicker(holderPoll)
	defer poll.Stop()
	for {
		h, err := hold(ctx, o, options, log)
		if !errors.Is(err, persistence.ErrLocked) {
			return h, err
		}
		if h, aerr := attach(ctx, options.DataDir); aerr == nil {
			if !o.serve {
				return h, nil
			}
			return nil, errors.Join(err, h.close(ctx))
		}
		select {
		case <-poll.C:
		case <-bound.C:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// heldError says who has the data directory; asked tells that the holder was asked on its socket, and did not answer.
func heldError(loaded *config.Loaded, asked bool, err error) *exitError {
	dir := loaded.Config.Data.Dir
	who, silent := "another process", ""
	if pid := holder(dir); pid != 0 {
		who = fmt.Sprintf("process %d", pid)
	}
	if asked {
		silent = ", which does not answer on its socket"
	}
	what := fmt.Sprintf("data directory %s (%s) is held by %s%s", dir, loaded.Origin("data.dir"), who, silent)
	return &exitError{code: exitAgain, what: what, hint: "try again when it has ended, or use another directory with --data", err: err}
}

// storeError gives the errors of opening a store their code.
func storeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, persistence.ErrKey):
		return &exitError{
			code: exitConfig, what: err.Error(), err: err,
			hint: "see data.encryption in troupe config show --origin; nothing was changed\nto encrypt a store, or to end that: troupe backup FILE with the old setting, troupe restore FILE --to DIR with the new one",
		}
	case errors.Is(err, persistence.ErrCorrupt), errors.Is(err, persistence.ErrAckedDataMissing):
		return &exitError{code: exitIO, what: err.Error(), hint: "nothing was changed; see what could be saved with: troupe repair", err: err}
	case errors.Is(err, persistence.ErrUnavailable), errors.Is(err, persistence.ErrFull), errors.Is(err, fs.ErrPermission), errors.As(err, new(*fs.PathError)):
		return &exitError{code: exitIO, what: err.Error(), hint: "see troupe doctor", err: err}
	}
	return err
}

// hold opens the directory in this process.
func hold(ctx context.Context, in opening, o troupe.Options, log *logFile) (*house, error) {
	rt, err := troupe.New(ctx, o)
	if err != nil {
		if o.Store != nil {
			err = errors.Join(err, o.Store.Close())
		}
		return nil, err
	}
	h := &house{node: rt, data: o.DataDir, rt: rt, store: o.Store, models: in.models, log: log}
	if !in.work || in.alone {
		return h, nil
	}
	l, _, err := gateway.ListenSocket(o.DataDir) //nolint:contextcheck // it takes none: its one wait is bounded by itself
	if err != nil {
		h.log = nil // the caller's, who closes it
		return nil, errors.Join(&exitError{code: exitIO, what: err.Error(), err: err}, h.close(ctx))
	}
	h.listener, h.most = &countingListener{Listener: l}, int(in.loaded.Config.Server.Conns)
	h.gateway.ClientApproval = clientApproval(in.loaded)
	return h, nil
}

// attach becomes the client of the holder.
func attach(ctx context.Context, dir string) (*house, error) {
	c, err := client.Dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	who, err := ask[*messages.Holder](ctx, c, &messages.Hello{})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &house{node: c, data: dir, client: c, holder: int(who.GetPid())}, nil
}

// during does work while the house stands: others are served meanwhile, and it ends with an error
// when the store fails. It does not close the house.
func (h *house) during(ctx context.Context, work func(ctx context.Context) error) error {
	var g run.Group
	var result error
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.Add(func() error {
		result = work(ctx)
		return result
	}, func(err error) { cancel(err) })
	if h.rt != nil {
		over := make(chan struct{})
		g.Add(func() error {
			select {
			case err := <-h.rt.Failed():
				return storeFailed(err)
			case <-over:
				return nil
			}
		}, func(error) { close(over) })
	}
	if h.listener != nil {
		h.addServer(ctx, &g)
		g.Add(func() error { h.watchSpace(ctx, h.note); return nil }, func(error) { cancel(nil) })
	}
	first := g.Run()
	if h.rt != nil && result != nil {
		select {
		case err := <-h.rt.Failed(): // the work may have heard of it first, as a refusal
			return storeFailed(err)
		default:
		}
	}
	if own := new(exitError); errors.As(first, &own) && !errors.As(result, new(*exitError)) {
		return first // what ended the work says more than that it was ended
	}
	return result
}

// storeFailed is what the store's failure is to a person.
func storeFailed(err error) error {
	return &exitError{code: exitIO, what: "the store failed: " + err.Error(), hint: "what was acknowledged is kept; see troupe doctor", err: err}
}

// addServer serves the socket as one member of the group.
func (h *house) addServer(ctx context.Context, g *run.Group) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // the group ends it
	o := h.gateway
	o.Logger, o.Version = h.log.logger, readVersion().Version
	handler := h.listener.noting(gateway.New(h.rt, o))
	l := gateway.LimitConnections(h.listener, h.most, 0, o.Metrics.ConnectionRefused)
	g.Add(func() error { return serve(ctx, l, handler) }, func(error) { stop() })
}

// serve answers on a listener until ctx ends. Its stop is bounded, as the process is about to end: a
// request that is not done by then is cut off with it.
func serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	served := make(chan error, 1)
	go func() { served <- gateway.Serve(ctx, l, handler) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	bound := time.NewTimer(stopTime / 2)
	defer bound.Stop()
	select {
	case err := <-served:
		return err
	case <-bound.C:
		return nil
	}
}

// attached is how many other commands work in this house.
func (h *house) attached() int {
	if h.listener == nil {
		return 0
	}
	return h.listener.commands()
}

// linger stays until those who are attached have what they wait for.
func (h *house) linger(ctx context.Context) {
	tick := time.NewTicker(holderPoll)
	defer tick.Stop()
	for h.attached() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// close gives the directory up, in order and within stopTime, also when ctx has ended. Open turns
// stay open.
func (h *house) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(h.ending, stopTime))
	defer cancel()
	var errs []error
	if h.listener != nil {
		if err := h.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if h.client != nil {
		errs = append(errs, h.client.Close())
	}
	if h.rt != nil {
		errs = append(errs, h.rt.Close(ctx))
	}
	if h.store != nil {
		errs = append(errs, h.store.Close())
	}
	if h.models != nil && h.rt != nil {
		errs = append(errs, h.models.Close())
	}
	h.closeTraces(ctx)
	h.endCrash()
	if h.log != nil {
		errs = append(errs, h.log.close())
	}
	return errors.Join(errs...)
}

// ask puts a question and expects an answer of one type.
func ask[T proto.Message](ctx context.Context, n node, m proto.Message) (T, error) {
	var zero T
	reply, err := n.Ask(ctx, m)
	if err != nil {
		return zero, err
	}
	if f, refused := reply.(*messages.Failure); refused {
		return zero, f
	}
	t, ok := reply.(T)
	if !ok {
		return zero, fmt.Errorf("ask %T: answered by %T", m, reply)
	}
	return t, nil
}
