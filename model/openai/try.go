package openai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/xmltools"
)

// tailTimeout is how long a finished answer waits for its usage and [DONE], and drainTimeout
// how long a whole one for the end of the body, without which its connection cannot be reused.
const (
	tailTimeout  = 10 * time.Second
	drainTimeout = 100 * time.Millisecond
)

var (
	errSlow = errors.New("no byte arrived in time")
	errLong = errors.New("the request took too long")

	errClosed = errors.New("read of an answer that was closed")
)

// try is one request and its answer. It is the context of the request, so that go-openai's HTTP client finds it again.
type try struct {
	context.Context                         //nolint:containedctx // see above
	cancel          context.CancelCauseFunc // of that context; nil where the transport asks what ends it

	m     *Model
	req   *model.Request
	n     int
	key   string
	watch *watch
	ends  time.Time   // when it takes too long
	began atomic.Bool // a byte of the answer arrived
	agent [1]string   // a header's value
	asked asked
	body  answerBody
	chunk chatDecoder

	mu    sync.Mutex
	cause error  // what the watch has run out of
	end   func() // ends the request under way

	sent      bool
	scripted  string
	requestID string
}

// attempt makes one request. It returns nil once a Finish was emitted, the context's error,
// errStopped when emit said so, or a *model.Error.
func (m *Model) attempt(ctx context.Context, req *model.Request, n int, emit func(*model.Event) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key, err := m.opts.APIKey(ctx)
	if err != nil {
		return &model.Error{Class: model.Auth, Message: "read the API key of the provider: " + err.Error(), Err: err}
	}
	t := &try{Context: ctx, m: m, req: req, n: n, key: strings.TrimSpace(key), ends: time.Now().Add(m.opts.RequestTimeout), asked: asked{m: m}}
	if !m.direct {
		t.Context, t.cancel = context.WithCancelCause(ctx)
		defer t.cancel(nil)
	}
	t.watch = m.watches.Get().(*watch)
	t.watch.begin(t, min(m.opts.FirstByteTimeout, m.opts.RequestTimeout))
	defer t.watch.end(&m.watches)
	if req.XML {
		emit = xmltools.NewReader(req.Tools, emit).Take
	}

	if m.opts.API == Responses {
		err = t.responses(emit) //nolint:contextcheck // the try is the context
	} else {
		err = t.chat(emit) //nolint:contextcheck // the same
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errStopped) {
		return err
	}
	return t.typed(err)
}

// clientOf is go-openai's client for all requests of a provider; each has its key from its try.
func clientOf(base string) *goopenai.Client {
	cfg := goopenai.DefaultConfig("")
	cfg.BaseURL = base
	cfg.HTTPClient = doer{}
	return goopenai.NewClientWithConfig(cfg)
}

// doer implements go-openai's HTTPDoer.
type doer struct{}

// Do gives a request to the try that it belongs to.
func (doer) Do(hr *http.Request) (*http.Response, error) {
	t, ok := hr.Context().(*try)
	if !ok {
		return nil, errors.New("send a request: it belongs to no call")
	}
	return t.do(hr) //nolint:contextcheck // it is the context
}

// do puts the kept bytes into the request, and gives back
// either a response whose body is mended, or a typed error.
func (t *try) do(hr *http.Request) (*http.Response, error) {
	if err := t.splice(hr); err != nil {
		return nil, err
	}
	if t.key != "" {
		hr.Header["Authorization"] = t.m.authorization(t.key)
	}
	if t.req.Agent != "" { // the scripted model chooses its rules by it
		t.agent[0] = headerValue(t.req.Agent)
		hr.Header["X-Troupe-Agent"] = t.agent[:]
	}
	telemetry.Leave(t, hr.Header)
	t.sent = true
	resp, err := t.m.rt.RoundTrip(hr)
	if err != nil {
		return nil, t.unreachable(err)
	}
	t.requestID = orElse(resp.Header.Get("X-Request-Id"), resp.Header.Get("Request-Id"))
	t.scripted = resp.Header.Get("X-Troupe-Scripted")
	if resp.StatusCode != http.StatusOK || !streams(resp.Header.Get("Content-Type")) {
		defer resp.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes)) // what is missing shows in the message
		return nil, t.refused(resp, said)
	}
	resp.Body = t.mended(resp.Body)
	return resp, nil
}

// bearer is a key as a header has it.
type bearer struct {
	key    string
	values []string
}

// authorization is the header's value, made anew when the key has changed.
func (m *Model) authorization(key string) []string {
	b := m.bearer.Load()
	if b == nil || b.key != key {
		b = &bearer{key, []string{"Bearer " + key}}
		m.bearer.Store(b)
	}
	return b.values
}

func streams(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.TrimSpace(media)
	return media == "" || strings.EqualFold(media, "text/event-stream")
}

func headerValue(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '_'
		}
		return r
	}, s)
}

// alive is told of each read of the answer.
func (t *try) alive(n int) {
	if n > 0 {
		t.began.Store(true)
		t.wait(t.m.opts.IdleTimeout)
	}
}

func (t *try) ending() { t.wait(min(tailTimeout, t.m.opts.IdleTimeout)) }

// wait bounds the time until the next byte, and never beyond the end of the request.
func (t *try) wait(d time.Duration) { t.watch.again(min(d, time.Until(t.ends))) }

// overdue ends the request: the watch has run out.
func (t *try) overdue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil && time.Now().Before(t.ends) {
		t.cause = errSlow
	}
	if t.cause == nil {
		t.cause = errLong
	}
	if t.cancel != nil {
		t.cancel(t.cause)
	}
	if t.end != nil {
		t.end()
	}
}

// Ends implements plainhttp.Ender.
func (t *try) Ends(end func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = end
	return t.cause == nil
}

// Over implements plainhttp.Ender.
func (t *try) Over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = nil
	return t.cause == nil
}

// late is what the watch has run out of, or nil.
func (t *try) late() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

// watch ends a request when it fires: nothing has arrived for long, or all of it takes too long. Its timer is used again by
// another request, unless it has fired: its function may run later.
type watch struct {
	timer *time.Timer
	of    *try
	fired bool // or may have
}

func newWatch() *watch {
	w := &watch{}
	w.timer = time.AfterFunc(time.Hour, func() { w.of.overdue() })
	w.fired = !w.timer.Stop()
	return w
}

func (w *watch) begin(of *try, d time.Duration) {
	w.of = of
	w.timer.Reset(d)
}

func (w *watch) again(d time.Duration) {
	if !w.timer.Reset(d) {
		w.fired = true
	}
}

// end gives the watch back.
func (w *watch) end(to *sync.Pool) {
	if w.timer.Stop() && !w.fired {
		w.of = nil
		to.Put(w)
	}
}

// mended wraps the body of a stream.
func (t *try) mended(src io.ReadCloser) io.ReadCloser {
	r := t.m.repairs.Get().(*repair)
	handle := (*repair).event
	if t.m.opts.API == Responses {
		handle = (*repair).take
	}
	r.open(t, src, handle)
	t.body = answerBody{t: t, src: src, repair: r}
	return &t.body
}

// answerBody is the mended body of an answer, with the repair lent to it.
type answerBody struct {
	t      *try
	src    io.ReadCloser
	repair *repair // nil: it is closed
}

// Read implements io.Reader.
func (a *answerBody) Read(p []byte) (int, error) {
	if a.repair == nil {
		return 0, errClosed
	}
	return a.repair.Read(p)
}

// Close ends the answer. A whole one is read to the end of its body first, so that the
// connection can serve the next request.
func (a *answerBody) Close() error {
	r := a.repair
	if r == nil {
		return nil
	}
	a.repair = nil
	if r.done {
		a.t.wait(drainTimeout)
		drain(a.src, r.fr.buf)
	}
	err := a.src.Close()
	if r.small() {
		r.open(nil, nil, nil)
		a.t.m.repairs.Put(r)
	}
	return err
}

// drain reads what is left of a body, if that is little. It fails on a connection that is then dropped.
func drain(src io.Reader, buf []byte) {
	for left := bufferSize; left > 0; {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		left -= n
	}
}
