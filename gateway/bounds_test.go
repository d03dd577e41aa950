package gateway_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/gateway"
)

// arrivals is a listener whose connections come from addresses of the test's choice.
type arrivals struct {
	net.Listener
	come chan net.Conn
}

type from struct {
	net.Conn
	addr   net.Addr
	closed chan struct{}
	once   sync.Once
}

func (f *from) RemoteAddr() net.Addr { return f.addr }

func (f *from) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Conn.Close()
}

func (a *arrivals) Accept() (net.Conn, error) {
	c := <-a.come
	if c == nil {
		return nil, net.ErrClosed
	}
	return c, nil
}

// arrive lets a connection come, and says whether it got a place.
func (a *arrivals) arrive(t *testing.T, l net.Listener, address string) (got net.Conn, ok bool) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { there.Close() })
	var addr net.Addr = &net.UnixAddr{Name: address, Net: "unix"}
	if tcp, err := net.ResolveTCPAddr("tcp", address); err == nil {
		addr = tcp
	}
	c := &from{Conn: here, addr: addr, closed: make(chan struct{})}
	taken := make(chan net.Conn, 1)
	go func() {
		got, _ := l.Accept() // nil: it was told to end
		taken <- got
	}()
	a.come <- c
	select {
	case got := <-taken:
		return got, true
	case <-c.closed:
	}
	a.come <- nil // ends the Accept that refused it
	<-taken
	return nil, false
}

func TestConnectionsAreBoundedForAllAndForEachAddress(t *testing.T) {
	a := &arrivals{come: make(chan net.Conn)}
	refused := 0
	l := gateway.LimitConnections(a, 8, 2, func() { refused++ })
	var open []net.Conn
	for i, c := range []struct {
		address string
		ok      bool
	}{
		{"192.0.2.1:1", true},
		{"192.0.2.1:2", true},
		{"192.0.2.1:3", false},
		{"[::ffff:192.0.2.1]:4", false},
		{"[2001:db8::1]:1", true},
		{"[2001:db8::2]:1", true},
		{"[2001:db8::3]:1", false},
		{"127.0.0.1:1", true}, // this machine has no bound of its own
		{"127.0.0.1:2", true},
		{"[::1]:3", true},
		{"a socket", true},
		{"198.51.100.1:1", false}, // there are eight, which is as many as there may be, whoever comes
		{"127.0.0.1:4", false},
		{"another socket", false},
	} {
		got, ok := a.arrive(t, l, c.address)
		if ok != c.ok {
			t.Errorf("connection %d, from %s: a place %v", i, c.address, ok)
		}
		if ok {
			open = append(open, got)
		}
	}
	open[0].Close()
	open[0].Close() // gives one place back, and no more
	if _, ok := a.arrive(t, l, "192.0.2.1:5"); !ok {
		t.Error("a place that was given back is not given again")
	}
	if _, ok := a.arrive(t, l, "192.0.2.1:6"); ok {
		t.Error("closing a connection twice gave two places back")
	}
	if refused != 7 {
		t.Errorf("%d were refused", refused)
	}
}

func TestOneConnectionTooManyIsClosedAndItsPlaceComesBack(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := gateway.LimitConnections(inner, 1, 0, nil)
	defer l.Close()
	served := make(chan net.Conn, 3)
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first := <-served
	second := dial()
	_ = second.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := second.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("one too many got %d bytes, %v", n, err)
	}
	first.Close()
	third := dial()
	if c := <-served; c.RemoteAddr().String() != third.LocalAddr().String() {
		t.Errorf("%s got the place", c.RemoteAddr())
	}
	l.Close()
	for c := range served {
		c.Close()
	}
}
