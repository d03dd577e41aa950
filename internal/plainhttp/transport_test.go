package plainhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/plainhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// transport is one that ends with the test.
func transport(t testing.TB) *plainhttp.Transport {
	t.Helper()
	rt := &plainhttp.Transport{}
	t.Cleanup(rt.CloseIdleConnections)
	return rt
}

// raw is a server that does with each connection what handle does, and counts them.
func raw(t testing.TB, handle func(n int, c net.Conn, r *bufio.Reader)) (addr string, count *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	count = new(atomic.Int32)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := int(count.Add(1))
			served.Go(func() {
				defer c.Close()
				handle(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		served.Wait()
	})
	return "http://" + l.Addr().String() + "/v1/chat", count
}

// request reads one request of a connection to its end.
func request(r *bufio.Reader) (*http.Request, []byte, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, nil, err
	}
	b, err := io.ReadAll(req.Body)
	return req, b, err
}

func post(ctx context.Context, t testing.TB, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask sends a small request and reads the answer to its end.
func ask(t testing.TB, rt http.RoundTripper, url string) (string, *http.Response, error) {
	t.Helper()
	resp, err := rt.RoundTrip(post(t.Context(), t, url, strings.NewReader("ask")))
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), resp, err
}

// pieces is a body in several places.
type pieces struct {
	io.Reader
	parts net.Buffers
}

func (p *pieces) Pieces() net.Buffers { return p.parts }
func (p *pieces) Close() error        { return nil }

func TestARequestArrivesAsItWasMeant(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	for name, body := range map[string]func(r *http.Request) string{
		"of a reader": func(*http.Request) string { return "ask" },
		"of pieces": func(r *http.Request) string {
			r.Body, r.ContentLength = &pieces{parts: net.Buffers{[]byte("one "), nil, []byte("two")}}, 7
			return "one two"
		},
		"long": func(r *http.Request) string {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(long)), int64(len(long))
			return long
		},
		"of long pieces": func(r *http.Request) string {
			r.Body, r.ContentLength = &pieces{parts: net.Buffers{[]byte(long), []byte(long)}}, int64(2*len(long))
			return long + long
		},
		"empty": func(r *http.Request) string {
			r.Body, r.ContentLength = http.NoBody, 0
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got *http.Request
			var said []byte
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
				said, _ = io.ReadAll(r.Body)
				_, _ = io.WriteString(w, "yes")
			}))
			defer srv.Close()
			rt := transport(t)
			r := post(t.Context(), t, srv.URL+"/v1/a%20b?q=1", strings.NewReader("ask"))
			r.Header.Set("Authorization", "Bearer k")
			r.Header["X-Two"] = []string{"a", "b"}
			want := body(r)
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "yes" {
				t.Errorf("answer %q, %v", b, err)
			}
			if string(said) != want {
				t.Errorf("the server read %d bytes, not the %d that were sent", len(said), len(want))
			}
			if got.RequestURI != "/v1/a%20b?q=1" || got.Host != strings.TrimPrefix(srv.URL, "http://") || got.Method != http.MethodPost {
				t.Errorf("the server saw %s %s of %s", got.Method, got.RequestURI, got.Host)
			}
			if got.Header.Get("Authorization") != "Bearer k" || fmt.Sprint(got.Header["X-Two"]) != "[a b]" || len(got.TransferEncoding) > 0 {
				t.Errorf("the server saw headers %v, encodings %v", got.Header, got.TransferEncoding)
			}
		})
	}
}

func TestWhatCannotBeSentIsRefusedBeforeAnythingLeaves(t *testing.T) {
	url, count := raw(t, func(int, net.Conn, *bufio.Reader) {})
	for name, spoil := range map[string]func(r *http.Request){
		"a line break in a header":   func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret-key\r\nX-Evil: 1") },
		"a header name with a space": func(r *http.Request) { r.Header["X Y"] = []string{"1"} },
		"an unknown length":          func(r *http.Request) { r.ContentLength = -1 },
		"a length that is missing":   func(r *http.Request) { r.ContentLength = 0 },
		"another scheme":             func(r *http.Request) { r.URL.Scheme = "https" },
		"no host":                    func(r *http.Request) { r.URL.Host = "" },
		"another method":             func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\n\r\nGET" },
	} {
		t.Run(name, func(t *testing.T) {
			r := post(t.Context(), t, url, strings.NewReader("ask"))
			spoil(r)
			resp, err := transport(t).RoundTrip(r)
			if err == nil {
				resp.Body.Close()
				t.Fatal("it was sent")
			}
			if strings.Contains(err.Error(), "secret-key") {
				t.Errorf("the error tells the key: %v", err)
			}
		})
	}
	if n := count.Load(); n != 0 {
		t.Errorf("%d connections were opened", n)
	}
}

// answers writes each of these to the next request of a connection, whatever it asks.
func answers(list ...string) func(int, net.Conn, *bufio.Reader) {
	return func(_ int, c net.Conn, r *bufio.Reader) {
		for _, a := range list {
			if _, _, err := request(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, a)
		}
		_, _ = io.Copy(io.Discard, r) // until the client closes
	}
}

func TestConnectionsAreUsedAgainWhereTheyCanBe(t *testing.T) {
	const plain = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes"
	for name, c := range map[string]struct {
		first string
		again bool
	}{
		"length":                      {plain, true},
		"chunks":                      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n", true},
		"no content":                  {"HTTP/1.1 204 No Content\r\n\r\n", true},
		"interim answers":             {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + plain, true},
		"told to close":               {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nyes", false},
		"an old protocol":             {"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nyes", false},
		"more than was promised":      {plain + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", false},
		"a protocol that is not ours": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			url, count := raw(t, func(n int, conn net.Conn, r *bufio.Reader) {
				if n == 1 {
					answers(c.first, plain)(n, conn, r)
				} else {
					answers(plain)(n, conn, r)
				}
			})
			rt := transport(t)
			for i := range 2 {
				if _, _, err := ask(t, rt, url); err != nil {
					t.Fatalf("request %d: %v", i+1, err)
				}
			}
			if got := count.Load() == 1; got != c.again {
				t.Errorf("%d connections for two requests", count.Load())
			}
		})
	}
}

func TestAConnectionThatTheServerClosedIsNotUsed(t *testing.T) {
	closed := make(chan struct{})
	url, count := raw(t, func(n int, c net.Conn, r *bufio.Reader) {
		if _, _, err := request(r); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")
		}
		if n == 1 {
			_ = c.Close()
			close(closed)
		}
	})
	rt := transport(t)
	if _, _, err := ask(t, rt, url); err != nil {
		t.Fatal(err)
	}
	<-closed
	if b, _, err := ask(t, rt, url); err != nil || b != "yes" {
		t.Errorf("after the server closed: %q, %v", b, err)
	}
	if n := count.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

func TestAnswersThatAreNoneAreErrors(t *testing.T) {
	const begun = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, c := range map[string]struct{ answer, want string }{
		"nothing":             {"", "before it answered"},
		"half a head":         {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", "unexpected EOF"},
		"garbage":             {"SSH-2.0-OpenSSH_9\r\n\r\n", "malformed HTTP"},
		"a head without end":  {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2<<20), "longer than"},
		"interim without end": {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 1000), "interim"},
		"half a body":         {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nyes", "unexpected EOF"},
		"half a chunk":        {begun + "a\r\nyes", "unexpected EOF"},
		"a chunk of no size":  {begun + "zz\r\nyes\r\n", "invalid"},
		"two lengths":         {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nyes!", "Content-Length"},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := raw(t, func(_ int, conn net.Conn, r *bufio.Reader) {
				if _, _, err := request(r); err == nil {
					_, _ = io.WriteString(conn, c.answer)
				}
			})
			b, _, err := ask(t, transport(t), url)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v; want an error with %q", b, err, c.want)
			}
		})
	}
}

// A server may refuse what it has not read: its answer counts, and the request is not sent on for ever.
func TestARefusalInTheMiddleOfALongRequestIsRead(t *testing.T) {
	url, _ := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil { // its head
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 2\r\n\r\nno")
		_, _ = r.Discard(1 << 20)
		<-t.Context().Done()
	})
	long := &endless{}
	rt := transport(t)
	r := post(t.Context(), t, url, long)
	r.ContentLength = 64 << 20 // more than any socket holds
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusRequestEntityTooLarge || string(b) != "no" || err != nil {
		t.Errorf("%d %q %v", resp.StatusCode, b, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	long.mu.Lock()
	defer long.mu.Unlock()
	if !long.closed || long.late {
		t.Errorf("the request's body is closed: %t; read afterwards: %t", long.closed, long.late)
	}
}

var errGiven = errors.New("given up")

func TestACancelEndsEachPartOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		body   int
		server func(cancel func(), c net.Conn, r *bufio.Reader)
		begun  bool
	}{
		"before the head": {3, func(cancel func(), _ net.Conn, r *bufio.Reader) { _, _, _ = request(r); cancel() }, false},
		"in the head": {3, func(cancel func(), c net.Conn, r *bufio.Reader) {
			_, _, _ = request(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-")
			cancel()
		}, false},
		"while it is sent": {64 << 20, func(cancel func(), _ net.Conn, r *bufio.Reader) { _, _ = http.ReadRequest(r); cancel() }, false},
		"in the body": {3, func(cancel func(), c net.Conn, r *bufio.Reader) {
			_, _, _ = request(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			over := make(chan struct{})
			url, _ := raw(t, func(_ int, conn net.Conn, r *bufio.Reader) {
				c.server(func() { cancel(errGiven) }, conn, r)
				<-over
			})
			defer close(over)
			resp, err := transport(t).RoundTrip(post(ctx, t, url, bytes.NewReader(make([]byte, c.body))))
			if c.begun && err == nil {
				defer resp.Body.Close()
				if _, err := io.ReadFull(resp.Body, make([]byte, 3)); err != nil {
					t.Fatal(err)
				}
				cancel(errGiven)
				_, err = io.ReadAll(resp.Body)
				if !errors.Is(err, errGiven) {
					t.Errorf("the rest of the body: %v", err)
				}
				return
			}
			if !errors.Is(err, errGiven) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestABodyThatIsLeftTakesItsConnectionAlong(t *testing.T) {
	gone := make(chan struct{}, 1)
	url, count := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		_, _, _ = request(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n")
		_, _ = io.Copy(io.Discard, r)
		gone <- struct{}{}
	})
	rt := transport(t)
	for range 2 {
		resp, err := rt.RoundTrip(post(t.Context(), t, url, strings.NewReader("ask")))
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read after close: %d, %v", n, err)
		}
		<-gone
	}
	if n := count.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// Many at once, some of whom leave: nobody gets another's answer.
func TestManyAskAtOnce(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		for range 3 {
			_, _ = w.Write(b)
			w.(http.Flusher).Flush()
		}
	}))
	defer srv.Close()
	rt := transport(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for n := range 50 {
				if err := askOne(t, rt, srv.URL, fmt.Sprintf("%d of %d,", n, i), (n+i)%7 == 0); err != nil {
					t.Errorf("%d of %d: %v", n, i, err)
				}
			}
		})
	}
	all.Wait()
}

func askOne(t *testing.T, rt http.RoundTripper, url, text string, leave bool) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := rt.RoundTrip(post(ctx, t, url, strings.NewReader(text)))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if leave {
		cancel()
		return nil
	}
	b, err := io.ReadAll(resp.Body)
	if err == nil && string(b) != text+text+text {
		err = fmt.Errorf("answer %q", b)
	}
	return err
}

func TestAClosedTransportKeepsNoConnection(t *testing.T) {
	gone := make(chan struct{})
	url, _ := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		answers("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")(1, c, r)
		close(gone)
	})
	rt := transport(t)
	resp, err := rt.RoundTrip(post(t.Context(), t, url, strings.NewReader("ask")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	rt.CloseIdleConnections()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "yes" {
		t.Errorf("the answer under way: %q, %v", b, err)
	}
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Error("its connection stays open")
	}
}

func TestAConnectionThatNobodyNeedsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		var gone time.Duration
		began := time.Now()
		var served sync.WaitGroup
		served.Go(func() {
			answers("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")(1, server, bufio.NewReader(server))
			gone = time.Since(began)
		})
		rt := &plainhttp.Transport{Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
		if _, _, err := ask(t, rt, "http://model.example/v1"); err != nil {
			t.Fatal(err)
		}
		served.Wait()
		if gone != 90*time.Second {
			t.Errorf("it was closed after %v", gone)
		}
		rt.CloseIdleConnections()
	})
}
