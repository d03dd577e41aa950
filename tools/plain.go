package tools

import (
	"encoding/json"
	"unicode/utf8"
)

// A plainReader reads well-formed arguments without a decoder's cost. Whatever it does not take,
// it leaves to readValue, which says what is wrong with it.
type plainReader struct {
	b   []byte // valid UTF-8
	all string // the same, once a piece of it is kept
	i   int
}

// plainArguments reads one JSON object that is well formed, not too deep and without keys given
// twice.
func plainArguments(args []byte) (map[string]any, bool) {
	r := plainReader{b: args}
	object, ok := r.object(0)
	r.space()
	return object, ok && r.i == len(r.b)
}

func (r *plainReader) space() {
	for r.i < len(r.b) && (r.b[r.i] == ' ' || r.b[r.i] == '\n' || r.b[r.i] == '\t' || r.b[r.i] == '\r') {
		r.i++
	}
}

// take skips white space and then ch.
func (r *plainReader) take(ch byte) bool {
	r.space()
	if r.i == len(r.b) || r.b[r.i] != ch {
		return false
	}
	r.i++
	return true
}

func (r *plainReader) object(depth int) (map[string]any, bool) {
	if depth >= maxDepth || !r.take('{') {
		return nil, false
	}
	object := map[string]any{}
	if r.take('}') {
		return object, true
	}
	for {
		name, ok := r.text()
		if !ok || !r.take(':') {
			return nil, false
		}
		if _, twice := object[name]; twice {
			return nil, false
		}
		if object[name], ok = r.value(depth + 1); !ok {
			return nil, false
		}
		if !r.take(',') {
			return object, r.take('}')
		}
	}
}

func (r *plainReader) array(depth int) ([]any, bool) {
	if depth >= maxDepth || !r.take('[') {
		return nil, false
	}
	values := []any{}
	if r.take(']') {
		return values, true
	}
	for {
		v, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		values = append(values, v)
		if !r.take(',') {
			return values, r.take(']')
		}
	}
}

// value reads any value; it is recursive to at most maxDepth.
func (r *plainReader) value(depth int) (any, bool) {
	r.space()
	if r.i == len(r.b) {
		return nil, false
	}
	switch r.b[r.i] {
	case '"':
		return r.text()
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case 't':
		return true, r.word("true")
	case 'f':
		return false, r.word("false")
	case 'n':
		return nil, r.word("null")
	}
	return r.number()
}

func (r *plainReader) word(w string) bool {
	if len(r.b)-r.i < len(w) || string(r.b[r.i:r.i+len(w)]) != w {
		return false
	}
	r.i += len(w)
	return true
}

// text reads a string; one with escapes is decoded by encoding/json.
func (r *plainReader) text() (string, bool) {
	if !r.take('"') {
		return "", false
	}
	start, escapes := r.i, false
	for ; r.i < len(r.b); r.i++ {
		switch ch := r.b[r.i]; {
		case ch == '"':
			end := r.i
			r.i++
			if !escapes {
				return r.piece(start, end), true
			}
			var s string
			err := json.Unmarshal(r.b[start-1:r.i], &s)
			return s, err == nil
		case ch < ' ':
			return "", false
		case ch == '\\':
			escapes = true
			r.i++ // what it escapes is no end
		}
	}
	return "", false
}

// sharedArguments is the size up to which parts of arguments share one copy. Of larger ones a path that is kept must not keep
// the content of a file along.
const sharedArguments = 1 << 10

// piece is a part of the text.
func (r *plainReader) piece(from, to int) string {
	if len(r.b) > sharedArguments {
		return string(r.b[from:to])
	}
	if r.all == "" {
		r.all = string(r.b)
	}
	return r.all[from:to]
}

// number reads a number by the grammar of RFC 8259.
func (r *plainReader) number() (json.Number, bool) {
	start := r.i
	r.skip('-')
	switch first := r.i; {
	case r.digits() == 0, r.b[first] == '0' && r.i > first+1:
		return "", false
	}
	if r.skip('.') && r.digits() == 0 {
		return "", false
	}
	if r.skip('e') || r.skip('E') {
		if !r.skip('+') {
			r.skip('-')
		}
		if r.digits() == 0 {
			return "", false
		}
	}
	return json.Number(r.piece(start, r.i)), true
}

// skip skips ch, if that is next.
func (r *plainReader) skip(ch byte) bool {
	if r.i == len(r.b) || r.b[r.i] != ch {
		return false
	}
	r.i++
	return true
}

func (r *plainReader) digits() int {
	from := r.i
	for r.i < len(r.b) && '0' <= r.b[r.i] && r.b[r.i] <= '9' {
		r.i++
	}
	return r.i - from
}

// plainText says that s stands in JSON as it is: nothing that json.Encoder would escape.
func plainText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == 0x7f {
			return false
		}
	}
	return true
}
