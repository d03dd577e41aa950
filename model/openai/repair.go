package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/troupe-dev/troupe/model"
)

// bufferSize is what one stream starts with in each direction. Buffers that a long event made
// larger are not kept.
const bufferSize = 8 << 10

// bounds of what one answer may hold; beyond them the provider is broken or hostile.
const (
	maxEventBytes  = 16 << 20
	maxAnswerBytes = 128 << 20
	maxErrorBytes  = 64 << 10
)

// buffers are lent to one stream.
type buffers struct {
	in, joined, out []byte
}

// repair stands between the provider's body and go-openai's reader. What it gives out is one
// `data:` line per event in exactly the form that reader knows, ended by [DONE]; whatever is
// wrong becomes a typed error, which that reader passes on untouched. Deltas that have already
// arrived leave as one event; it never waits for more than the first.
type repair struct {
	src    io.ReadCloser
	fr     framer
	out    []byte
	sent   int
	err    error // what Read returns once out is empty
	calls  callTable
	run    shape // the merge under way, kind odd when there is none
	events int   // with data, so far
	bytes  int   // read so far

	finished bool // a finish_reason was seen
	done     bool // [DONE] was seen

	readError func(error) error         // types what src returned
	fault     func(fault) *model.Error  // types what the provider said in the stream
	alive     func(n int)               // called after each read
	ending    func()                    // called when a finish was seen
	handle    func(ev event, last bool) // what to do with an event; see event
}

// Read implements io.Reader.
func (b *repair) Read(p []byte) (int, error) {
	for b.sent == len(b.out) {
		if b.err != nil {
			return 0, b.err
		}
		b.out, b.sent = b.out[:0], 0
		b.fill()
	}
	n := copy(p, b.out[b.sent:])
	b.sent += n
	return n, nil
}

// fill turns the events that are complete into output, and reads on when there are none.
func (b *repair) fill() {
	for b.err == nil {
		ev, ok := b.fr.next()
		if !ok {
			break
		}
		b.handle(ev, false)
	}
	b.closeRun()
	if len(b.out) > 0 || b.err != nil {
		return
	}
	n, err := b.src.Read(b.fr.space())
	b.fr.w += n
	b.bytes += n
	if !b.finished {
		b.alive(n)
	}
	switch {
	case b.fr.size() > maxEventBytes:
		b.fail(model.Protocol, fmt.Sprintf("one event of the stream is larger than %d bytes", maxEventBytes))
	case b.bytes > maxAnswerBytes:
		b.fail(model.Protocol, fmt.Sprintf("the stream is longer than %d bytes", maxAnswerBytes))
	case err != nil:
		b.finish(err)
	}
}

// finish ends the stream after src did. A finish_reason makes it a success, however it ended.
func (b *repair) finish(cause error) {
	for b.err == nil {
		ev, ok := b.fr.next()
		if !ok {
			break
		}
		b.handle(ev, false)
	}
	for b.err == nil && errors.Is(cause, io.EOF) {
		ev, ok := b.fr.end()
		if !ok {
			break
		}
		b.handle(ev, true)
	}
	b.closeRun()
	switch {
	case b.err != nil:
	case b.finished:
		b.close()
	case !errors.Is(cause, io.EOF):
		b.err = b.readError(cause)
	case b.events == 0 && b.fr.strange != nil:
		b.fail(model.Protocol, fmt.Sprintf("the answer is no event stream: it says %q", b.fr.strange))
	default:
		b.fail(model.Truncated, "the stream ended without a finish_reason")
	}
}

// close ends a whole answer.
func (b *repair) close() {
	b.closeRun()
	if i := b.calls.nameless(); i >= 0 {
		b.fail(model.Protocol, fmt.Sprintf("tool call %d has no name", i))
		return
	}
	b.out = append(b.out, "data: [DONE]\n"...)
	b.err = io.EOF
}

func (b *repair) fail(class model.Class, message string) {
	b.closeRun()
	b.err = &model.Error{Class: class, Message: message}
}

// event takes one event. last says that the end of the source ended it: what does not parse was
// cut off.
func (b *repair) event(ev event, last bool) {
	data := bytes.TrimSpace(ev.data)
	switch {
	case ev.raw:
		b.document(data)
		return
	case ev.failure:
		b.closeRun()
		b.err = b.fault(readFault(data))
		return
	case len(data) == 0:
		return
	case string(data) == "[DONE]":
		b.done = true
		if b.finished {
			b.close()
		} else {
			b.fail(model.Truncated, "the stream said [DONE] without a finish_reason")
		}
		return
	}
	b.events++
	s := classify(data)
	switch s.kind {
	case text:
		b.mergeText(&s)
	case args:
		b.mergeArgs(data, &s, last)
	case call:
		b.announce(&s)
	case plain:
		b.pass(data)
		if s.finish && s.choice == 0 {
			b.sawFinish()
		}
	case bill:
		if b.events == 1 || bytes.ContainsAny(s.body, "\r\n") { // it names the model; it is on several lines
			b.mend(data, last)
			return
		}
		b.closeRun()
		b.out = append(append(append(b.out, `data: {"choices":[],"usage":`...), s.body...), "}\n"...)
	case odd:
		b.closeRun()
		b.mend(data, last)
	}
}

func (b *repair) sawFinish() {
	if !b.finished {
		b.finished = true
		b.ending()
	}
}

// pass sends an event on as it is, on one line.
func (b *repair) pass(data []byte) {
	b.closeRun()
	b.out = append(b.out, "data: "...)
	start := len(b.out)
	b.out = append(b.out, data...)
	for i, ch := range b.out[start:] {
		if ch == '\n' || ch == '\r' { // between tokens: no string may hold one
			b.out[start+i] = ' '
		}
	}
	b.out = append(b.out, '\n')
}

// mergeText puts a piece of content into the merge under way, or begins one.
func (b *repair) mergeText(s *shape) {
	if b.run.kind != text || b.run.choice != s.choice {
		b.closeRun()
		b.begin(s.model)
		b.out = append(b.out, `"choices":[{"index":`...)
		b.out = strconv.AppendInt(b.out, int64(s.choice), 10)
		b.out = append(b.out, `,"delta":{"content":"`...)
		b.run = *s
	}
	b.out = append(b.out, s.body...)
}

// begin opens an event that is written anew. The first one names the model.
func (b *repair) begin(name []byte) {
	b.out = append(b.out, `data: {`...)
	if b.events > 1 || name == nil {
		return
	}
	b.out = append(append(append(b.out, `"model":"`...), name...), `",`...)
}

// announce sends a call's name on, at its position.
func (b *repair) announce(s *shape) {
	if s.choice != 0 {
		return // only one choice was asked for
	}
	b.closeRun()
	p := callPiece{sentAs: s.tool, id: string(s.id), name: string(s.name), args: unescape(s.body)}
	i := b.calls.resolve(&p, 0)
	if !b.room(i) {
		return
	}
	b.begin(s.model)
	b.out = append(b.out, `"choices":[{"index":0,"delta":{"tool_calls":[`...)
	b.callPiece(i, &p)
	if b.out[len(b.out)-1] == ',' {
		b.out = b.out[:len(b.out)-1]
	}
	b.out = append(b.out, "]}}]}\n"...)
}

// mergeArgs does the same for arguments; the index becomes the call's position.
func (b *repair) mergeArgs(data []byte, s *shape, last bool) {
	i := b.calls.at(s.tool)
	if s.choice != 0 {
		return // only one choice was asked for
	}
	if i < 0 || !b.calls.list[i].announced {
		b.closeRun()
		b.mend(data, last)
		return
	}
	if b.run.kind != args || b.run.tool != s.tool {
		b.closeRun()
		b.out = append(b.out, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":`...)
		b.out = strconv.AppendInt(b.out, int64(i), 10)
		b.out = append(b.out, `,"function":{"arguments":"`...)
		b.run = *s
	}
	b.out = append(b.out, s.body...)
}

func (b *repair) closeRun() {
	switch b.run.kind {
	case text:
		b.out = append(b.out, "\"}}]}\n"...)
	case args:
		b.out = append(b.out, "\"}}]}}]}\n"...)
	case odd, plain, bill, call:
		return
	}
	b.run = shape{}
}

// document takes a body that is JSON without any framing: an error that came as a 200.
func (b *repair) document(line []byte) {
	b.closeRun()
	whole := append([]byte(nil), line...)
	rest := append([]byte{'\n'}, b.fr.buf[b.fr.r:b.fr.w]...)
	if f := readFault(whole); !f.said {
		tail, _ := io.ReadAll(io.LimitReader(b.src, maxErrorBytes)) // what is missing shows below
		whole = append(append(whole, rest...), tail...)
	}
	if f := readFault(whole); f.said {
		b.err = b.fault(f)
		return
	}
	b.fail(model.Protocol, fmt.Sprintf("the answer is no event stream: it says %q", cut(whole, 120)))
}
