package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

func newServe(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Hold the data directory and serve the API, until Ctrl-C",
		Long: `Hold the data directory and serve the API, until Ctrl-C, SIGTERM or troupe stop.

What was running when the data directory was last used goes on. stdout gets one line, the address, once requests are
answered; commands reach the server with --server or TROUPE_SERVER, and those on the same data directory without.
It stops in order: nothing new is begun, turns may end for server.grace, and what is open then goes on at the next start.
A second signal ends it at once.

  troupe serve --listen 127.0.0.1:7777
  TROUPE_SERVER=http://127.0.0.1:7777 troupe ls sessions`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context()) },
	}
	cmd.Flags().StringVar(&a.flags.listen, "listen", "", "`ADDR` to listen on, HOST:PORT; port 0 takes a free one (default 127.0.0.1:7777)")
	return cmd
}

// adminConnections are those of the profiles' address at a time.
const adminConnections = 32

// endTime bounds the orderly end of a server, after its turns had their time.
const endTime = 8 * time.Second

// serve is `troupe serve`. What can be refused is looked at before anything starts: the configuration, the addresses, the data directory.
func (a *app) serve(ctx context.Context) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	if err := servable(loaded); err != nil {
		return err
	}
	s := &server{a: a, loaded: loaded, started: time.Now(), metrics: counting(loaded), stop: make(chan struct{})}
	s.state.Store(stateRecovering)
	if err := s.prepare(); err != nil {
		return err
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	h, err := a.openHouse(ctx, opening{
		loaded: loaded, models: newModels(loaded, a.secrets), work: true, serve: true, count: s.count, registry: s.metrics.Registry(),
	})
	if err != nil {
		return errors.Join(err, s.closeListeners())
	}
	h.ending, s.house, s.log = endTime, h, h.log.logger
	h.gateway = s.options()
	if s.metrics != nil {
		s.metrics.Traces(h.traces.Counts)
	}
	err = s.guarded()
	if err == nil { // the socket answers until the turns have had their time: only the work hears of a signal
		err = h.during(context.WithoutCancel(ctx), func(failed context.Context) error { return s.work(ctx, failed) })
	}
	err = errors.Join(err, s.closeListeners(), s.forget())
	if cerr := h.close(ctx); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	return err
}

// listen takes the addresses of the configuration.
func (s *server) listen(ctx context.Context) error {
	c := s.loaded.Config.Server
	if err := s.reachable(); err != nil {
		return err
	}
	var err error
	if s.api, err = listen(ctx, s.setting("server.listen"), c.Listen); err != nil {
		return err
	}
	s.api = gateway.LimitConnections(s.api, int(c.Conns), int(c.PerIP), s.metrics.ConnectionRefused)
	if s.tls != nil {
		s.api = tls.NewListener(s.api, s.tls)
	}
	if c.Admin == "" {
		return nil
	}
	if !onLoopback(c.Admin) {
		err = &exitError{code: exitConfig, what: fmt.Sprintf("%s %s: profiles are for this machine alone", s.setting("server.admin"), c.Admin), hint: "use an address on loopback, such as 127.0.0.1:7778"}
	} else {
		s.admin, err = listen(ctx, s.setting("server.admin"), c.Admin)
	}
	if err != nil {
		return errors.Join(err, s.closeListeners())
	}
	s.admin = gateway.LimitConnections(s.admin, adminConnections, 0, nil)
	return nil
}

// reachable refuses an address that others could reach, unless what they send is encrypted. Whether there are tokens is looked at when
// the store is open.
func (s *server) reachable() error {
	address := s.loaded.Config.Server.Listen
	if s.tls == nil && !onLoopback(address) {
		return &exitError{
			code: exitDenied, what: fmt.Sprintf("%s %s: others could reach this address, and there is no certificate", s.setting("server.listen"), address),
			hint: "use an address on loopback, such as 127.0.0.1:7777, or set server.tls.cert and server.tls.key, and make a token",
		}
	}
	return nil
}

// guarded refuses an address that others could reach while nobody needs a token.
func (s *server) guarded() error {
	if address := s.loaded.Config.Server.Listen; !onLoopback(address) && s.open() {
		return &exitError{
			code: exitDenied, what: fmt.Sprintf("%s %s: others could reach this address, and there is no token", s.setting("server.listen"), address),
			hint: "make one with: troupe token create NAME --scope read,prompt",
		}
	}
	return nil
}

// setting names a setting and where it was written.
func (s *server) setting(path string) string {
	return fmt.Sprintf("%s (%s)", path, s.loaded.Origin(path))
}

func (s *server) closeListeners() error {
	var errs []error
	for _, l := range []net.Listener{s.api, s.admin} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// onLoopback tells whether an address is reached from this machine alone.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// options are those of who comes by the socket: the owner.
func (s *server) options() gateway.Options {
	return gateway.Options{
		Ready: s.ready, Stopping: s.stopping, Stop: s.askStop, Metrics: s.metrics, TracerProvider: s.house.traces.Provider(),
		ClientApproval: clientApproval(s.loaded),
	}
}

// clientApproval is approvals.client_timeout as the gateway has it: 0 stands for no limit of its own in the configuration, and for the default there.
func clientApproval(loaded *config.Loaded) time.Duration {
	if d := loaded.Config.Approvals.ClientTimeout; d > 0 {
		return d
	}
	return -1
}

// counting is what is counted, unless the configuration says that nothing is.
func counting(loaded *config.Loaded) *gateway.Metrics {
	if !loaded.Config.Telemetry.Metrics {
		return nil
	}
	return gateway.NewMetrics(readVersion().Version)
}

// count adds each turn that ends to the metrics.
func (s *server) count(next actors.Hooks) actors.Hooks {
	after := next.AfterTurn
	next.AfterTurn = func(ctx context.Context, t actors.Turn, r *messages.TurnResult) {
		s.metrics.TurnEnded(r.JSON().Outcome, r.GetUsage())
		if after != nil {
			after(ctx, t, r)
		}
	}
	return next
}

// banner says where the server is. stdout has the address alone.
func (s *server) banner() error {
	a, c := s.a, s.loaded.Config
	a.note("troupe %s serves", readVersion().Version)
	if err := a.say(s.url()); err != nil {
		return err
	}
	a.note("  socket  %s", visible(client.SocketPath(c.Data.Dir)))
	a.note("  data    %s", visible(c.Data.Dir))
	a.note("  log     %s", visible(s.house.log.file.Name()))
	if s.admin != nil {
		a.note("  admin   http://%s/debug/pprof/", s.admin.Addr())
	}
	a.note("  %s", s.access())
	a.note("  Ctrl-C or `troupe stop` ends it")
	return nil
}

// access says in a line who may use the server.
func (s *server) access() string {
	if s.open() {
		return "access  whoever is on this machine, with every scope: there are no tokens"
	}
	return "access  who has a token; on the socket this user"
}

func (s *server) url() string {
	if s.tls != nil {
		return "https://" + s.api.Addr().String()
	}
	return "http://" + s.api.Addr().String()
}
