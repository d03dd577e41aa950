package openai

import (
	"bytes"
	"fmt"
	"io"

	"github.com/troupe-dev/troupe/messages"
)

// splice is the body of a request, laid together while it is read: head, the kept bytes of
// each message, tail. Nothing of the history is encoded or copied before the transport asks
// for it. It may be read only once; the request's GetBody makes another.
type splice struct {
	head, tail []byte
	msgs       []*messages.Message
	format     string
	encode     func(*messages.Message) []byte
	first      bool // drop the comma of the first message

	part []byte // what is left of the part under way
	next int    // part after it: 0 is the head, i is msgs[i-1], then the tail
}

// oneWrite is the size of a body, in bytes, up to which it is laid together before it is sent. net/http
// sends headers and a body that it knows to be in memory in one write, and others in two.
const oneWrite = 32 << 10

// body returns the body from its beginning.
func (s splice) body() (io.ReadCloser, error) {
	n := s.length()
	if n > oneWrite {
		return &s, nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(&s, b); err != nil {
		return nil, fmt.Errorf("lay the request together: %w", err)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// length is the number of bytes of the whole body. It encodes what was not encoded yet.
func (s *splice) length() int64 {
	n := len(s.head) + len(s.tail)
	for _, m := range s.msgs {
		n += len(m.Wire(s.format, s.encode))
	}
	if s.first && len(s.msgs) > 0 {
		n--
	}
	return int64(n)
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
	switch i := s.next; {
	case i == 0:
		s.part = s.head
	case i <= len(s.msgs):
		s.part = s.msgs[i-1].Wire(s.format, s.encode)
		if i == 1 && s.first && len(s.part) > 0 {
			s.part = s.part[1:]
		}
	case i == len(s.msgs)+1:
		s.part = s.tail
	default:
		return false
	}
	s.next++
	return true
}

// Close implements io.Closer; there is nothing to close.
func (s *splice) Close() error { return nil }
