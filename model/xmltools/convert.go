package xmltools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

const (
	cdataOpen  = "<![CDATA["
	cdataClose = "]]>"
)

// argName is how an argument's element may be named.
var argName = regexp.MustCompile(`^<([A-Za-z_][A-Za-z0-9_.-]{0,127})>`)

// errIncomplete says that a body is not, or not yet, a row of arguments.
var errIncomplete = errors.New("no row of arguments")

// arguments makes the JSON object of a call's arguments out of what stands in its element.
func arguments(s *schema, body string) (string, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for rest, n := strings.TrimSpace(body), 0; rest != ""; n++ {
		m := argName.FindStringSubmatch(rest)
		if m == nil {
			return "", fmt.Errorf("%w: at %q", errIncomplete, start(rest))
		}
		value, after, literal, ok := valueOf(rest[len(m[0]):], m[1])
		if !ok {
			return "", fmt.Errorf("%w: <%s> does not end", errIncomplete, m[1])
		}
		if n > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(m[1]))
		b.WriteByte(':')
		b.Write(encode(s.Properties[m[1]], value, literal))
		rest = strings.TrimSpace(after)
	}
	b.WriteByte('}')
	return b.String(), nil
}

func start(s string) string { return s[:min(len(s), 40)] }

// valueOf reads a value up to its closing tag. A closing tag counts when nothing, or another argument, follows.
func valueOf(s, name string) (value, after string, literal, ok bool) {
	closing := "</" + name + ">"
	if inner := strings.TrimLeft(s, " \t\r\n"); strings.HasPrefix(inner, cdataOpen) {
		inner = inner[len(cdataOpen):]
		for from := 0; ; {
			i := strings.Index(inner[from:], cdataClose)
			if i < 0 {
				return "", "", false, false
			}
			rest := strings.TrimLeft(inner[from+i+len(cdataClose):], " \t\r\n")
			if tail, closed := strings.CutPrefix(rest, closing); closed {
				return inner[:from+i], tail, true, true
			}
			from += i + len(cdataClose)
		}
	}
	for from := 0; ; {
		i := strings.Index(s[from:], closing)
		if i < 0 {
			return "", "", false, false
		}
		after = s[from+i+len(closing):]
		if rest := strings.TrimLeft(after, " \t\r\n"); rest == "" || argName.MatchString(rest) {
			return unframe(s[:from+i]), after, false, true
		}
		from += i + len(closing)
	}
}

// unframe takes the line breaks off that belong to the tags.
func unframe(s string) string {
	if t, ok := strings.CutPrefix(s, "\r\n"); ok {
		s = t
	} else {
		s = strings.TrimPrefix(s, "\n")
	}
	if t, ok := strings.CutSuffix(s, "\r\n"); ok {
		return t
	}
	return strings.TrimSuffix(s, "\n")
}

// encode writes a value as the schema wants it. What does not fit stays a string: the check of the arguments says
// what is wrong with it.
func encode(s *schema, value string, literal bool) []byte {
	var types []string
	if s != nil {
		types = s.types()
	}
	text := len(types) == 0 || slices.Contains(types, "string")
	trimmed := strings.TrimSpace(value)
	switch {
	case literal && text:
	case len(types) == 0, !text, trimmed == "null" && slices.Contains(types, "null"):
		if json.Valid([]byte(trimmed)) {
			return []byte(trimmed)
		}
	}
	return quote(value)
}

// quote makes a JSON string; invalid UTF-8 becomes U+FFFD.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string: it cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Call writes a call as its model would have; false when its arguments are no JSON object.
func Call(c *messages.ToolCall) (text string, ok bool) {
	args := c.GetArguments()
	if args == "" || args == "null" {
		args = "{}"
	}
	d := json.NewDecoder(strings.NewReader(args))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<%s>\n", c.GetName())
	for d.More() {
		key, err := d.Token()
		name, isName := key.(string)
		var raw json.RawMessage
		if err != nil || !isName || d.Decode(&raw) != nil || argName.FindString("<"+name+">") == "" {
			return "", false
		}
		fmt.Fprintf(&b, "<%s>%s</%s>\n", name, written(raw, name), name)
	}
	if _, err := d.Token(); err != nil {
		return "", false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", false
	}
	fmt.Fprintf(&b, "</%s>", c.GetName())
	return b.String(), true
}

// written is a JSON value as it stands in its element.
func written(raw json.RawMessage, name string) string {
	var s string
	if json.Unmarshal(raw, &s) != nil || string(raw) == "null" {
		return string(raw)
	}
	switch {
	case strings.Contains(s, cdataClose): // one of the two forms must do; the first is the more robust
	case strings.Contains(s, "</"+name+">"), strings.HasPrefix(strings.TrimSpace(s), cdataOpen), json.Valid([]byte(s)):
		return cdataOpen + s + cdataClose
	}
	if strings.Contains(s, "\n") {
		return "\n" + s + "\n"
	}
	return s
}

// Message is a message of a prompt as text, and who says it: results come from the user's side.
func Message(m *messages.Message) (role messages.Role, text string) {
	switch m.Role {
	case messages.Assistant:
		parts := make([]string, 0, 1+len(m.ToolCalls))
		if m.Text != "" {
			parts = append(parts, m.Text)
		}
		for _, c := range m.ToolCalls {
			call, ok := Call(c)
			if !ok { // what could not be read as a call is shown as it was
				call = fmt.Sprintf("<%s>\n%s\n</%s>", c.GetName(), c.GetArguments(), c.GetName())
			}
			parts = append(parts, call)
		}
		return messages.Assistant, strings.Join(parts, "\n")
	case messages.ToolRole:
		return messages.User, fmt.Sprintf("<tool_result tool=%q>\n%s\n</tool_result>", m.ToolName, enclosed(m.Text))
	case messages.User:
	}
	return m.Role, m.Text
}

// enclosed is a result that does not look as if it ended early and something else followed: no mark of a result's end or beginning, however it is spelt,
// stands in it.
func enclosed(text string) string {
	const name = "tool_result"
	var b strings.Builder
	for {
		at := strings.IndexByte(text, '<')
		if at < 0 {
			break
		}
		b.WriteString(text[:at+1])
		text = text[at+1:]
		mark := strings.TrimLeft(strings.TrimPrefix(strings.TrimLeft(text, blank), "/"), blank)
		if len(mark) >= len(name) && strings.EqualFold(mark[:len(name)], name) {
			b.WriteByte('\\')
		}
	}
	return b.String() + text
}

// blank is what may stand in a mark where a model does not look.
const blank = " \t\r\n"
