package plainhttp_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/internal/plainhttp"
)

// FuzzAnswer: whatever a server writes, the answer ends, and a second request gets one of its own or an error.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 103 x\r\n\r\nHTTP/1.0 200\r\n\r\n", "HTTP/1.1 304 x\r\n\r\n", "\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		server, client := net.Pipe()
		var served sync.WaitGroup
		served.Go(func() {
			defer server.Close()
			if _, _, err := request(bufio.NewReader(server)); err == nil {
				_, _ = server.Write(answer)
			}
		})
		defer served.Wait()
		rt := &plainhttp.Transport{Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
		defer rt.CloseIdleConnections()
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		resp, err := rt.RoundTrip(post(ctx, t, "http://model.example/v1", strings.NewReader("ask")))
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if ctx.Err() != nil {
			t.Errorf("it did not end: %v", err)
		}
	})
}
