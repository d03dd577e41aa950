package plainhttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/internal/plainhttp"
)

// TestAHeadThatIsKnownIsReadAsTheFirstTime: the second answer with the same head is not parsed, and is the same answer.
func TestAHeadThatIsKnownIsReadAsTheFirstTime(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: 7\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, c := range map[string]struct {
		second string
		body   string
		fails  string
		again  bool // its connection serves a third request
	}{
		"the same":            {head + "3\r\nyes\r\n0\r\n\r\n", "yes", "", true},
		"another body":        {head + "1\r\nn\r\n1\r\no\r\n0\r\n\r\n", "no", "", true},
		"an empty body":       {head + "0\r\n\r\n", "", "", true},
		"trailers":            {head + "3\r\nyes\r\n0\r\nA: b\r\nC: d\r\n\r\n", "yes", "", true},
		"trailers of nothing": {head + "3\r\nyes\r\n0\r\nA b\r\n\r\n", "yes", "malformed MIME", false},
		"a trailer of 8 KiB":  {head + "3\r\nyes\r\n0\r\nA: " + strings.Repeat("b", 8<<10) + "\r\n\r\n", "yes", "buffer full", false},
		"more than an answer": {head + "3\r\nyes\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "yes", "", false},
		"another head":        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", "no", "", true},
		"a longer head":       {strings.TrimSuffix(head, "\r\n") + "Connection: close\r\n\r\n2\r\nno\r\n0\r\n\r\n", "no", "", false},
		"half a body":         {head + "3\r\nye", "ye", "unexpected EOF", false},
		"no end of the body":  {head + "3\r\nyes\r\n", "yes", "unexpected EOF", false},
		"half an end":         {head + "3\r\nyes\r\n0\r\n", "yes", "unexpected EOF", false},
		"a chunk of no size":  {head + "zz\r\nyes\r\n0\r\n\r\n", "", "invalid", false},
		"a chunk too short":   {head + "2\r\nyes\r\n0\r\n\r\n", "ye", "malformed chunked", false},
		"half a head":         {head[:40], "", "unexpected EOF", false},
	} {
		t.Run(name, func(t *testing.T) {
			cut := c.fails == "unexpected EOF"
			list := []string{head + "3\r\nyes\r\n0\r\n\r\n", c.second, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthird"}
			var mu sync.Mutex
			url, count := raw(t, func(_ int, conn net.Conn, r *bufio.Reader) {
				for {
					if _, _, err := request(r); err != nil {
						return
					}
					mu.Lock()
					a := list[0]
					list = list[1:]
					mu.Unlock()
					_, _ = io.WriteString(conn, a)
					if cut && a == c.second {
						return
					}
				}
			})
			rt := transport(t)
			if b, resp, err := ask(t, rt, url); err != nil || b != "yes" || resp.Header.Get("X-Request-Id") != "7" {
				t.Fatalf("first: %q, %v, %v", b, resp, err)
			}
			b, _, err := ask(t, rt, url)
			if b != c.body || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("second: %q, %v; want %q and an error with %q", b, err, c.body, c.fails)
			}
			if b, _, err := ask(t, rt, url); err != nil || b != "third" {
				t.Errorf("third: %q, %v", b, err)
			}
			if got := count.Load() == 1; got != c.again {
				t.Errorf("%d connections for three requests", count.Load())
			}
		})
	}
}

// ended is a context that ends its request without being done.
type ended struct {
	context.Context
	mu    sync.Mutex
	end   func()
	over  bool
	bound chan struct{} // has one when a request can be ended
}

func (e *ended) Ends(end func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end = end
	select {
	case e.bound <- struct{}{}:
	default:
	}
	return !e.over
}

func (e *ended) Over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end = nil
	return !e.over
}

func (e *ended) now() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.end != nil {
		e.end()
	}
}

func TestAnEnderEndsEachPartOfARequest(t *testing.T) {
	for name, server := range map[string]func(end func(), c net.Conn, r *bufio.Reader){
		"before the head": func(end func(), _ net.Conn, r *bufio.Reader) { _, _, _ = request(r); end() },
		"in the head": func(end func(), c net.Conn, r *bufio.Reader) {
			_, _, _ = request(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-")
			end()
		},
		"in the body": func(end func(), c net.Conn, r *bufio.Reader) {
			_, _, _ = request(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n")
			end()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := &ended{Context: t.Context(), bound: make(chan struct{}, 1)}
			over := make(chan struct{})
			url, count := raw(t, func(n int, conn net.Conn, r *bufio.Reader) {
				if n > 1 {
					answers("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")(n, conn, r)
					return
				}
				server(ctx.now, conn, r)
				<-over
			})
			defer close(over)
			rt := transport(t)
			resp, err := rt.RoundTrip(post(ctx, t, url, strings.NewReader("ask")))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if err == nil || t.Context().Err() != nil {
				t.Errorf("got %v", err)
			}
			if ctx.end != nil {
				t.Error("what ends it is kept")
			}
			if _, err := rt.RoundTrip(post(ctx, t, url, strings.NewReader("ask"))); err == nil {
				t.Error("what is over asks again")
			}
			if b, _, err := ask(t, rt, url); err != nil || b != "yes" || count.Load() < 2 {
				t.Errorf("the next request: %q, %v, %d connections", b, err, count.Load())
			}
		})
	}
}

func TestAnEnderEndsADial(t *testing.T) {
	ctx := &ended{Context: t.Context(), bound: make(chan struct{}, 1)}
	rt := &plainhttp.Transport{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	go func() {
		<-ctx.bound
		ctx.now()
	}()
	if _, err := rt.RoundTrip(post(ctx, t, "http://model.example/v1", strings.NewReader("ask"))); !errors.Is(err, context.Canceled) || t.Context().Err() != nil {
		t.Errorf("got %v", err)
	}
}

// TestAHeadWithBareLineEndsIsNotTakenForALongerOne: net/http reads a head that ends without returns, and the first empty line that has them stands
// behind the body.
func TestAHeadWithBareLineEndsIsNotTakenForALongerOne(t *testing.T) {
	for _, head := range []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\n\n", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\r\n", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\r\n\r\n"} {
		answer := head + "3\r\nyes\r\n0\r\n\r\n"
		url, _ := raw(t, answers(answer, answer, answer))
		rt := transport(t)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			resp, err := rt.RoundTrip(post(ctx, t, url, strings.NewReader("ask")))
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "yes" {
				t.Errorf("%q: got %q, %v", head, b, err)
			}
			resp.Body.Close()
			cancel()
		}
	}
}

// FuzzAgain: the answer that net/http reads and the same one once more, whose head is known then, say the same.
func FuzzAgain(f *testing.F) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, s := range []string{
		head + "3\r\nyes\r\n0\r\n\r\n", head + "3\r\nyes\r\n0\r\nA: b\r\n\r\n", head + "3;x=y\r\nyes\r\n0\r\n\r\nHTTP/1.1", head + "0\r\n\r\n", head + "2\r\nno\r\n1",
		"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\r\nyes\r\n0\r\n\r\n", "HTTP/1.1 103 x\r\n\r\n" + head + "3\r\nyes\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		var served sync.WaitGroup
		defer served.Wait()
		rt := &plainhttp.Transport{Dial: func(context.Context, string, string) (net.Conn, error) {
			server, client := net.Pipe()
			served.Go(func() {
				defer server.Close()
				r := bufio.NewReader(server)
				if _, _, err := request(r); err == nil {
					_, _ = server.Write(answer)
				}
			})
			return client, nil
		}}
		defer rt.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		one := func() (head http.Header, body string, failed bool) {
			resp, err := rt.RoundTrip(post(ctx, t, "http://model.example/v1", strings.NewReader("ask")))
			if err != nil {
				return nil, "", true
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return resp.Header, string(b), err != nil
		}
		_, first, failed := one()
		rt.CloseIdleConnections() // its server has gone
		_, second, failedAgain := one()
		if ctx.Err() != nil {
			t.Fatal("it did not end")
		}
		if first != second || failed != failedAgain {
			t.Errorf("%q (failed: %t), and then %q (failed: %t)", first, failed, second, failedAgain)
		}
	})
}

// TestAnAnswerThatIsThereBeforeItsRequestIsNotWaitedFor: what a new connection brings along is read, and one that has waited is not used when it has something to say.
func TestAnAnswerThatIsThereBeforeItsRequestIsNotWaitedFor(t *testing.T) {
	said := make(chan struct{}, 2)
	url, count := raw(t, func(n int, c net.Conn, r *bufio.Reader) {
		if n == 1 {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly")
			said <- struct{}{}
			_, _, _ = request(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			said <- struct{}{}
			_, _ = io.Copy(io.Discard, r)
			return
		}
		answers("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")(n, c, r)
	})
	first := true
	rt := &plainhttp.Transport{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if first {
			first = false
			<-said
		}
		return c, err
	}}
	defer rt.CloseIdleConnections()
	if b, _, err := ask(t, rt, url); err != nil || b != "early" {
		t.Fatalf("%q, %v", b, err)
	}
	<-said
	if b, _, err := ask(t, rt, url); err != nil || b != "yes" || count.Load() != 2 {
		t.Errorf("%q, %v, %d connections", b, err, count.Load())
	}
}
