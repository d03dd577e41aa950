// Command mock is the model server of the benchmarks: OpenAI Chat Completions, streamed, one write
// per event. It answers a request that ends in a tool's result with a short text in ten deltas, and
// any other with one call of read_file. GET /stats tells what it has seen. It does as little as it
// can, so that on a processor of its own it is not what is measured.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/test/bench/load"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "where to listen; port 0 takes a free one")
	flag.Parse()
	fmt.Fprintln(os.Stderr, "mock:", serve(*addr))
	os.Exit(1)
}

// serve prints the base URL once it can be reached, and serves until it cannot any more.
func serve(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/v1\n", l.Addr())
	s := &server{call: callAnswer(), text: textAnswer(), stamped: stampedAnswer()}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			s.converse(c)
		}()
	}
}

type server struct {
	call, text, stamped answer

	requests atomic.Int64
	bytes    atomic.Int64
}

// converse answers the requests of one connection until it ends.
func (s *server) converse(c net.Conn) {
	in := bufio.NewReaderSize(c, 16<<10)
	var body, out []byte
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.Method == http.MethodGet {
			if s.stats(c) != nil {
				return
			}
			continue
		}
		if body, err = read(body[:0], r); err != nil {
			return
		}
		s.bytes.Add(int64(len(body)))
		id := fmt.Sprintf("%0*d", len(idMark), s.requests.Add(1))
		for _, event := range s.choose(body) {
			out = stamp(event.render(out[:0], id))
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}
}

func read(into []byte, r *http.Request) ([]byte, error) {
	if n := int(r.ContentLength); n >= 0 {
		if cap(into) < n {
			into = make([]byte, 0, 2*n)
		}
		_, err := io.ReadFull(r.Body, into[:n])
		return into[:n], err
	}
	b := bytes.NewBuffer(into)
	_, err := b.ReadFrom(r.Body)
	return b.Bytes(), err
}

// choose looks at the last message only, from the end: a long request costs no more.
func (s *server) choose(body []byte) answer {
	role := []byte(`"role":"`)
	i := bytes.LastIndex(body, role)
	if i < 0 {
		return s.call
	}
	switch last := body[i+len(role):]; {
	case bytes.HasPrefix(last, []byte("tool")):
		return s.text
	case bytes.Contains(last, []byte(load.Stamped)):
		return s.stamped
	}
	return s.call
}

// stamp puts the moment of writing where an event wants it.
func stamp(event []byte) []byte {
	if i := bytes.Index(event, []byte("@"+load.StampMark+"@")); i >= 0 {
		_ = fmt.Appendf(event[:i+1], "%019d", time.Now().UnixNano()) // in place: it has as many digits
	}
	return event
}

func (s *server) stats(c net.Conn) error {
	b, err := json.Marshal(load.Stats{Requests: s.requests.Load(), Bytes: s.bytes.Load(), CPU: load.CPU()})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
	return err
}

// idMark stands in an event where the number of its answer belongs.
const idMark = "@@@@@@@@@@"

// answer is the events of one response, each an HTTP chunk; the first brings the head, the last the
// end of the body.
type answer []event

// event is text between the places of the answer's number.
type event [][]byte

func (e event) render(out []byte, id string) []byte {
	for i, piece := range e {
		if i > 0 {
			out = append(out, id...)
		}
		out = append(out, piece...)
	}
	return out
}

func newAnswer(payloads ...string) answer {
	a := make(answer, len(payloads))
	for i, p := range payloads {
		data := "data: " + p + "\n\n"
		chunk := fmt.Sprintf("%x\r\n%s\r\n", len(data), data)
		if i == 0 {
			chunk = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk
		}
		if i == len(payloads)-1 {
			chunk += "0\r\n\r\n"
		}
		a[i] = bytes.Split([]byte(chunk), []byte(idMark))
	}
	return a
}

const envelope = `{"id":"chatcmpl-` + idMark + `","object":"chat.completion.chunk","created":1760000000,"model":"mock-1","system_fingerprint":"fp_bench",`

func delta(d, finish string) string {
	return envelope + `"choices":[{"index":0,"delta":` + d + `,"logprobs":null,"finish_reason":` + finish + `}]}`
}

func usage() string {
	return envelope + `"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150}}`
}

func callAnswer() answer {
	return newAnswer(
		delta(`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_`+idMark+`","type":"function","function":{"name":"read_file","arguments":""}}]}`, "null"),
		delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\""}}]}`, "null"),
		delta(`{"tool_calls":[{"index":0,"function":{"arguments":":\"note.txt\"}"}}]}`, "null"),
		delta(`{}`, `"tool_calls"`), usage(), "[DONE]",
	)
}

// stampedAnswer says in its first text when that was written.
func stampedAnswer() answer {
	return newAnswer(
		delta(`{"role":"assistant","content":""}`, "null"), delta(`{"content":"@`+load.StampMark+`@ it is. "}`, "null"),
		delta(`{"content":"That is all."}`, "null"), delta(`{}`, `"stop"`), usage(), "[DONE]",
	)
}

func textAnswer() answer {
	words := strings.SplitAfter("I have read |the note. It |says that the |work goes on, |that nobody |has to wait, |that the tests |are green and |that the next |step is yours.", "|")
	events := []string{delta(`{"role":"assistant","content":""}`, "null")}
	for _, w := range words {
		events = append(events, delta(`{"content":"`+strings.TrimSuffix(w, "|")+`"}`, "null"))
	}
	return newAnswer(append(events, delta(`{}`, `"stop"`), usage(), "[DONE]")...)
}
