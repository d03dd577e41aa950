package openai

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// splice is the body of a request, laid together from pieces while it is sent: what go-openai
// encoded, and the kept bytes of each message between. Nothing of the history is encoded or copied
// again. It may be read only once; another begins anew.
type splice struct {
	parts [][]byte
	next  int    // part to come
	part  []byte // what is left of the part under way
}

// oneWrite is the size of a body, in bytes, up to which it is laid together before it is sent. net/http
// sends headers and a body that it knows to be in memory in one write, and others in two.
const oneWrite = 32 << 10

// carry puts the pieces into a request, for a transport that can send them from where they lie or for another.
func carry(hr *http.Request, parts [][]byte, direct bool) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	hr.ContentLength = int64(n)
	if n <= oneWrite && !direct {
		whole := bytes.Join(parts, nil)
		hr.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
	} else {
		hr.GetBody = func() (io.ReadCloser, error) { return &splice{parts: parts}, nil }
	}
	hr.Body, _ = hr.GetBody() // of memory: it cannot fail
}

// appendMessages adds the encoded messages of a prompt, whole segments first. The comma before the first
// one is left out when nothing stands before it.
func appendMessages(parts [][]byte, p *messages.Prompt, kept codec, first bool) [][]byte {
	start := len(parts)
	for _, s := range p.Sealed {
		parts = append(parts, s.Wire(kept.format, kept.encode))
	}
	for _, m := range p.Messages[len(p.Sealed)*messages.SegmentSize:] {
		parts = append(parts, m.Wire(kept.format, kept.encode))
	}
	if first && len(parts) > start && len(parts[start]) > 0 {
		parts[start] = parts[start][1:]
	}
	return parts
}

// Read implements io.Reader.
func (s *splice) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(s.part) == 0 && !s.advance() {
			break
		}
		c := copy(p[n:], s.part)
		s.part = s.part[c:]
		n += c
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *splice) advance() bool {
	if s.next == len(s.parts) {
		return false
	}
	s.part = s.parts[s.next]
	s.next++
	return true
}

// rest takes what was not read yet.
func (s *splice) rest() net.Buffers {
	all := make(net.Buffers, 0, 1+len(s.parts)-s.next)
	if len(s.part) > 0 {
		all = append(all, s.part)
	}
	all = append(all, s.parts[s.next:]...)
	s.part, s.next = nil, len(s.parts)
	return all
}

// Pieces implements plainhttp.Pieces.
func (s *splice) Pieces() net.Buffers { return s.rest() }

// Close implements io.Closer; there is nothing to close.
func (s *splice) Close() error { return nil }

// gatherer is a connection that sends a splice from where its pieces lie. What net/http does by itself, to
// copy a body of unknown kind through a small buffer, costs more than the sending.
type gatherer struct{ *net.TCPConn }

// ReadFrom implements io.ReaderFrom.
func (g gatherer) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return g.TCPConn.ReadFrom(r)
	}
	body, ok := limited.R.(*splice)
	if !ok {
		return g.TCPConn.ReadFrom(r)
	}
	all := body.rest()
	n, err := all.WriteTo(g.TCPConn)
	limited.N -= n
	if err != nil {
		return n, fmt.Errorf("send the request: %w", err)
	}
	return n, nil
}
