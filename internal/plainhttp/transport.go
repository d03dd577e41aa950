// Package plainhttp is an HTTP/1.1 client transport for one plain-text server that is asked by many at once, such as a
// model server on the same machine. A request is written and its answer read by the goroutine that asks; a
// connection that waits for its next request is a descriptor and nothing else. What net/http keeps for each
// connection, two goroutines and a buffer in each direction, is memory and switches that a thousand conversations
// notice. net/http reads the answers here, too: this package only decides who waits for them, and how long a connection lives.
package plainhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Bounds of a connection.
const (
	maxIdle     = 1024             // connections that wait for a request
	idleTimeout = 90 * time.Second // a connection that nobody needs is closed then
	maxHead     = 1 << 20          // bytes of an answer before its body
	maxInterim  = 5                // answers such as 103 before the one that counts
	atOnce      = 64 << 10         // bytes of a request that are written before the answer is read; more are written meanwhile
	bufferSize  = 4 << 10          // of a connection while it is read
)

// Transport implements http.RoundTripper for http addresses, by direct connections. The requests' length must be
// known. An answer's header may be another's, too: nobody may change it. It speaks neither to proxies nor TLS nor HTTP/2, follows nothing and tries nothing again.
type Transport struct {
	// Dial opens connections; nil: net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex
	idle   map[string][]*conn // by address; who came last is next
	count  int
	sweep  *time.Timer // runs while there are any
	closed bool

	heads   sync.Pool // *[]byte
	readers sync.Pool // *bufio.Reader
	known   atomic.Pointer[known]
	place   atomic.Pointer[place]
}

var errClosedEarly = errors.New("the server closed the connection before it answered")

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		c, err := t.begin(r)
		if err != nil {
			closeBody(r)
			return nil, err
		}
		ctx := r.Context()
		resp, err := t.exchange(c, r)
		if err == nil {
			return resp, nil
		}
		c.drop()
		switch {
		case errors.Is(err, errStale): // another one, then
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		default:
			return nil, err
		}
	}
}

// begin has a connection for a request that can be sent.
func (t *Transport) begin(r *http.Request) (*conn, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	ctx := r.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c, err := t.conn(ctx, t.address(r))
	if err == nil {
		c.begin(ctx)
	}
	return c, err
}

// closeBody is for whoever has read a request last.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // it was only read
	}
}

// exchange sends a request and reads the head of its answer.
func (t *Transport) exchange(c *conn, r *http.Request) (*http.Response, error) {
	small := r.ContentLength <= atOnce
	if !small && c.used && !c.open() {
		return nil, errStale
	}
	head, _ := t.heads.Get().(*[]byte)
	if head == nil {
		head = new([]byte)
	}
	*head = appendHead((*head)[:0], r)
	var sent error
	if small {
		sent = c.ask(head, r)
		t.heads.Put(head)
		if errors.Is(sent, errStale) {
			return nil, sent
		}
		closeBody(r)
	} else {
		done := make(chan struct{})
		c.sent = done
		go func() { // ends with the connection at the latest
			defer close(done)
			defer closeBody(r)
			c.sendErr = c.send(head, r)
		}()
	}
	if c.br, _ = t.readers.Get().(*bufio.Reader); c.br == nil {
		c.br = bufio.NewReaderSize(nil, bufferSize)
	}
	c.br.Reset(c)
	resp, err := t.answer(c, r)
	switch {
	case err != nil && sent != nil: // a server that refuses what it has not read may close at once: its answer counts, if there is one
		return nil, sent
	case err != nil:
		return nil, err
	}
	c.reusable = sent == nil && !resp.Close && resp.StatusCode != http.StatusSwitchingProtocols
	if b, ok := resp.Body.(*body); ok && resp.ContentLength == 0 {
		b.end()
	}
	return resp, nil
}

// check refuses what would not leave as it was meant.
func check(r *http.Request) error {
	switch {
	case r.URL == nil || r.URL.Scheme != "http" || r.URL.Host == "":
		return fmt.Errorf("send a request: %q is no http address", r.URL.Redacted())
	case r.Method != http.MethodPost && r.Method != http.MethodGet:
		return fmt.Errorf("send a request: method %q", r.Method)
	case r.ContentLength < 0 || r.Body != nil && r.Body != http.NoBody && r.ContentLength == 0:
		return errors.New("send a request: its length is not known")
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("send a request: invalid header name %q", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("send a request: invalid value of header %s", name) // not the value: it may be a key
			}
		}
	}
	return nil
}

// conn is a connection to the address: one that waits, or a new one.
func (t *Transport) conn(ctx context.Context, addr string) (*conn, error) {
	if c := t.take(addr); c != nil {
		return c, nil
	}
	dial := t.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	if e, ok := ctx.(Ender); ok {
		bound, cancel := context.WithCancel(ctx)
		defer cancel()
		if !e.Ends(cancel) {
			cancel()
		}
		defer e.Over() // the connection takes its place
		ctx = bound
	}
	nc, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return newConn(addr, nc), nil
}

func (t *Transport) take(addr string) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[addr]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	t.idle[addr] = list[:len(list)-1]
	t.count--
	return c
}

// put keeps a connection for the next request, or closes it.
func (t *Transport) put(c *conn) {
	c.since, c.used = time.Now(), true
	t.mu.Lock()
	keep := !t.closed && t.count < maxIdle
	if keep {
		if t.idle == nil {
			t.idle = map[string][]*conn{}
		}
		t.idle[c.addr] = append(t.idle[c.addr], c)
		t.count++
		if t.sweep == nil {
			t.sweep = time.AfterFunc(idleTimeout, t.expire)
		}
	}
	t.mu.Unlock()
	if !keep {
		_ = c.nc.Close()
	}
}

// expire closes what has waited for long, and looks again when the next one will have.
func (t *Transport) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, next := time.Now(), time.Duration(0)
	for addr, list := range t.idle {
		n := 0
		for n < len(list) && now.Sub(list[n].since) >= idleTimeout {
			_ = list[n].nc.Close()
			n++
		}
		t.count -= n
		list = append([]*conn(nil), list[n:]...)
		if len(list) == 0 {
			delete(t.idle, addr)
			continue
		}
		t.idle[addr] = list
		if left := idleTimeout - now.Sub(list[0].since); next == 0 || left < next {
			next = left
		}
	}
	t.sweep = nil
	if next > 0 && !t.closed {
		t.sweep = time.AfterFunc(next, t.expire)
	}
}

// CloseIdleConnections closes the connections that wait; those of requests under way are closed with them.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, list := range t.idle {
		for _, c := range list {
			_ = c.nc.Close()
		}
	}
	t.idle, t.count = nil, 0
	if t.sweep != nil {
		t.sweep.Stop()
		t.sweep = nil
	}
}
