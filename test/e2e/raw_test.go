package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// hello is how TLS begins, for a server that speaks it.
const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

// raws are bytes that are no request, or a strange one; ends says that the connection is closed after them whatever comes.
func raws() map[string]string {
	const host = "Host: localhost\r\n"
	return map[string]string{
		"nothing but ends of lines":      strings.Repeat("\r\n", 1000),
		"zeros":                          strings.Repeat("\x00", 4000),
		"noise":                          strings.Repeat("\xff\xfe\x80\r\n\r\n", 500),
		"TLS":                            hello + strings.Repeat("\x00", 500),
		"HTTP/2":                         "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"HTTP/0.9":                       "GET /\r\n\r\n",
		"HTTP/9.9":                       "GET / HTTP/9.9\r\n" + host + "\r\n",
		"a long line":                    "GET /" + strings.Repeat("a", 200_000) + " HTTP/1.1\r\n" + host + "\r\n",
		"a line without end":             "GET /" + strings.Repeat("a", 200_000),
		"many headers":                   "GET / HTTP/1.1\r\n" + host + strings.Repeat("A: b\r\n", 50_000) + "\r\n",
		"a long header":                  "GET / HTTP/1.1\r\n" + host + "A: " + strings.Repeat("b", 200_000) + "\r\n\r\n",
		"no host":                        "GET /livez HTTP/1.1\r\n\r\n",
		"two hosts":                      "GET /livez HTTP/1.1\r\n" + host + "Host: other\r\n\r\n",
		"a line break in a header":       "GET /api/sessions HTTP/1.1\r\n" + host + "Last-Event-ID: 1\rX-Smuggled: 1\r\n\r\n",
		"a folded header":                "GET /api/sessions HTTP/1.1\r\n" + host + "A: b\r\n X-Smuggled: 1\r\n\r\n",
		"NUL in a header":                "GET /api/sessions HTTP/1.1\r\n" + host + "A: b\x00c\r\n\r\n",
		"a header without name":          "GET /api/sessions HTTP/1.1\r\n" + host + ": b\r\n\r\n",
		"a space before the colon":       "POST /api/sessions HTTP/1.1\r\n" + host + "Content-Length : 2\r\n\r\n{}",
		"NUL in the path":                "GET /api/\x00sessions HTTP/1.1\r\n" + host + "\r\n",
		"a space in the path":            "GET /api/sessions/a b HTTP/1.1\r\n" + host + "\r\n",
		"no path":                        "GET HTTP/1.1\r\n" + host + "\r\n",
		"a path upwards":                 "GET /../../etc/passwd HTTP/1.1\r\n" + host + "\r\n",
		"a whole address":                "GET http://example.org/api/sessions HTTP/1.1\r\n" + host + "\r\n",
		"a wish for a proxy":             "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n",
		"a star":                         "OPTIONS * HTTP/1.1\r\n" + host + "\r\n",
		"a trace":                        "TRACE / HTTP/1.1\r\n" + host + "X-Smuggled: 1\r\n\r\n",
		"a length below zero":            "POST /api/sessions HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n",
		"a length that is none":          "POST /api/sessions HTTP/1.1\r\n" + host + "Content-Length: 0x2\r\n\r\n{}",
		"a length over the end":          "POST /api/sessions HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n",
		"two lengths":                    "POST /api/sessions HTTP/1.1\r\n" + host + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"a length and pieces":            "POST /api/sessions HTTP/1.1\r\n" + host + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"pieces of no size":              "POST /api/sessions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
		"a piece over the end":           "POST /api/sessions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n",
		"pieces of another kind":         "POST /api/sessions HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"pieces with long remarks":       "POST /api/sessions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("a", 100_000) + "\r\n{\r\n",
		"a body where none is":           "GET /api/sessions HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}",
		"a WebSocket of HTTP/1.0":        "GET /ws HTTP/1.0\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		"a WebSocket with a short key":   "GET /ws HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n\r\n",
		"a WebSocket with noise":         "GET /ws HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" + strings.Repeat("\xff", 1000),
		"a WebSocket with a huge frame":  "GET /ws HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00abc",
		"a WebSocket without masks":      "GET /ws HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n\x81\x02{}",
		"a request within a request":     "POST /api/sessions HTTP/1.1\r\n" + host + "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}GET /livez HTTP/1.1\r\n" + host + "\r\n",
		"a token with a line break":      "GET /api/sessions HTTP/1.1\r\n" + host + "Authorization: Bearer a\nX-Smuggled: 1\r\n\r\n",
		"what is expected and not known": "POST /api/sessions HTTP/1.1\r\n" + host + "Expect: the-unexpected\r\nContent-Length: 2\r\n\r\n{}",
	}
}

// TestBytesThatAreNoRequestGetAnAnswerOrTheEnd sends them over raw connections, half of them closed on the sender's side.
func TestBytesThatAreNoRequestGetAnAnswerOrTheEnd(t *testing.T) {
	before := holdings()
	patience := 500 * time.Millisecond
	x := expose(t, gateway.Options{BodyTime: patience, Ping: patience}, gateway.Times{Header: patience, Idle: patience})
	var all sync.WaitGroup
	for what, text := range raws() {
		for _, half := range []bool{false, true} {
			all.Go(func() {
				got, err := x.raw(text, half)
				switch {
				case err != nil:
					t.Errorf("%s (half closed: %v): %v, after %.300q", what, half, err, got)
				case bytes.Contains(got, []byte("\nX-Smuggled")):
					t.Errorf("%s: a header was smuggled into the answer: %.300q", what, got)
				case half && bytes.HasPrefix(got, []byte("HTTP/1.1 503 ")): // it was given up, because its sender seemed to be gone
				case len(got) > 0 && !regexp.MustCompile(`^HTTP/1\.[01] (200|201|101|4\d\d|505|501) `).Match(got):
					t.Errorf("%s (half closed: %v): %.300q", what, half, got)
				}
			})
		}
	}
	all.Wait()
	if said := x.faults.take(); said != "" {
		t.Errorf("the log says %s", said)
	}
	if status, _ := x.get("/livez"); status != http.StatusOK {
		t.Errorf("in the end the server answers %d", status)
	}
	x.close()
	before.back(t)
}

// raw sends bytes and gives what comes back until the server closes the connection. One that never closes it hangs.
func (x *exposed) raw(text string, half bool) ([]byte, error) {
	c, err := net.Dial("tcp", x.address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, text); err != nil && !closed(err) {
		return nil, err
	}
	if half {
		if err := c.(*net.TCPConn).CloseWrite(); err != nil && !closed(err) {
			return nil, err
		}
	}
	got, err := io.ReadAll(c)
	if closed(err) {
		err = nil
	}
	return got, err
}

// closed says whether the other side has closed a connection, in its way.
func closed(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ENOTCONN)
}

// TestWhoSendsTooSlowlyIsCutOff holds back the header or the body, on every route and where nobody is let in.
func TestWhoSendsTooSlowlyIsCutOff(t *testing.T) {
	before := holdings()
	patience := 200 * time.Millisecond
	x := expose(t, gateway.Options{BodyTime: patience}, gateway.Times{Header: patience, Idle: patience})
	closedTo := expose(t, gateway.Options{BodyTime: patience, Authenticate: func(*http.Request) (gateway.Principal, error) {
		return gateway.Principal{}, messages.Fail(messages.CodeUnauthorized, "nobody is let in", "")
	}}, gateway.Times{Header: patience, Idle: patience})
	var all sync.WaitGroup
	slowly := func(of *exposed, request string) {
		all.Go(func() {
			switch got, err := of.raw(request, false); {
			case err != nil:
				t.Errorf("%.60q keeps its connection: %v, after %.200q", request, err, got)
			case len(got) > 0 && !regexp.MustCompile(`^HTTP/1\.1 (200|4\d\d) `).Match(got):
				t.Errorf("%.60q: %.300q", request, got)
			}
		})
	}
	for _, begun := range []string{"", "G", "GET /livez HTTP/1.1\r\nHost: localhost\r\n", "GET /livez HTTP/1.1\r\nHost: localhost\r\nA: "} {
		slowly(x, begun)
	}
	for _, o := range x.operations() {
		for _, of := range []*exposed{x, closedTo} {
			for _, length := range []string{"Content-Length: 1000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"} {
				path := strings.NewReplacer("{id}", "x", "{", "", "}", "").Replace(o.path)
				slowly(of, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s", o.method, path, length))
			}
		}
	}
	all.Wait()
	if said := x.faults.take() + closedTo.faults.take(); said != "" {
		t.Errorf("the log says %s", said)
	}
	x.close()
	closedTo.close()
	before.back(t)
}
