package plainhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Pieces is a request's body that lies in memory in several places. It leaves from there, with the head in the same write.
type Pieces interface{ Pieces() net.Buffers }

// Ender is a request's context that may end the request also before it is done, without the cost of a context of its own.
type Ender interface {
	// Ends is given what ends the request. false: it is ended already. What was given may be called by any goroutine, but not after Over.
	Ends(end func()) bool
	// Over takes it back: the request is over. false: it was called.
	Over() bool
}

// conn is a connection. While a request is under way it belongs to the goroutine that asks.
type conn struct {
	addr  string
	nc    net.Conn
	raw   syscall.RawConn // nil where there is none
	since time.Time       // waits for a request from then on

	used     bool            // it has waited
	halt     func()          // ends a read or a write
	asking   asking          // a request that is sent in one go, while it is
	ctx      context.Context //nolint:containedctx // of the request under way, whose body is read later
	ender    Ender           // the same, if it is one
	stop     func() bool     // what ends a read or a write when ctx does, no more
	sent     chan struct{}   // closed when a request has left that is written while its answer is read; nil: it has
	sendErr  error           // what came of it
	br       *bufio.Reader
	left     int64 // bytes that may still be read
	reusable bool
}

func newConn(addr string, nc net.Conn) *conn {
	c := &conn{addr: addr, nc: nc}
	c.halt = func() { _ = c.nc.SetDeadline(time.Unix(1, 0)) }
	c.asking.step = c.step
	if sc, ok := nc.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn() // without it a closed connection shows when it is used
	}
	return c
}

// begin binds a connection to a request.
func (c *conn) begin(ctx context.Context) {
	c.ctx, c.left = ctx, maxHead
	c.stop = context.AfterFunc(ctx, c.halt)
	if c.ender, _ = ctx.(Ender); c.ender != nil && !c.ender.Ends(c.halt) {
		c.halt()
	}
}

// end frees it from the request; false when that has ended it, or is just doing so.
func (c *conn) end() bool {
	free := c.stop()
	if c.ender != nil && !c.ender.Over() {
		free = false
	}
	c.ctx, c.ender, c.stop = nil, nil, nil
	return free
}

// drop closes a connection whose request has failed or is not read to its end.
func (c *conn) drop() {
	c.end()
	_ = c.nc.Close()
	if c.sent != nil {
		<-c.sent // the request is read no more
		c.sent = nil
	}
}

// Read implements io.Reader for what reads the answer.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the head of the answer is longer than %d bytes", maxHead)
	}
	n, err := c.nc.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if err != nil && c.ctx != nil && c.ctx.Err() != nil {
		err = context.Cause(c.ctx)
	}
	return n, err
}

// errStale: a connection that waited cannot be used. Nothing was sent.
var errStale = errors.New("the server has closed the connection")

// asking is what asks in one go.
type asking struct {
	r    *http.Request // nil: it was tried
	head *[]byte
	err  error
	step func(uintptr) bool // made once, of the connection
}

// send writes a request whose head stands in buf.
func (c *conn) send(buf *[]byte, r *http.Request) error {
	head := *buf
	if r.ContentLength == 0 {
		_, err := c.nc.Write(head)
		return err
	}
	if p, ok := r.Body.(Pieces); ok {
		all := append(make(net.Buffers, 0, 16), head)
		all = append(all, p.Pieces()...)
		n, err := all.WriteTo(c.nc)
		if err == nil && n != int64(len(head))+r.ContentLength {
			err = fmt.Errorf("the request has %d bytes instead of %d", n-int64(len(head)), r.ContentLength)
		}
		return err
	}
	if r.ContentLength <= atOnce {
		all := slices.Grow(head, int(r.ContentLength))[:len(head)+int(r.ContentLength)]
		*buf = all
		_, err := io.ReadFull(r.Body, all[len(head):])
		if err == nil {
			_, err = c.nc.Write(all)
		}
		return err
	}
	if _, err := c.nc.Write(head); err != nil {
		return err
	}
	_, err := io.CopyN(c.nc, r.Body, r.ContentLength)
	return err
}

// answer reads the head of the answer.
func (t *Transport) answer(c *conn, r *http.Request) (*http.Response, error) {
	for range maxInterim + 1 {
		if _, err := c.br.Peek(1); err != nil {
			if errors.Is(err, io.EOF) {
				err = errClosedEarly
			}
			return nil, err
		}
		arrived, _ := c.br.Peek(c.br.Buffered()) // of what is there: it cannot fail
		if k := t.known.Load(); k != nil && bytes.HasPrefix(arrived, k.bytes) {
			_, _ = c.br.Discard(len(k.bytes)) // the same
			c.left = math.MaxInt64
			return t.repeated(c, r, k), nil
		}
		there, head := len(arrived), bytes.Clone(whole(arrived))
		resp, err := http.ReadResponse(c.br, r)
		if err != nil {
			return nil, fmt.Errorf("read the head of the answer: %w", err)
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			c.left = math.MaxInt64
			if head != nil && there-c.br.Buffered() == len(head) && streams(resp) { // net/http ends it there, too
				k := &known{bytes: head, head: *resp}
				k.head.Body, k.head.Request = nil, nil
				t.known.Store(k)
			}
			resp.Body = &body{t: t, c: c, src: resp.Body}
			return resp, nil
		}
	}
	return nil, fmt.Errorf("more than %d interim answers", maxInterim)
}

// body is an answer's body. At its end the connection can serve the next request.
type body struct {
	t    *Transport
	c    *conn // nil: it has ended
	src  io.Reader
	last error
}

var errBodyClosed = errors.New("read of a closed body")

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.c == nil {
		return 0, b.last
	}
	n, err := b.src.Read(p)
	if err != nil {
		if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			b.c.reusable = false
		}
		b.last = err
		b.end()
	}
	return n, err
}

// Close implements io.Closer. It waits for nothing: a body that was not read to its end takes its connection along.
func (b *body) Close() error {
	if b.c != nil {
		b.c.reusable = false
		b.last = errBodyClosed
		b.end()
	}
	return nil
}

// end gives the connection back, or closes it.
func (b *body) end() {
	c := b.c
	b.c = nil
	if b.last == nil {
		b.last = io.EOF
	}
	free := c.reusable && c.br.Buffered() == 0 && c.written()
	c.br.Reset(nil)
	b.t.readers.Put(c.br)
	c.br = nil
	if free && c.end() {
		b.t.put(c)
		return
	}
	if c.stop == nil { // the request ended meanwhile
		_ = c.nc.Close()
		return
	}
	c.drop()
}

// written says whether the request has left as a whole.
func (c *conn) written() bool {
	if c.sent == nil {
		return true
	}
	select {
	case <-c.sent:
		c.sent = nil
		return c.sendErr == nil
	default:
		return false
	}
}

// place is where to connect to for a host.
type place struct{ host, addr string }

// address is where to connect to: mostly where it was the last time.
func (t *Transport) address(r *http.Request) string {
	if p := t.place.Load(); p != nil && p.host == r.URL.Host {
		return p.addr
	}
	port := r.URL.Port()
	if port == "" {
		port = "80"
	}
	host := r.URL.Hostname()
	if ascii, err := httpguts.PunycodeHostPort(host); err == nil {
		host = ascii
	}
	p := &place{r.URL.Host, net.JoinHostPort(host, port)}
	t.place.Store(p)
	return p.addr
}

// appendHead writes the head of a request.
func appendHead(b []byte, r *http.Request) []byte {
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	if ascii, err := httpguts.PunycodeHostPort(host); err == nil {
		host = ascii
	}
	b = append(append(append(b, r.Method...), ' '), r.URL.RequestURI()...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), host...)
	if r.Method == http.MethodPost || r.ContentLength > 0 {
		b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), r.ContentLength, 10)
	}
	b = append(b, "\r\n"...)
	for name, values := range r.Header {
		if name == "Host" || name == "Content-Length" || name == "Transfer-Encoding" || name == "Connection" {
			continue // decided here
		}
		for _, v := range values {
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	return append(b, "\r\n"...)
}
