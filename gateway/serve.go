package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headerTime  = 10 * time.Second // for a request's header to arrive
	idleTime    = 2 * time.Minute  // of a connection between requests
	maxHeader   = 64 << 10
	graceTime   = 5 * time.Second // for requests to end once event streams and long polls were told to
	abandonTime = time.Second     // for handlers whose connections were cut
)

// Serve answers on a listener until ctx ends, then stops in order: nothing new is accepted, event
// streams and long polls of a handler made by New end at once, other requests may finish for
// 5 s. It closes the listener, and has no goroutine left when it returns. The error is nil
// when ctx ended it.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	return ServeWithin(ctx, l, h, Times{})
}

// Times bound what a server waits for; 0 is the default.
type Times struct {
	Header time.Duration // for a request's header, and what TLS agrees on before; default 10 s
	Idle   time.Duration // of a connection between requests; default 2 min
}

// ServeWithin is Serve with bounds of the caller's own.
func ServeWithin(ctx context.Context, l net.Listener, h http.Handler, times Times) error {
	base, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: cmp.Or(times.Header, headerTime), IdleTimeout: cmp.Or(times.Idle, idleTime), MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
	}
	a, own := h.(*api)
	if own {
		srv.ErrorLog = slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		abandon()
		return errors.Join(fmt.Errorf("serve on %s: %w", l.Addr(), err), srv.Close())
	case <-ctx.Done():
	}
	if own {
		a.drain()
	}
	err := stop(context.WithoutCancel(ctx), srv, abandon)
	if own {
		a.ws.open.Wait() // the server does not count them
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve on %s: %w", l.Addr(), ended))
	}
	return err
}

// stop shuts a server down, bounded: what does not end is cut off.
func stop(ctx context.Context, srv *http.Server, abandon context.CancelFunc) error {
	grace, cancel := context.WithTimeout(ctx, graceTime)
	defer cancel()
	if err := srv.Shutdown(grace); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	abandon()
	last, cancel := context.WithTimeout(ctx, abandonTime)
	defer cancel()
	if err := srv.Shutdown(last); err == nil {
		return nil
	}
	if err := srv.Close(); err != nil {
		return fmt.Errorf("cut connections off: %w", err)
	}
	return nil
}
