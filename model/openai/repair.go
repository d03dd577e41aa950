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
const bufferSize = 4 << 10

// bounds of what one answer may hold; beyond them the provider is broken or hostile.
const (
	maxEventBytes  = 16 << 20
	maxAnswerBytes = 128 << 20
	maxErrorBytes  = 64 << 10
)

// repair stands between the provider's body and go-openai's reader. What it gives out is one
// `data:` line per event in exactly the form that reader knows, and the end of a whole answer is
// the end of what can be read; whatever is wrong becomes a typed error, which that reader passes on untouched. Deltas that
// have already arrived leave as one event; it never waits for more than the first. What nobody asks for
// before the end (why the answer ended, and its bill) leaves with the last one: each line costs that reader more than its bytes.
type repair struct {
	of     listener
	src    io.Reader
	fr     framer
	out    []byte
	sent   int
	err    error // what Read returns once out is empty
	calls  callTable
	run    shape // the merge under way, kind odd when there is none
	events int   // with data, so far
	bytes  int   // read so far
	held   held
	like   likeness

	finished bool // a finish_reason was seen
	done     bool // [DONE] was seen

	handle func(b *repair, ev event, last bool) // what to do with an event: event, or take
}

// listener is told what a repair comes upon.
type listener interface {
	broken(err error) error     // types what could not be read
	fault(f fault) *model.Error // types what the provider said in the stream
	alive(n int)                // after each read
	ending()                    // a finish was seen
}

// held is what was read and has not gone out: as it stood, still escaped.
type held struct {
	named       bool   // the model's name was seen
	name        []byte // of the model
	word, usage []byte // why the answer ended, and its bill
}

func (h *held) empty() bool { return len(h.name)+len(h.word)+len(h.usage) == 0 }

// called keeps the model's name, which is told once.
func (h *held) called(name []byte) {
	if !h.named && len(name) > 0 {
		h.named, h.name = true, append(h.name[:0], name...)
	}
}

// newRepair is a repair without a stream; see open.
func newRepair() *repair {
	return &repair{fr: framer{buf: make([]byte, bufferSize)}, out: make([]byte, 0, bufferSize)}
}

// open begins a stream, in the memory of the one before.
func (b *repair) open(of listener, src io.Reader, handle func(*repair, event, bool)) {
	clear(b.calls.list)
	*b = repair{
		of: of, src: src, handle: handle, fr: framer{buf: b.fr.buf, joined: b.fr.joined[:0]}, out: b.out[:0], calls: callTable{b.calls.list[:0]},
		held: held{name: b.held.name[:0], word: b.held.word[:0], usage: b.held.usage[:0]}, like: likeness{before: b.like.before[:0], after: b.like.after[:0]},
	}
}

// small says whether its memory is worth keeping.
func (b *repair) small() bool {
	const keep = 8 * bufferSize
	return len(b.fr.buf) <= keep && cap(b.out) <= keep && cap(b.fr.joined) <= keep && cap(b.calls.list) <= 16 &&
		cap(b.like.before)+cap(b.like.after)+cap(b.held.name)+cap(b.held.word)+cap(b.held.usage) <= keep
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
		b.handle(b, ev, false)
	}
	b.closeRun()
	if len(b.out) > 0 || b.err != nil {
		return
	}
	n, err := b.src.Read(b.fr.space())
	b.fr.w += n
	b.bytes += n
	if !b.finished {
		b.of.alive(n)
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
		b.handle(b, ev, false)
	}
	for b.err == nil && errors.Is(cause, io.EOF) {
		ev, ok := b.fr.end()
		if !ok {
			break
		}
		b.handle(b, ev, true)
	}
	switch {
	case b.err != nil:
		b.closeRun()
	case b.finished:
		b.close()
	case !errors.Is(cause, io.EOF):
		b.closeRun()
		b.err = b.of.broken(cause)
	case b.events == 0 && b.fr.strange != nil:
		b.fail(model.Protocol, fmt.Sprintf("the answer is no event stream: it says %q", b.fr.strange))
	default:
		b.fail(model.Truncated, "the stream ended without a finish_reason")
	}
}

// close ends a whole answer.
func (b *repair) close() {
	if i := b.calls.nameless(); i >= 0 {
		b.fail(model.Protocol, fmt.Sprintf("tool call %d has no name", i))
		return
	}
	b.tell()
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
		b.err = b.of.fault(readFault(data))
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
	s, ok := b.like.read(data)
	if !ok {
		s = classify(data)
		b.like.learn(data, &s)
	}
	switch s.kind {
	case text:
		b.merge(&s, `"content":"`)
	case musing:
		b.merge(&s, `"reasoning_content":"`)
	case args:
		b.mergeArgs(data, &s, last)
	case call:
		b.announce(&s)
	case plain:
		b.plain(data, &s)
	case bill:
		if bytes.ContainsAny(s.body, "\r\n") { // it is on several lines
			b.mend(data, last)
			return
		}
		b.held.called(s.model)
		b.held.usage = append(b.held.usage[:0], s.body...)
	case odd:
		b.mend(data, last)
	}
}

// plain takes an event that needs no mending. One that says nothing but why the answer ended, or nothing at all, is kept back.
func (b *repair) plain(data []byte, s *shape) {
	ends := s.finish && s.choice == 0
	switch {
	case len(s.body) > 0 || s.thought:
		b.pass(data)
	case ends:
		b.held.word = append(b.held.word[:0], s.word...)
		fallthrough
	default:
		b.held.called(s.model)
	}
	if ends {
		b.sawFinish()
	}
}

func (b *repair) sawFinish() {
	if !b.finished {
		b.finished = true
		b.of.ending()
	}
}

// pass sends an event on as it is, on one line.
func (b *repair) pass(data []byte) {
	b.tell()
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

// merge puts a piece of content or reasoning into the merge under way, or begins one.
func (b *repair) merge(s *shape, field string) {
	b.held.called(s.model)
	if s.choice != 0 || len(s.body) == 0 {
		return // only one choice was asked for
	}
	if b.run.kind != s.kind {
		b.closeRun()
		b.begin()
		b.out = append(b.out, field...)
		b.run = *s
	}
	b.out = append(b.out, s.body...)
}

// begin opens an event that is written anew, up to its delta. The first one names the model.
func (b *repair) begin() {
	b.out = append(b.out, `data: {`...)
	if len(b.held.name) > 0 {
		b.out = append(append(append(b.out, `"model":"`...), b.held.name...), `",`...)
		b.held.name = b.held.name[:0]
	}
	b.out = append(b.out, `"choices":[{"index":0,"delta":{`...)
}

// announce sends a call's name on, at its position.
func (b *repair) announce(s *shape) {
	b.held.called(s.model)
	if s.choice != 0 {
		return // only one choice was asked for
	}
	b.closeRun()
	p := callPiece{sentAs: s.tool, id: string(s.id), name: string(s.name), args: unescape(s.body)}
	i := b.calls.resolve(&p, 0)
	if !b.room(i) {
		return
	}
	if p.name == "" && b.calls.list[i].name == "" {
		b.callPiece(i, &p) // it waits for its name
		return
	}
	b.begin()
	b.out = append(b.out, `"tool_calls":[`...)
	b.callPiece(i, &p)
	b.out = b.out[:len(b.out)-len(`"}},`)] // its arguments may go on
	b.run = shape{kind: args, tool: s.tool}
}

// mergeArgs does the same for arguments; the index becomes the call's position.
func (b *repair) mergeArgs(data []byte, s *shape, last bool) {
	i := b.calls.at(s.tool)
	if s.choice != 0 {
		return // only one choice was asked for
	}
	if i < 0 || !b.calls.list[i].announced {
		b.mend(data, last)
		return
	}
	b.held.called(s.model)
	if b.run.kind != args || b.run.tool != s.tool {
		b.closeRun()
		b.begin()
		b.out = append(b.out, `"tool_calls":[{"index":`...)
		b.out = strconv.AppendInt(b.out, int64(i), 10)
		b.out = append(b.out, `,"function":{"arguments":"`...)
		b.run = *s
	}
	b.out = append(b.out, s.body...)
}

// closeRun ends the merge under way.
func (b *repair) closeRun() {
	if b.closeDelta() {
		b.out = append(b.out, "}]}\n"...)
	}
}

// closeDelta ends the delta of the merge under way; false when there is none.
func (b *repair) closeDelta() bool {
	switch b.run.kind {
	case text, musing:
		b.out = append(b.out, `"}`...)
	case args:
		b.out = append(b.out, `"}}]}`...)
	case odd, plain, bill, call:
		return false
	}
	b.run = shape{}
	return true
}

// tell ends the merge under way, and says with it what was kept back.
func (b *repair) tell() {
	h := &b.held
	if h.empty() {
		b.closeRun()
		return
	}
	if !b.closeDelta() {
		b.begin()
		b.out = append(b.out, '}')
	}
	if len(h.word) > 0 {
		b.out = append(append(append(b.out, `,"finish_reason":"`...), h.word...), '"')
	}
	b.out = append(b.out, "}]"...)
	if len(h.name) > 0 { // it came after the merge had begun
		b.out = append(append(append(b.out, `,"model":"`...), h.name...), '"')
	}
	if len(h.usage) > 0 {
		b.out = append(append(b.out, `,"usage":`...), h.usage...)
	}
	b.out = append(b.out, "}\n"...)
	h.name, h.word, h.usage = h.name[:0], h.word[:0], h.usage[:0]
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
		b.err = b.of.fault(f)
		return
	}
	b.fail(model.Protocol, fmt.Sprintf("the answer is no event stream: it says %q", cut(whole, 120)))
}
