package openai

import "unicode/utf8"

// A cursor walks a JSON document byte by byte, without allocating. It accepts exactly what
// RFC 8259 does: what it lets pass is cut up and sent on without another check.
type cursor struct {
	b []byte
	i int
}

// maxDepth bounds nesting; a document beyond it is left to encoding/json.
const maxDepth = 64

func (c *cursor) space() {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\n', '\t', '\r':
			c.i++
		default:
			return
		}
	}
}

// peek returns the first byte of the next token, 0 at the end.
func (c *cursor) peek() byte {
	c.space()
	if c.i == len(c.b) {
		return 0
	}
	return c.b[c.i]
}

func (c *cursor) eat(ch byte) bool {
	if c.peek() != ch {
		return false
	}
	c.i++
	return true
}

func (c *cursor) literal(s string) bool {
	if len(c.b)-c.i < len(s) || string(c.b[c.i:c.i+len(s)]) != s {
		return false
	}
	c.i += len(s)
	return true
}

// str takes a string. body is what stands between the quotes, still escaped; clean is false
// when its decoding is not a matter of its bytes alone: half a surrogate pair or invalid UTF-8,
// which become U+FFFD, and something else when two bodies are joined.
func (c *cursor) str() (body []byte, clean, ok bool) {
	if !c.eat('"') {
		return nil, false, false
	}
	start, ascii, high := c.i, byte(0), false
	clean = true
	for c.i < len(c.b) {
		ch := c.b[c.i]
		if high && (ch != '\\' || c.i+1 >= len(c.b) || c.b[c.i+1] != 'u') {
			clean, high = false, false
		}
		switch {
		case ch == '"':
			body = c.b[start:c.i]
			c.i++
			return body, clean && (ascii < utf8.RuneSelf || utf8.Valid(body)), true
		case ch < ' ':
			return nil, false, false
		case ch == '\\':
			unit, ok := c.escape()
			if !ok {
				return nil, false, false
			}
			low := unit >= 0xdc00 && unit < 0xe000
			if low != high {
				clean = false
			}
			high = unit >= 0xd800 && unit < 0xdc00
		default:
			ascii |= ch
			c.i++
		}
	}
	return nil, false, false
}

// escape takes a backslash and what belongs to it; unit is the UTF-16 unit of a \u escape.
func (c *cursor) escape() (unit rune, ok bool) {
	if c.i+1 >= len(c.b) {
		return 0, false
	}
	ch := c.b[c.i+1]
	c.i += 2
	switch ch {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 0, true
	case 'u':
	default:
		return 0, false
	}
	if c.i+4 > len(c.b) {
		return 0, false
	}
	for _, h := range c.b[c.i : c.i+4] {
		switch {
		case h >= '0' && h <= '9':
			h -= '0'
		case h >= 'a' && h <= 'f':
			h -= 'a' - 10
		case h >= 'A' && h <= 'F':
			h -= 'A' - 10
		default:
			return 0, false
		}
		unit = unit<<4 | rune(h)
	}
	c.i += 4
	return unit, true
}

// number takes a number; n is its value when it is a plain one from 0 to 99,999,999, else -1.
func (c *cursor) number() (n int, whole, ok bool) {
	start := c.i
	if c.i < len(c.b) && c.b[c.i] == '-' {
		c.i++
	}
	first := c.i
	digits := c.digits()
	if digits == 0 || (digits > 1 && c.b[first] == '0') {
		return 0, false, false
	}
	whole = true
	if c.i < len(c.b) && c.b[c.i] == '.' {
		c.i++
		whole = false
		if c.digits() == 0 {
			return 0, false, false
		}
	}
	if c.i < len(c.b) && c.b[c.i]|0x20 == 'e' {
		c.i++
		whole = false
		if c.i < len(c.b) && (c.b[c.i] == '+' || c.b[c.i] == '-') {
			c.i++
		}
		if c.digits() == 0 {
			return 0, false, false
		}
	}
	if !whole || first != start || digits > 8 {
		return -1, whole && digits < 18, true
	}
	for _, d := range c.b[first:c.i] {
		n = n*10 + int(d-'0')
	}
	return n, true, true
}

func (c *cursor) digits() int {
	start := c.i
	for c.i < len(c.b) && c.b[c.i] >= '0' && c.b[c.i] <= '9' {
		c.i++
	}
	return c.i - start
}

// skip takes any value.
func (c *cursor) skip(depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch c.peek() {
	case '{':
		return c.object(func([]byte) bool { return c.skip(depth + 1) })
	case '[':
		return c.array(func(int) bool { return c.skip(depth + 1) })
	case '"':
		_, _, ok := c.str()
		return ok
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	default:
		_, _, ok := c.number()
		return ok
	}
}

// object takes an object; member takes the value of each key. Keys with escapes, capitals or
// non-ASCII letters end the walk: encoding/json would match them with our own names.
func (c *cursor) object(member func(key []byte) bool) bool {
	if !c.eat('{') {
		return false
	}
	if c.eat('}') {
		return true
	}
	for {
		key, _, ok := c.str()
		if !ok || !plainKey(key) || !c.eat(':') || !member(key) {
			return false
		}
		if c.eat('}') {
			return true
		}
		if !c.eat(',') || c.peek() != '"' {
			return false
		}
	}
}

func plainKey(key []byte) bool {
	for _, ch := range key {
		if ch >= utf8.RuneSelf || ch == '\\' || (ch >= 'A' && ch <= 'Z') {
			return false
		}
	}
	return true
}

func (c *cursor) array(element func(i int) bool) bool {
	if !c.eat('[') {
		return false
	}
	if c.eat(']') {
		return true
	}
	for i := 0; ; i++ {
		if !element(i) {
			return false
		}
		if c.eat(']') {
			return true
		}
		if !c.eat(',') || c.peek() == ']' {
			return false
		}
	}
}
