package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
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
)

// try is one request and its answer. It is the HTTP client that go-openai is given for it.
type try struct {
	m     *Model
	req   *model.Request
	n     int
	key   string
	watch *time.Timer // ends the request when it fires: nothing has arrived for long, or all of it takes too long
	ends  time.Time   // when it takes too long
	began atomic.Bool // a byte of the answer arrived

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
	tctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &try{m: m, req: req, n: n, key: strings.TrimSpace(key), ends: time.Now().Add(m.opts.RequestTimeout)}
	t.watch = time.AfterFunc(min(m.opts.FirstByteTimeout, m.opts.RequestTimeout), func() { cancel(t.overdue()) })
	defer t.watch.Stop()
	if req.XML {
		emit = xmltools.NewReader(req.Tools, emit).Take
	}

	if m.opts.API == Responses {
		err = t.responses(tctx, emit)
	} else {
		err = t.chat(tctx, emit)
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
	return t.typed(context.Cause(tctx), err)
}

// client returns a go-openai client that is bound to this try.
func (t *try) client() *goopenai.Client {
	cfg := goopenai.DefaultConfig(t.key)
	cfg.BaseURL = t.m.opts.BaseURL
	cfg.HTTPClient = t
	return goopenai.NewClientWithConfig(cfg)
}

// Do implements go-openai's HTTPDoer: it puts the kept bytes into the request, and gives back
// either a response whose body is mended, or a typed error.
func (t *try) Do(hr *http.Request) (*http.Response, error) {
	if err := t.splice(hr); err != nil {
		return nil, err
	}
	if t.req.Agent != "" { // the scripted model chooses its rules by it
		hr.Header.Set("X-Troupe-Agent", headerValue(t.req.Agent))
	}
	telemetry.Leave(hr.Context(), hr.Header)
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

// splice replaces the body that go-openai encoded without messages by one that carries the
// kept bytes of the system prompt, the messages and the tools.
func (t *try) splice(hr *http.Request) error {
	shell, err := shellOf(hr)
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	gap, open := `"messages":null`, `"messages":[`
	if t.m.opts.API == Responses {
		gap, open = `"input":null`, `"input":[`
	}
	before, after, ok := bytes.Cut(shell, []byte(gap))
	if !ok {
		return errors.New("the request has no place for its messages")
	}
	p, first := t.req.Prompt, true
	parts := make([][]byte, 0, 8+len(p.Sealed)+len(p.Messages)-len(p.Sealed)*messages.SegmentSize)
	parts = append(parts, before, []byte(open))
	if text := t.system(); text != "" && t.m.opts.API == Chat {
		system := append(make([]byte, 0, len(text)+len(text)/8+48), `{"role":"system","content":`...)
		parts = append(parts, append(appendString(system, text), '}'))
		first = false
	}
	parts = append(appendMessages(parts, p, t.m.codec(t.req), first), []byte{']'})
	if tools := t.m.tools.encoded(t.req.Tools); tools != nil && !t.req.XML {
		parts = append(parts, []byte(`,"tools":`), tools)
	}
	carry(hr, append(parts, after), t.m.direct)
	return nil
}

// system is the system prompt, with the tools where they are offered in text.
func (t *try) system() string {
	if !t.req.XML {
		return t.req.Prompt.System
	}
	return t.req.Prompt.System + string(t.m.texts.encoded(t.req.Tools))
}

// shellOf reads what go-openai has encoded.
func shellOf(hr *http.Request) ([]byte, error) {
	if hr.ContentLength <= 0 {
		return io.ReadAll(hr.Body)
	}
	shell := make([]byte, hr.ContentLength)
	_, err := io.ReadFull(hr.Body, shell)
	return shell, err
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
func (t *try) wait(d time.Duration) { t.watch.Reset(min(d, time.Until(t.ends))) }

// overdue says what the watch has run out of.
func (t *try) overdue() error {
	if time.Now().Before(t.ends) {
		return errSlow
	}
	return errLong
}

// answerBody is the mended body of an answer, with the buffers lent to it.
type answerBody struct {
	io.Reader
	t    *try
	src  io.ReadCloser
	lent *buffers
	fr   *framer
	out  *[]byte
	done *bool // the answer was whole: the rest of the body is worth waiting for
}

// Close ends the answer. A whole one is read to the end of its body first, so that the
// connection can serve the next request.
func (a *answerBody) Close() error {
	if a.lent == nil {
		return nil
	}
	if *a.done {
		a.t.wait(drainTimeout)
		_, _ = io.CopyN(io.Discard, a.src, bufferSize) // fails on a connection that is then dropped
	}
	err := a.src.Close()
	const keep = 8 * bufferSize
	if len(a.fr.buf) <= keep && cap(*a.out) <= keep && cap(a.fr.joined) <= keep {
		a.lent.in, a.lent.joined, a.lent.out = a.fr.buf, a.fr.joined[:0], (*a.out)[:0]
		a.t.m.bufs.Put(a.lent)
	}
	a.lent, a.fr.buf, a.fr.joined, *a.out = nil, nil, nil, nil
	return err
}
