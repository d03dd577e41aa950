package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// timed gives the body of a request its time, whether its handler reads it or not: net/http reads what is left of it before it answers,
// and without a bound a client that sends a piece of one keeps its connection for ever. Once the body has ended nothing is bounded any more, so that
// long polls and streams last. A body that was too slow keeps its bound, for the rest that net/http would read.
func timed(w http.ResponseWriter, r *http.Request, most time.Duration) *http.Request {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Time{}) // that of the answer before on this connection; each answer sets its own
	if r.ContentLength == 0 || rc.SetReadDeadline(time.Now().Add(most)) != nil {
		return r
	}
	in := r.WithContext(r.Context())
	in.Body = &timedBody{ReadCloser: r.Body, rc: rc, most: most}
	return in
}

type timedBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	most  time.Duration
	ended atomic.Bool
}

// Read passes the body on, and lifts its bound at its end.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !b.ended.Swap(true) {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// serve answers with a handler of somebody else's, under its own bound for the body.
func (m Mount) serve(w http.ResponseWriter, r *http.Request) {
	if b, timed := r.Body.(*timedBody); timed {
		bound := time.Time{}
		if m.BodyTime > 0 {
			bound = time.Now().Add(m.BodyTime)
		}
		_ = b.rc.SetReadDeadline(bound)
		defer func() {
			if !b.ended.Load() { // net/http reads what is left
				_ = b.rc.SetReadDeadline(time.Now().Add(b.most))
			}
		}()
	}
	m.Handler.ServeHTTP(w, r)
}

// bodiless refuses a body where none is read: what somebody says in it would be passed over in silence.
func (a *api) bodiless(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			a.fail(w, r, messages.Fail(messages.CodeBadRequest, r.Method+" "+r.URL.Path+" takes no body", "leave it out"))
			return
		}
		next(w, r)
	}
}

// LimitConnections bounds the connections of a listener: total at a time, and each of them from one address (of IPv6, from one network of 64 bits), where loopback
// is not counted, because a proxy on this machine comes from there. One too many is closed unread: whoever waited for a
// place would not know whether somebody is there. 0 is no bound. refused, which may be nil, hears of each that is closed.
func LimitConnections(l net.Listener, total, each int, refused func()) net.Listener {
	return &limited{Listener: l, total: total, each: each, refused: refused, from: make(map[netip.Prefix]int)}
}

type limited struct {
	net.Listener
	total, each int
	refused     func()

	mu   sync.Mutex
	open int
	from map[netip.Prefix]int // those that are open, by address
}

// Accept waits for a connection that there is a place for.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := network(c.RemoteAddr())
		if l.enter(from) {
			return &counted{Conn: c, leave: sync.OnceFunc(func() { l.left(from) })}, nil
		}
		_ = c.Close() // it is told nothing more
		if l.refused != nil {
			l.refused()
		}
	}
}

func (l *limited) enter(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total > 0 && l.open >= l.total || l.each > 0 && from.IsValid() && l.from[from] >= l.each {
		return false
	}
	l.open++
	if from.IsValid() {
		l.from[from]++
	}
	return true
}

func (l *limited) left(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.from[from]--; l.from[from] <= 0 {
		delete(l.from, from)
	}
}

// network is where a connection counts; nowhere, when it comes from this machine or by no network.
func network(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	if ip.IsLoopback() {
		return netip.Prefix{}
	}
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // not of an address that is none
	return p
}

// counted is a connection that gives its place back when it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
