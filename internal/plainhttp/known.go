package plainhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
)

// known is the head of an answer that net/http has read, with the bytes that it read. A server begins most of its answers
// with the same ones: they say the same again, and are not read again.
type known struct {
	bytes []byte // up to the empty line
	head  http.Response
}

// maxKnown bounds the bytes that are compared and kept.
const maxKnown = 2 << 10

// whole is the head at the beginning of what has arrived; nil when it has not arrived as a whole, or is long.
func whole(arrived []byte) []byte {
	const end = "\r\n\r\n"
	i := bytes.Index(arrived[:min(len(arrived), maxKnown)], []byte(end))
	if i < 0 {
		return nil
	}
	return arrived[:i+len(end)]
}

// streams says whether an answer is of the kind that is asked for again and again: a stream without trailers that leaves its connection open.
func streams(r *http.Response) bool {
	return r.StatusCode == http.StatusOK && !r.Close && r.Trailer == nil && r.ContentLength < 0 && len(r.TransferEncoding) == 1 && r.TransferEncoding[0] == "chunked"
}

// again is an answer whose head is known, and its body.
type again struct {
	http.Response
	body   body
	chunks chunks
}

// repeated is the answer to r that begins with a known head, of which nothing else was read.
func (t *Transport) repeated(c *conn, r *http.Request, k *known) *http.Response {
	a := &again{Response: k.head, chunks: chunks{of: httputil.NewChunkedReader(c.br), br: c.br}}
	a.body = body{t: t, c: c, src: &a.chunks}
	a.Request, a.Body = r, &a.body
	return &a.Response
}

// chunks are a body in chunks, with what follows it.
type chunks struct {
	of io.Reader
	br *bufio.Reader
}

// Read implements io.Reader.
func (s *chunks) Read(p []byte) (int, error) {
	n, err := s.of.Read(p)
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = s.rest()
	}
	return n, err
}

// rest reads to the end of the answer, as net/http does. io.EOF: it has ended as it should.
func (s *chunks) rest() error {
	for n := 2; ; n++ {
		said, err := s.br.Peek(n)
		if n == 2 && string(said) == "\r\n" {
			_, _ = s.br.Discard(2) // it was seen
			return io.EOF
		}
		if bytes.HasSuffix(said, []byte("\r\n\r\n")) {
			break
		}
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil { // also when a reader's buffer is too short for it
			return fmt.Errorf("read what follows the body of the answer: %w", err)
		}
	}
	if _, err := textproto.NewReader(s.br).ReadMIMEHeader(); err != nil {
		return fmt.Errorf("read what follows the body of the answer: %w", err)
	}
	return io.EOF
}
