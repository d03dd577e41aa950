package plainhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/internal/plainhttp"
)

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomAnswer is an answer to the request that says n, as servers give them: well, oddly, with too much or too little. Only its body says n.
func randomAnswer(r *rand.Rand, n string) []byte {
	said := strings.Repeat(n+" ", 1+r.IntN(oneOf(r, 4, 3000)))
	var b bytes.Buffer
	b.WriteString(oneOf(r, "", "", "", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"))
	end := oneOf(r, "\r\n", "\r\n", "\r\n", "\n")
	b.WriteString("HTTP/1.1 " + oneOf(r, "200 OK", "200 OK", "200 OK", "500 No") + end)
	b.WriteString(oneOf(r, "", "", "Content-Type: text/event-stream"+end, "X-Request-Id: "+n+end, "Connection: close"+end))
	switch r.IntN(8) {
	case 0:
		b.WriteString("Content-Length: " + strconv.Itoa(len(said)) + end + end + said)
	case 1:
		b.WriteString(end + said) // to the end of the connection
	default:
		b.WriteString("Transfer-Encoding: chunked" + end + oneOf(r, end, "\r\n"))
		for rest := said; rest != ""; {
			k := min(len(rest), 1+r.IntN(oneOf(r, 5, 500, 9000)))
			fmt.Fprintf(&b, "%x%s\r\n%s\r\n", k, oneOf(r, "", "", "", ";ext=1", "; a=\"b\""), rest[:k])
			rest = rest[k:]
		}
		b.WriteString("0\r\n" + oneOf(r, "", "", "", "Trailer: x\r\n", "A: 1\r\nB: 2\r\n") + "\r\n")
	}
	b.WriteString(oneOf(r, "", "", "", "", "", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "\r\n")) // what nobody asked for
	out := b.Bytes()
	if r.IntN(4) == 0 {
		out = out[:r.IntN(len(out))]
	}
	return out
}

// readAlone is what net/http makes of an answer that it reads alone. fine is false when it is none, or not a whole one; ends is false when only the end
// of the connection ends it.
func readAlone(answer []byte) (body string, fine, ends bool) {
	br := bufio.NewReader(bytes.NewReader(answer))
	for {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return "", false, false
		}
		if resp.StatusCode < 200 {
			continue
		}
		b, err := io.ReadAll(resp.Body)
		return string(b), err == nil, err == nil && (resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0)
	}
}

// TestAnswersAreNeverMixed has one transport asked again and again, with answers of all kinds in pieces of all sizes, some of which are not read to
// their end and some ended from outside. Each says what net/http reads of it alone, and nothing of another's.
func TestAnswersAreNeverMixed(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fine, reused := 0, 0
	for seed := range uint64(rounds) {
		if t.Failed() {
			break
		}
		var mu sync.Mutex
		given := map[string][]byte{}
		rnd := rand.New(rand.NewPCG(seed, 11))
		url, count := raw(t, func(n int, c net.Conn, r *bufio.Reader) {
			own := rand.New(rand.NewPCG(seed, uint64(n)))
			for {
				_, said, err := request(r)
				if err != nil {
					return
				}
				mu.Lock()
				answer := given[string(said)]
				mu.Unlock()
				_, _, ends := readAlone(answer)
				for most := oneOf(own, 7, 400, 1<<20); len(answer) > 0; {
					k := min(len(answer), 1+own.IntN(most))
					if _, err := c.Write(answer[:k]); err != nil {
						return
					}
					answer = answer[k:]
				}
				if !ends {
					return
				}
			}
		})
		rt := &plainhttp.Transport{}
		const asked = 8
		for i := range asked {
			n := fmt.Sprintf("n%d", i)
			answer := randomAnswer(rnd, n)
			mu.Lock()
			given[n] = answer
			mu.Unlock()
			want, whole, _ := readAlone(answer)
			ctx := &ended{Context: patience}
			resp, err := rt.RoundTrip(post(ctx, t, url, strings.NewReader(n)))
			if err != nil {
				if whole {
					t.Errorf("seed %d: %q: %v", seed, answer, err)
				}
				continue
			}
			var src io.Reader = resp.Body
			left := rnd.IntN(5)
			if left == 0 {
				src = io.LimitReader(src, int64(rnd.IntN(len(want)+1)))
			}
			if left == 1 {
				ctx.now()
			}
			b, err := io.ReadAll(src)
			switch {
			case !strings.HasPrefix(want, string(b)):
				t.Errorf("seed %d: %q is read as %q", seed, answer, b)
			case left == 0:
			case left == 1 && err != nil:
			case (err == nil) != whole || whole && string(b) != want:
				t.Errorf("seed %d: %q is read as %q, %v; want %q (whole: %t)", seed, answer, b, err, want, whole)
			default:
				fine++
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			if _, err := resp.Body.Read(make([]byte, 1)); err == nil || left > 1 && whole && !errors.Is(err, io.EOF) {
				t.Errorf("seed %d: a body that has ended gives %v", seed, err)
			}
		}
		reused += asked - int(count.Load())
		rt.CloseIdleConnections()
	}
	if fine < rounds || reused < rounds {
		t.Errorf("%d answers were read to their end, %d on a connection that was used before", fine, reused)
	}
}
