package openai

import (
	"bytes"
	"encoding/json"
	"strings"
)

// event is one server-sent event: the joined data lines. data aliases the framer's buffers
// and is good until its next call.
type event struct {
	data    []byte
	failure bool // the event was named, or the field was called, "error"
	raw     bool // not a server-sent event at all: a line that begins a JSON document
}

// framer cuts a byte stream into server-sent events, as the WHATWG HTML standard (section
// 9.2.6) defines them: lines end in CR, LF or CRLF, data lines join, comments vanish, a byte
// order mark may begin the stream. Two departures mend what providers really send: a data line
// that follows a complete JSON document begins a new event even without a blank line between,
// and the end of the stream ends the last event.
type framer struct {
	buf     []byte // buf[r:w] is unread
	r, w    int
	scanned int  // of buf[r:w], known to hold no end of line
	skipLF  bool // the last line ended in a CR at the very end of the buffer
	opened  bool // the byte order mark is behind us

	data    []byte // of the event under construction; aliases buf or joined
	joined  []byte
	lines   int
	failure bool
	strange []byte // the first line that is no field of the standard, cut short
}

// next returns the next complete event, or false when more bytes are needed.
func (f *framer) next() (event, bool) {
	if !f.open() {
		return event{}, false
	}
	for {
		line, ok := f.line()
		if !ok {
			f.keep()
			return event{}, false
		}
		if ev, ok := f.field(line); ok {
			return ev, true
		}
	}
}

// end returns what the end of the stream completes: first the rest of a line, then the event
// without its blank line. Call it until it returns false.
func (f *framer) end() (event, bool) {
	f.opened = true
	if f.r < f.w {
		line := f.buf[f.r:f.w]
		f.r, f.scanned = f.w, 0
		if ev, ok := f.field(bytes.TrimRight(line, "\r\n")); ok {
			return ev, true
		}
	}
	return f.dispatch()
}

const byteOrderMark = "\xef\xbb\xbf"

// open steps over a byte order mark; false while it cannot yet be told.
func (f *framer) open() bool {
	if f.opened {
		return true
	}
	head := f.buf[f.r:f.w]
	if len(head) < len(byteOrderMark) && strings.HasPrefix(byteOrderMark, string(head)) {
		return false
	}
	if strings.HasPrefix(string(head[:min(len(head), len(byteOrderMark))]), byteOrderMark) {
		f.r += len(byteOrderMark)
	}
	f.opened = true
	return true
}

// line takes one complete line, without its end.
func (f *framer) line() ([]byte, bool) {
	if f.skipLF && f.r < f.w {
		if f.buf[f.r] == '\n' {
			f.r++
		}
		f.skipLF = false
	}
	fresh := f.buf[f.r+f.scanned : f.w]
	lf := bytes.IndexByte(fresh, '\n')
	before := fresh
	if lf >= 0 {
		before = fresh[:lf]
	}
	cr := bytes.IndexByte(before, '\r')
	if cr < 0 && lf < 0 {
		f.scanned = f.w - f.r
		return nil, false
	}
	end := lf
	if cr >= 0 {
		end = cr
	}
	line := f.buf[f.r : f.r+f.scanned+end]
	f.r += f.scanned + end + 1
	f.scanned = 0
	if cr >= 0 {
		f.skipLF = f.r == f.w
		if f.r < f.w && f.buf[f.r] == '\n' {
			f.r++
		}
	}
	return line, true
}

// field takes a line into the event under construction; true when that completes an event.
func (f *framer) field(line []byte) (event, bool) {
	if len(line) == 0 {
		return f.dispatch()
	}
	name, value := line, []byte(nil)
	if i := bytes.IndexByte(line, ':'); i >= 0 {
		name, value = line[:i], line[i+1:]
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
	}
	switch string(name) {
	case "", "id", "retry":
	case "data":
		return f.add(value)
	case "event":
		f.failure = f.failure || string(value) == "error"
	case "error": // some servers invent this field
		return event{data: value, failure: true}, true
	default:
		if f.lines == 0 && (line[0] == '{' || line[0] == '[') {
			return event{data: line, raw: true}, true
		}
		if f.strange == nil {
			f.strange = append([]byte(nil), line[:min(len(line), 120)]...)
		}
	}
	return event{}, false
}

// add appends a data line. A line after a whole document completes that event.
func (f *framer) add(value []byte) (event, bool) {
	f.lines++
	switch {
	case f.lines == 1:
		f.data = value
	case whole(f.data):
		ev := event{data: f.data, failure: f.failure}
		f.data, f.lines, f.failure = value, 1, false
		return ev, true
	default:
		f.keep()
		f.joined = append(append(f.joined, '\n'), value...)
		f.data = f.joined
	}
	return event{}, false
}

func whole(data []byte) bool {
	return string(data) == "[DONE]" || (len(data) > 0 && data[len(data)-1] == '}' && json.Valid(data))
}

func (f *framer) dispatch() (event, bool) {
	ev, ok := event{data: f.data, failure: f.failure}, f.lines > 0
	f.data, f.lines, f.failure = nil, 0, false
	return ev, ok
}

// keep copies the data of the event under construction out of the read buffer, which is about
// to change.
func (f *framer) keep() {
	if f.lines == 0 || (len(f.joined) > 0 && len(f.data) > 0 && &f.data[0] == &f.joined[0]) {
		return
	}
	f.joined = append(f.joined[:0], f.data...)
	f.data = f.joined
}

// size tells how many bytes one event holds so far.
func (f *framer) size() int { return f.w - f.r + len(f.data) }

// space returns room to read into, at least a quarter of the buffer.
func (f *framer) space() []byte {
	if f.r == f.w {
		f.r, f.w = 0, 0
	}
	if len(f.buf)-f.w < len(f.buf)/4 {
		if f.r >= len(f.buf)/2 {
			f.w = copy(f.buf, f.buf[f.r:f.w])
			f.r = 0
		} else {
			grown := make([]byte, 2*len(f.buf))
			f.w = copy(grown, f.buf[f.r:f.w])
			f.r, f.buf = 0, grown
		}
	}
	return f.buf[f.w:]
}
