// Package openai speaks to servers of the OpenAI kind: Chat Completions, and Responses where
// the provider is set to it. go-openai makes the requests and decodes the events; a layer below
// it, in place of its HTTP client, repairs what providers and that client get wrong, makes
// every failure a typed *model.Error, and keeps the cost of a call independent of the length
// of the history: kept bytes are spliced into the request, deltas that have already arrived
// are merged into one event.
//
// A failed request is made again, with exponential jittered pauses and the provider's
// Retry-After, as long as the caller has not been given anything: overload, refused or broken
// connections, timeouts and cut streams. A caller who holds something that others wait for asks
// once (model.Request.Once) and repeats it himself. One that was refused for the number of requests
// is always the caller's to repeat, and a used-up quota is class auth and final.
package openai

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/troupe-dev/troupe/internal/plainhttp"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/xmltools"
)

// The APIs of a provider.
const (
	Chat      = "chat"      // POST BaseURL/chat/completions
	Responses = "responses" // POST BaseURL/responses
)

// Options describe one provider. The zero value is OpenAI itself, without a key.
type Options struct {
	BaseURL string // default https://api.openai.com/v1; http or https, no user, query or fragment
	// APIKey returns the bearer token; it is asked before each request, so that keys can
	// change. nil or an empty key: none is sent. See Key.
	APIKey func(context.Context) (string, error)
	API    string // Chat (default) or Responses

	Transport        http.RoundTripper // default: one of its own, ended by Close; see NewTransport
	RequestTimeout   time.Duration     // one request with its whole answer; default 30 min
	FirstByteTimeout time.Duration     // to the first byte of the answer; default 5 min
	IdleTimeout      time.Duration     // between two bytes of the answer; default 2 min
	MaxAttempts      int               // requests per call, the first included; default 5. Of one that is to be sent once, the caller's

	// EchoReasoning sends the reasoning that led to a tool call back as reasoning_content, as
	// some providers of open models demand. Others refuse it.
	EchoReasoning bool

	Sleep func(context.Context, time.Duration) error // for tests; default: wait
	Now   func() time.Time                           // for tests; default time.Now
}

// Key returns a source for a key that does not change.
func Key(key string) func(context.Context) (string, error) {
	key = strings.TrimSpace(key)
	return func(context.Context) (string, error) { return key, nil }
}

// NewTransport returns an HTTP transport fit for many streams at once: connections are kept,
// and nothing is compressed, since a compressor holds events back. One may serve all providers. A provider
// at an http address that no proxy stands before gets a plainhttp.Transport instead, unless it is given another.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dial,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   15 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		ReadBufferSize:        bufferSize,
		WriteBufferSize:       64 << 10, // a request of ordinary size leaves in one write
	}
}

// ownTransport is what asks u when nobody has said what does.
func ownTransport(u *url.URL) transport {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if u.Scheme != "http" || proxy != nil || err != nil || strings.Contains(u.Host, "%") { // an address with a zone
		return NewTransport()
	}
	return &plainhttp.Transport{Dial: connect}
}

// transport is one that is ours.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

func connect(ctx context.Context, network, addr string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, addr)
}

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := connect(ctx, network, addr)
	if tcp, ok := c.(*net.TCPConn); ok {
		return gatherer{tcp}, nil
	}
	return c, err
}

// Model is one provider. It implements model.Model; the request names the model.
type Model struct {
	opts   Options
	host   string
	rt     http.RoundTripper // asked itself and not through an http.Client: a redirected POST would carry prompt and key to where nobody configured them
	owned  transport
	direct bool // rt sends a body from where its pieces lie
	client *goopenai.Client
	billed goopenai.StreamOptions // of every request
	tools  toolCache
	texts  toolCache // tools as text, for the XML protocol
	kept   codec
	plain  codec // for the XML protocol

	repairs sync.Pool // *repair
	drafts  sync.Pool // *draft
	watches sync.Pool // *watch
	bearer  atomic.Pointer[bearer]
	named   atomic.Pointer[string] // what the provider called its model last
}

// codec is how messages are encoded, and what these bytes are called where they are kept.
type codec struct {
	format string
	encode func(*messages.Message) []byte
}

// codec is that of a request.
func (m *Model) codec(req *model.Request) codec {
	if req.XML {
		return m.plain
	}
	return m.kept
}

// New returns the provider that opts describe. It opens no connection.
func New(opts Options) (*Model, error) {
	opts.fill()
	u, err := url.Parse(opts.BaseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("read base URL of the provider: not an http or https address")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("read base URL of the provider: a user, a query or a fragment has no place in it; keys go into api_key_*")
	}
	m := &Model{opts: opts, host: u.Host}
	switch opts.API {
	case Chat:
		m.kept, m.tools.write = codec{"openai-chat", chatMessage}, chatTools
		if opts.EchoReasoning {
			m.kept = codec{"openai-chat+reasoning", chatMessageReasoned}
		}
	case Responses:
		m.kept, m.tools.write = codec{"openai-responses", responsesItems}, responsesTools
	default:
		return nil, fmt.Errorf("read api of the provider: %q is neither %q nor %q", opts.API, Chat, Responses)
	}
	m.plain = codec{m.kept.format + "+xml", inText(m.kept.encode)}
	m.texts.write = func(defs []model.ToolDef) []byte { return []byte(xmltools.Describe(defs)) }
	m.rt = opts.Transport
	if m.rt == nil {
		m.owned = ownTransport(u)
		m.rt = m.owned
	}
	_, m.direct = m.rt.(*plainhttp.Transport)
	m.client, m.billed.IncludeUsage = clientOf(opts.BaseURL), true
	m.repairs.New = func() any { return newRepair() }
	m.drafts.New = func() any { return &draft{} }
	m.watches.New = func() any { return newWatch() }
	return m, nil
}

func (o *Options) fill() {
	o.BaseURL = strings.TrimRight(orElse(o.BaseURL, "https://api.openai.com/v1"), "/")
	o.API = orElse(o.API, Chat)
	if o.APIKey == nil {
		o.APIKey = Key("")
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.RequestTimeout, 30 * time.Minute}, {&o.FirstByteTimeout, 5 * time.Minute}, {&o.IdleTimeout, 2 * time.Minute}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = 5
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Close ends the idle connections of a transport that New made. Calls under way go on.
func (m *Model) Close() error {
	if m.owned != nil {
		m.owned.CloseIdleConnections()
	}
	return nil
}

// Attempts is how often a request is sent that nothing comes of; see model.Attempts.
func (m *Model) Attempts() int { return m.opts.MaxAttempts }

// errStopped says that the caller left the loop.
var errStopped = errors.New("the caller stopped")

// Stream implements model.Model.
func (m *Model) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		to := caller{ctx: ctx, yield: yield}
		emit := to.emit
		for n := 1; ; n++ {
			err := m.attempt(ctx, req, n, emit)
			if err == nil || to.left {
				return
			}
			var failed *model.Error
			if errors.As(err, &failed) && ctx.Err() == nil {
				failed.Attempts = n
				// Nothing is tried again after the caller has seen a part of the answer: it
				// would see that part twice.
				if !to.yielded && !req.Once && n < m.opts.MaxAttempts && retryable(failed.Class) {
					wait := pause(n, failed.RetryAfter, chance())
					telemetry.Retried(ctx, n, string(failed.Class), wait)
					err = m.opts.Sleep(ctx, wait)
					if err == nil {
						continue
					}
				}
			}
			yield(model.Event{}, err)
			return
		}
	}
}

// caller is who reads the stream.
type caller struct {
	ctx           context.Context //nolint:containedctx // of the call
	yield         func(model.Event, error) bool
	yielded, left bool
}

func (c *caller) emit(ev *model.Event) bool {
	if c.ctx.Err() != nil { // what had already arrived must not start anything any more
		return false
	}
	c.yielded = true
	c.left = !c.yield(*ev, nil)
	return !c.left
}
