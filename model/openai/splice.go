package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

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

// draft is where a request is put together. It is lent to one request until its body has been read.
type draft struct {
	shell []byte   // what go-openai has encoded
	own   []byte   // what stands around the kept bytes
	parts [][]byte // the whole in order
	whole []byte   // and in one piece, if it is sent so
}

// splice replaces the body that go-openai encoded without messages by one that carries the
// kept bytes of the system prompt, the messages and the tools.
func (t *try) splice(hr *http.Request) error {
	d := t.m.drafts.Get().(*draft)
	t.asked.draft.Store(d)
	if err := d.readShell(hr); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	gap, open := `"messages":null`, `"messages":[`
	if t.m.opts.API == Responses {
		gap, open = `"input":null`, `"input":[`
	}
	at := bytes.Index(d.shell, []byte(gap))
	if at < 0 {
		return errors.New("the request has no place for its messages")
	}
	own, first := append(append(d.own[:0], d.shell[:at]...), open...), true
	if text := t.system(); text != "" && t.m.opts.API == Chat {
		own = append(appendString(append(own, `{"role":"system","content":`...), text), '}')
		first = false
	}
	before := len(own)
	own = append(own, ']')
	var tools []byte
	if !t.req.XML {
		tools = t.m.tools.encoded(t.req.Tools)
	}
	if tools != nil {
		own = append(own, `,"tools":`...)
	}
	after := len(own)
	own = append(own, d.shell[at+len(gap):]...)
	parts := appendMessages(append(d.parts[:0], own[:before]), t.req.Prompt, t.m.codec(t.req), first)
	d.own, d.parts = own, append(parts, own[before:after], tools, own[after:])
	t.carry(hr, d)
	return nil
}

// system is the system prompt, with the tools where they are offered in text.
func (t *try) system() string {
	if !t.req.XML {
		return t.req.Prompt.System
	}
	return t.req.Prompt.System + string(t.m.texts.encoded(t.req.Tools))
}

// readShell reads what go-openai has encoded.
func (d *draft) readShell(hr *http.Request) error {
	if hr.ContentLength <= 0 {
		return errors.New("its length is not known")
	}
	d.shell = slices.Grow(d.shell[:0], int(hr.ContentLength))[:hr.ContentLength]
	_, err := io.ReadFull(hr.Body, d.shell)
	return err
}

// carry puts the pieces into a request, for a transport that can send them from where they lie or for another.
func (t *try) carry(hr *http.Request, d *draft) {
	n := 0
	for _, p := range d.parts {
		n += len(p)
	}
	hr.ContentLength = int64(n)
	if n <= oneWrite && t.m.direct {
		d.whole = slices.Grow(d.whole[:0], n)
		for _, p := range d.parts {
			d.whole = append(d.whole, p...)
		}
		hr.Body, hr.GetBody = &t.asked, nil // it closes the body before its answer is read
		return
	}
	if n <= oneWrite {
		whole := bytes.Join(d.parts, nil)
		hr.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
	} else {
		parts := slices.Clone(d.parts)
		d.own = nil // it is a part of them
		hr.GetBody = func() (io.ReadCloser, error) { return &splice{parts: parts}, nil }
	}
	hr.Body, _ = hr.GetBody() // of memory: it cannot fail
	_ = t.asked.Close()       // nor can this
}

// asked is a body that is sent in one piece.
type asked struct {
	m     *Model
	draft atomic.Pointer[draft] // nil: it is closed
	read  int
}

// Read implements io.Reader.
func (a *asked) Read(p []byte) (int, error) {
	d := a.draft.Load()
	if d == nil || a.read == len(d.whole) {
		return 0, io.EOF
	}
	n := copy(p, d.whole[a.read:])
	a.read += n
	return n, nil
}

// Close implements io.Closer: who has read the body has no more use for it.
func (a *asked) Close() error {
	if d := a.draft.Swap(nil); d != nil {
		clear(d.parts)
		a.m.drafts.Put(d)
	}
	return nil
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
