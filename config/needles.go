package config

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// needles is what a Redactor searches for, ready for one pass over a text. It never changes.
type needles struct {
	by [256][]needle // by first byte: most bytes of a text begin none
}

// needle is one form of a secret.
type needle struct {
	text  string
	loose bool // an encoded form: white space may stand between its characters
}

// with is what is searched for and further values.
func (t *needles) with(values ...string) *needles {
	out := &needles{}
	if t != nil {
		for i, list := range t.by {
			out.by[i] = list[:len(list):len(list)] // adding to it makes a copy
		}
	}
	t = out
	for _, v := range values {
		t.add(v, false)
		t.add(hex.EncodeToString([]byte(v)), true)
		t.add(strings.ToUpper(hex.EncodeToString([]byte(v))), true)
		for shift := range 3 {
			t.add(base64Core(base64.RawStdEncoding, v, shift), true)
			t.add(base64Core(base64.RawURLEncoding, v, shift), true)
		}
		for _, escaped := range []string{url.QueryEscape(v), url.PathEscape(v), jsonText(v), strings.ReplaceAll(v, "/", `\/`)} {
			t.add(escaped, false)
			t.add(lowerPercent(escaped), false)
		}
		for _, line := range secretLines(v) {
			t.add(line, false)
			t.add(jsonText(line), false)
		}
	}
	return t
}

// secretLines are those of a value of several lines, as private keys are, that tell of it where each is shown for itself: numbered, found,
// or cut out. What stands around a key is the same in all of them.
func secretLines(v string) []string {
	var lines []string
	for line := range strings.Lines(v) {
		line = strings.TrimSpace(line)
		if len(line) >= leastWord && line != v && !strings.HasPrefix(line, "-----") {
			lines = append(lines, line)
		}
	}
	return lines
}

func (t *needles) add(text string, loose bool) {
	if text == "" {
		return
	}
	at := &t.by[text[0]]
	if !slices.ContainsFunc(*at, func(n needle) bool { return n.text == text }) {
		*at = append(*at, needle{text, loose})
	}
}

// base64Core is what of a value's base64 does not depend on its neighbours, when shift bytes
// stand before it in its group of three.
func base64Core(e *base64.Encoding, v string, shift int) string {
	coded := e.EncodeToString([]byte(strings.Repeat("\x00", shift) + v))
	first := (shift*8 + 5) / 6
	last := (shift + len(v)) * 8 / 6 // characters made of bits of the value and nothing after it
	return coded[first:last]
}

func jsonText(v string) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b[1 : len(b)-1])
}

// lowerPercent writes the escapes of an address in small letters.
func lowerPercent(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// scan replaces the secrets in s. Unless s is all there is, it stops where a secret may have
// begun whose end is still to come, and gives the rest from there.
func (t *needles) scan(s string, whole bool) (out, rest string) {
	var b strings.Builder
	done := 0 // of s, what b has
	for i := 0; i < len(s); {
		if t.by[s[i]] == nil {
			i++
			continue
		}
		match, open := t.at(s[i:])
		if open && !whole {
			b.WriteString(s[done:i])
			return b.String(), s[i:]
		}
		if match == 0 {
			i++
			continue
		}
		b.WriteString(s[done:i])
		b.WriteString(redacted)
		i += match
		done = i
	}
	if done == 0 {
		return s, ""
	}
	b.WriteString(s[done:])
	return b.String(), ""
}

// at gives the length of the longest secret that s begins with, and whether s ends inside a longer one.
func (t *needles) at(s string) (match int, open bool) {
	for _, n := range t.by[s[0]] {
		m, o := n.begins(s)
		match, open = max(match, m), open || o
	}
	return match, open
}

// begins gives how much of s the needle is, 0 when s does not begin with it, and whether s ends
// before that can be told.
func (n needle) begins(s string) (match int, open bool) {
	if !n.loose {
		if len(s) < len(n.text) {
			return 0, strings.HasPrefix(n.text, s)
		}
		if strings.HasPrefix(s, n.text) {
			return len(n.text), false
		}
		return 0, false
	}
	k, far := 0, 2*len(n.text)+16 // a flood of white space must not be held back for ever
	for i := range min(len(s), far) {
		switch c := s[i]; {
		case c == n.text[k]:
			if k++; k == len(n.text) {
				return i + 1, false
			}
		case c != '\n' && c != '\r' && c != ' ' && c != '\t':
			return 0, false
		}
	}
	return 0, len(s) < far
}
