// Package client talks to the process that holds a data directory, over the socket in it, or to a server over the network. A Client
// answers the same messages as the runtime in that process, with the same replies, so that
// a program need not know which of the two it works with.
package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/troupe-dev/troupe/internal/peer"
	"github.com/troupe-dev/troupe/messages"
)

var (
	// ErrNoHolder says that no process answers for a data directory.
	ErrNoHolder = errors.New("no process serves this data directory")
	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("the client is closed")
)

const (
	// helloTime is how long a holder may take to say who it is.
	helloTime = 5 * time.Second
	// idleTime is shorter than the server's, so that no request goes out on a connection that is
	// just being closed.
	idleTime = 30 * time.Second
	// maxName bounds the file that names a socket.
	maxName = 4096
)

// Client is a connection to the holder of a data directory, or to a server. It is safe for concurrent use.
type Client struct {
	who    string // for errors
	origin string // of addresses
	token  string
	http   *http.Client

	patience time.Duration // for which a server that was there may be away

	watching atomic.Bool
	once     sync.Once
	closed   chan struct{}
}

// Dial reaches the process that holds a data directory, and makes sure that it answers. The error is
// ErrNoHolder when there is none. The caller ends the client with Close.
func Dial(ctx context.Context, dataDir string) (*Client, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory %q: %w", dataDir, err)
	}
	c := newClient("the holder of "+dir, socketOrigin, &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, dir) },
	})
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	if _, err := c.Ask(ctx, &messages.Hello{}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.patience = patience
	return c, nil
}

func newClient(who, origin string, t *http.Transport) *Client {
	t.DisableCompression, t.MaxIdleConnsPerHost, t.IdleConnTimeout = true, 4, idleTime
	return &Client{who: who, origin: origin, closed: make(chan struct{}), http: &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close ends what the client is still waiting for, and its connections.
func (c *Client) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.http.CloseIdleConnections()
	})
	return nil
}

// untilClosed is a context that also ends when the client is closed.
func (c *Client) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	select {
	case <-c.closed:
		cancel(ErrClosed)
		return ctx, func() {}
	default:
	}
	go func() {
		select {
		case <-c.closed:
			cancel(ErrClosed)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// SocketPath is where the holder of a data directory listens: on the socket that the file `socket`
// in it names, else on troupe.sock in it.
func SocketPath(dataDir string) string {
	name := filepath.Join(dataDir, "socket")
	if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && info.Size() <= maxName {
		b, err := os.ReadFile(name)
		if path := strings.TrimSpace(string(b)); err == nil && filepath.IsAbs(path) {
			return path
		}
	}
	return filepath.Join(dataDir, "troupe.sock")
}

// dial connects to the holder of a data directory, wherever it listens by now. What answers must
// belong to the same user: prompts go to nobody else.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	path := SocketPath(dir)
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EINVAL): // or no socket can have that name
		return nil, fmt.Errorf("%w: %w", ErrNoHolder, err)
	case err != nil:
		return nil, fmt.Errorf("connect to the holder of %s: %w", dir, err)
	}
	if err := peer.Check(conn); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", path, err), conn.Close())
	}
	return conn, nil
}
