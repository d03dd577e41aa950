package openai

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape decodes the body of a JSON string that a cursor has found whole and clean.
func unescape(body []byte) string {
	i := bytes.IndexByte(body, '\\')
	if i < 0 {
		return string(body)
	}
	var out strings.Builder
	out.Grow(len(body))
	var one [utf8.UTFMax]byte
	for i >= 0 {
		out.Write(body[:i])
		c := cursor{b: body, i: i}
		unit, ok := c.escape()
		if !ok {
			break // cannot be: the cursor has seen it
		}
		out.Write(appendEscaped(one[:0], body[i+1], unit, &c))
		body = body[c.i:]
		i = bytes.IndexByte(body, '\\')
	}
	out.Write(body)
	return out.String()
}

// appendEscaped appends what an escape stands for; c stands behind it, where the second half
// of a surrogate pair follows.
func appendEscaped(out []byte, letter byte, unit rune, c *cursor) []byte {
	switch letter {
	case 'b':
		return append(out, '\b')
	case 'f':
		return append(out, '\f')
	case 'n':
		return append(out, '\n')
	case 'r':
		return append(out, '\r')
	case 't':
		return append(out, '\t')
	case 'u':
		if utf16.IsSurrogate(unit) {
			low, _ := c.escape()
			unit = utf16.DecodeRune(unit, low)
		}
		return utf8.AppendRune(out, unit)
	default: // a quote, a slash, a backslash
		return append(out, letter)
	}
}
