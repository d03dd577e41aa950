// Package mcp makes the tools of MCP servers tools of ours, through the official Go SDK. A server is a command that
// is spoken to over its standard input and output, or an address that is spoken to over streamable HTTP.
//
// A server is connected once for the process, whoever uses it. One that ends is started again by the next call, after a
// pause that grows. A call that was under way is not made again: whether it had an effect is not known, and the
// model is told so. Servers are given no roots, no sampling and no questions to people: what a client advertises,
// servers have taken for permission.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// Options describe one server: Command or URL is set.
type Options struct {
	Command []string // program and arguments
	Env     []string // NAME=value of the command, besides PATH, HOME, LANG and the like
	URL     string   // of streamable HTTP
	Headers map[string]string
	Timeout time.Duration // of one call; 0: a minute
	Start   time.Duration // to connect and list its tools; 0: 30 s
	Logger  *slog.Logger  // nil: nothing is logged
	// Redact takes secrets out of what the server writes to the log; nil: none are known.
	Redact func(string) string
}

// Bounds of one server.
const (
	startTime   = 30 * time.Second
	maxTools    = 512
	maxSchema   = 64 << 10
	maxAbout    = 8 << 10 // of a description
	maxMessage  = 16 << 20
	endTime     = 2 * time.Second // that a command has to end by itself
	firstPause  = 500 * time.Millisecond
	longPause   = 30 * time.Second
	healthyTime = time.Minute // after which the pauses begin anew
)

// Server is one connected server. It is safe for concurrent use.
type Server struct {
	name   string
	opts   Options
	client *sdk.Client
	tools  []tools.Tool

	mu       sync.Mutex
	session  *sdk.ClientSession
	cmd      *exec.Cmd
	since    time.Time     // of the session
	failures int           // in a row
	next     time.Time     // before which nothing is tried again
	opening  chan struct{} // closed when the attempt under way has ended
	closed   bool
	progress map[string]*watcher // by token
	tokens   uint64

	watching sync.WaitGroup // one for each session that has not ended
}

// Connect starts a server and lists its tools. The caller ends it with Close.
func Connect(ctx context.Context, name string, o Options) (*Server, error) {
	if (len(o.Command) == 0) == (o.URL == "") {
		return nil, fmt.Errorf("MCP server %s: it needs a command or a url, and not both", name)
	}
	if o.Timeout <= 0 {
		o.Timeout = tools.DefaultTimeout
	}
	if o.Start <= 0 {
		o.Start = startTime
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	s := &Server{name: name, opts: o, progress: make(map[string]*watcher)}
	s.client = sdk.NewClient(&sdk.Implementation{Name: "troupe", Version: "1"}, &sdk.ClientOptions{
		Capabilities:                &sdk.ClientCapabilities{},
		ProgressNotificationHandler: s.progressed,
	})
	ctx, cancel := context.WithTimeout(ctx, o.Start)
	defer cancel()
	session, err := s.connected(ctx)
	if err == nil {
		err = s.list(ctx, session)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("MCP server %s: %s", name, o.Redact(err.Error())) // it may quote an address, and what stands in that
	}
	return s, nil
}

// Name is what the configuration calls it.
func (s *Server) Name() string { return s.name }

// Tools are the server's tools, sorted by their names here.
func (s *Server) Tools() []tools.Tool { return slices.Clone(s.tools) }

// list reads the server's tools, once: those that a conversation was told of stay the same.
func (s *Server) list(ctx context.Context, session *sdk.ClientSession) error {
	var listed []*sdk.Tool
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("list its tools: %w", err)
		}
		if len(listed) == maxTools {
			s.opts.Logger.Warn("an MCP server has more tools than are taken", "server", s.name, "count", maxTools)
			break
		}
		listed = append(listed, t)
	}
	// Whatever order a server lists them in today: a name that needs a number gets the same one.
	slices.SortFunc(listed, func(a, b *sdk.Tool) int { return strings.Compare(a.Name, b.Name) })
	taken := make(map[string]bool)
	for _, t := range listed {
		one, err := s.tool(t, taken)
		if err != nil {
			s.opts.Logger.Warn("a tool of an MCP server cannot be used", "server", s.name, "tool", t.Name, "err", err)
			continue
		}
		taken[one.spec.Name] = true
		s.tools = append(s.tools, one)
	}
	slices.SortFunc(s.tools, func(a, b tools.Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	return nil
}

// errClosed says that the runtime is closing.
var errClosed = errors.New("the runtime is closing")

// connected gives the session, and makes one when there is none. Callers wait for the attempt under way.
func (s *Server) connected(ctx context.Context) (*sdk.ClientSession, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errClosed
		}
		if s.session != nil {
			defer s.mu.Unlock()
			return s.session, nil
		}
		if wait := s.opening; wait != nil {
			s.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if left := time.Until(s.next); left > 0 {
			s.mu.Unlock()
			return nil, fmt.Errorf("it failed %d times and is tried again in %s", s.failures, left.Round(100*time.Millisecond))
		}
		done := make(chan struct{})
		s.opening = done
		s.mu.Unlock()
		session, err := s.open(ctx)
		s.mu.Lock()
		s.opening = nil
		close(done)
		if err != nil {
			s.failed()
			s.mu.Unlock()
			return nil, err
		}
		if s.closed { // meanwhile
			s.mu.Unlock()
			s.end(session)
			return nil, errClosed
		}
		s.session, s.since = session, time.Now()
		s.watching.Go(func() { s.watch(session) })
		s.mu.Unlock()
		return session, nil
	}
}

// failed counts a failure, with mu held.
func (s *Server) failed() {
	s.failures++
	s.next = time.Now().Add(min(firstPause<<min(s.failures-1, 10), longPause))
}

// watch forgets a session that has ended. It ends with the session.
func (s *Server) watch(session *sdk.ClientSession) {
	err := session.Wait()
	s.reap()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != session {
		return
	}
	s.session = nil
	if s.closed {
		return
	}
	if time.Since(s.since) > healthyTime {
		s.failures = 0
	}
	s.failed()
	s.opts.Logger.Warn("an MCP server has ended", "server", s.name, "err", err)
}

func (s *Server) open(ctx context.Context) (*sdk.ClientSession, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Start)
	defer cancel()
	transport := s.transport()
	session, err := s.client.Connect(ctx, transport, nil)
	if err != nil {
		s.reap()
		if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
			return nil, fmt.Errorf("it does not answer within %s", s.opts.Start)
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	return session, nil
}

func (s *Server) transport() sdk.Transport {
	if s.opts.URL != "" {
		return &sdk.StreamableClientTransport{
			Endpoint: s.opts.URL, DisableStandaloneSSE: true, MaxRetries: 1, MaxEventSize: maxMessage,
			HTTPClient: &http.Client{
				Transport:     withHeaders{s.opts.Headers, http.DefaultTransport},
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // headers are for this address alone
			},
		}
	}
	cmd := command(s.opts.Command)
	cmd.Env = append(environment(), s.opts.Env...)
	cmd.Stderr = &logLines{log: func(line string) {
		s.opts.Logger.Debug("MCP server says", "server", s.name, "line", s.opts.Redact(line))
	}}
	cmd.WaitDelay = endTime
	s.mu.Lock()
	s.cmd = cmd
	s.mu.Unlock()
	return &sdk.CommandTransport{Command: cmd, TerminateDuration: endTime}
}

type withHeaders struct {
	headers map[string]string
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range t.headers {
		r.Header.Set(name, value)
	}
	resp, err := t.next.RoundTrip(r)
	if err == nil && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") { // events have a bound of their own
		resp.Body = bounded{io.LimitReader(resp.Body, maxMessage), resp.Body}
	}
	return resp, err
}

// bounded is a body of which at most so much is read: an answer that is longer is cut, and no JSON any more.
type bounded struct {
	io.Reader
	io.Closer
}

// Close ends the server. Calls under way fail.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	session := s.session
	s.session = nil
	s.mu.Unlock()
	if session != nil {
		s.end(session)
	}
	s.watching.Wait()
}

// end closes a session, and what a command has left running. How a server takes it changes nothing.
func (s *Server) end(session *sdk.ClientSession) {
	if err := session.Close(); err != nil {
		s.opts.Logger.Debug("an MCP server did not end well", "server", s.name, "err", err)
	}
	s.reap()
}

// reap kills what the newest command has left behind.
func (s *Server) reap() {
	s.mu.Lock()
	cmd := s.cmd
	s.mu.Unlock()
	if cmd != nil && cmd.Process != nil {
		killGroup(cmd)
	}
}

// watcher is who is told of the progress of a call.
type watcher struct {
	tell func(*messages.Progress)
	exec string
}

// watchProgress registers a call and gives its token.
func (s *Server) watchProgress(tc *tools.Context) (token string, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens++
	token = fmt.Sprintf("%s-%d", tc.ExecID, s.tokens)
	if tc.Progress != nil {
		s.progress[token] = &watcher{tc.Progress, tc.ExecID}
	}
	return token, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.progress, token)
	}
}

func (s *Server) progressed(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
	token, _ := r.Params.ProgressToken.(string)
	s.mu.Lock()
	w := s.progress[token]
	s.mu.Unlock()
	if w != nil {
		w.tell(&messages.Progress{ExecId: w.exec, Done: int64(r.Params.Progress), Total: int64(r.Params.Total), Text: clip(r.Params.Message, 200)})
	}
}
