package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/internal/yamldoc"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/canned"
)

// version is that of the file's format. One that is read differently has another.
const version = 1

// The file is a sequence of JSON objects, each written in one piece. docs/recordings.md is its reference.
type (
	// header begins the file, and stands again where it was opened to be written to once more.
	header struct {
		Recording int `json:"recording"`
	}
	// document is one call.
	document struct {
		Call      int        `json:"call"`
		Agent     string     `json:"agent,omitempty"`
		Model     string     `json:"model,omitempty"`
		Window    int64      `json:"window,omitempty"`
		Attempts  int        `json:"attempts,omitempty"` // how often the model sends a request that nothing comes of; 0: once
		MaxTokens int64      `json:"max_tokens,omitempty"`
		After     int        `json:"after,omitempty"` // messages and answer of that call stand before the messages
		Setup     int        `json:"setup,omitempty"` // what is missing of system and tools is that call's; else it is that of after
		System    *text      `json:"system,omitempty"`
		Tools     *[]tool    `json:"tools,omitempty"`
		Messages  []message  `json:"messages,omitempty"`
		Answer    *answer    `json:"answer,omitempty"`
		Error     *callError `json:"error,omitempty"`
	}
	tool struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
	}
	message struct {
		Role  string     `json:"role"`
		Tool  string     `json:"tool,omitempty"` // whose result it is
		Text  text       `json:"text,omitempty"`
		Calls []toolCall `json:"calls,omitempty"`
	}
	toolCall struct {
		ID        string `json:"id,omitempty"` // of answers only
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	answer struct {
		Text      text       `json:"text,omitempty"`
		Reasoning text       `json:"reasoning,omitempty"`
		Calls     []toolCall `json:"calls,omitempty"`
		Finish    string     `json:"finish"`
		Usage     *usage     `json:"usage,omitempty"`
	}
	usage struct {
		Input     int64 `json:"input,omitempty"`
		Output    int64 `json:"output,omitempty"`
		Cached    int64 `json:"cached,omitempty"`
		Reasoning int64 `json:"reasoning,omitempty"`
	}
	callError struct {
		Class   model.Class `json:"class"`
		Status  int         `json:"status,omitempty"`
		Message string      `json:"message"`
	}
)

// text is written as the list of its lines when it has several: so a change shows where it is.
type text string

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) {
	if strings.Contains(string(t), "\n") {
		return canned.JSON(strings.Split(string(t), "\n"))
	}
	return canned.JSON(string(t))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		var lines []string
		err := json.Unmarshal(b, &lines)
		*t = text(strings.Join(lines, "\n"))
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// encode writes a record: what is short on one line, and what is not with each part on its own.
func encode(v any) ([]byte, error) {
	flat, err := canned.JSON(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := lay(&b, flat, "", 0); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// shortest is what stands on one line; records do when they are half as long.
const shortest = 100

func lay(b *bytes.Buffer, raw json.RawMessage, k string, depth int) error {
	if len(raw) <= shortest && (depth > 0 || len(raw) <= shortest/2) || k == "schema" || raw[0] != '{' && raw[0] != '[' {
		b.Write(raw)
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return err
	}
	b.WriteByte(raw[0])
	for first := true; dec.More(); first = false {
		if !first {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.WriteString(strings.Repeat(" ", depth+1))
		k := ""
		if raw[0] == '{' {
			t, err := dec.Token()
			if err != nil {
				return err
			}
			k = fmt.Sprint(t)
			fmt.Fprintf(b, "%q: ", k)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return err
		}
		if err := lay(b, v, k, depth+1); err != nil {
			return err
		}
	}
	b.WriteString("\n" + strings.Repeat(" ", depth))
	b.WriteByte(raw[len(raw)-1])
	return nil
}

// reader reads a file. Its errors show the place.
type reader struct {
	file string
	data []byte
	out  *Recording

	counted, before int // bytes whose lines were counted, and how many these are: records are many
}

// line is the number of the line in which a byte stands; they are asked for in their order.
func (r *reader) line(at int) int {
	r.before += bytes.Count(r.data[r.counted:at], []byte("\n"))
	r.counted = at
	return 1 + r.before
}

// fault is an error about the byte at off.
func (r *reader) fault(off int, fix, format string, a ...any) error {
	off = max(0, min(off, len(r.data)))
	line := 1 + bytes.Count(r.data[:off], []byte("\n"))
	start := bytes.LastIndexByte(r.data[:off], '\n') + 1
	column := 1 + utf8.RuneCount(r.data[start:off])
	end := len(r.data)
	if i := bytes.IndexByte(r.data[start:], '\n'); i >= 0 {
		end = start + i
	}
	shown := strings.ToValidUTF8(string(r.data[start:end]), "\uFFFD")
	what := fmt.Sprintf("%s:%d:%d: %s", r.file, line, column, fmt.Sprintf(format, a...))
	return errors.New(yamldoc.Told(what, yamldoc.ExcerptOf(shown, line, column, nil), fix))
}

const recordAgain = "record again into another file, with --record FILE"

func read(file string, data []byte) (*Recording, error) {
	r := &reader{file: file, data: data, out: &Recording{Name: titled(file), file: file, patterns: newPatterns()}}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s: it has %d bytes; a recording has at most %d", file, len(data), maxFileBytes)
	}
	for at := 0; ; {
		for at < len(data) && strings.IndexByte(" \t\r\n", data[at]) >= 0 {
			at++
		}
		if at == len(data) {
			break
		}
		if data[at] != '{' {
			return nil, r.fault(at, recordAgain, "a recording is a sequence of JSON objects, and no other thing begins here")
		}
		n, err := r.record(at)
		if errors.Is(err, io.ErrUnexpectedEOF) && r.out.lives > 0 {
			r.out.Torn = fmt.Sprintf("%s:%d: the last record is cut off: who recorded was killed while it was written; it is not used", file, r.line(at))
			break
		}
		if err != nil {
			return nil, err
		}
		at += n
		r.out.whole = at
	}
	if r.out.lives == 0 {
		return nil, fmt.Errorf("%s: it is no recording: it has no {\"recording\": %d}\n  make one with: troupe run --record FILE", file, version)
	}
	return r.out, nil
}

// record reads what begins at a place, and says how long it is. An error of which io.ErrUnexpectedEOF is found is that the file ends in it.
func (r *reader) record(at int) (int, error) {
	dec := json.NewDecoder(bytes.NewReader(r.data[at:]))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		var bad *json.SyntaxError
		if errors.As(err, &bad) {
			return 0, r.fault(at+int(bad.Offset)-1, recordAgain, "%s", yamldoc.Printable(bad.Error()))
		}
		return 0, fmt.Errorf("%s: it ends in the middle of its first record: %w", r.file, err)
	}
	if i := bytes.IndexFunc(raw, func(c rune) bool { return c == utf8.RuneError }); i >= 0 && !utf8.Valid(raw) {
		return 0, r.fault(at+i, recordAgain, "the file is not UTF-8")
	}
	var kind struct {
		Recording *int `json:"recording"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return 0, r.decoding(at, raw, err, nil)
	}
	if kind.Recording != nil {
		return int(dec.InputOffset()), r.header(at, raw)
	}
	if r.out.lives == 0 {
		return 0, r.fault(at, "a recording begins with it; make one with: troupe run --record FILE", "there is no {\"recording\": %d} before this", version)
	}
	return int(dec.InputOffset()), r.call(at, raw)
}

func (r *reader) header(at int, raw []byte) error {
	var h header
	if err := strict(raw, &h); err != nil {
		return r.decoding(at, raw, err, []string{"recording"})
	}
	if h.Recording != version {
		return r.fault(at+place(raw, "recording"), "play it with the version of troupe that recorded it, or record again", "this is version %d of the format; this program knows %d", h.Recording, version)
	}
	r.out.lives++
	return nil
}

func strict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// place is where a key stands in a record.
func place(raw []byte, name string) int {
	if m := regexp.MustCompile(`"` + regexp.QuoteMeta(name) + `"\s*:`).FindIndex(raw); m != nil {
		return m[0]
	}
	return 0
}

// decoding gives an error of encoding/json its place.
func (r *reader) decoding(at int, raw []byte, err error, known []string) error {
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) {
		off := int(typed.Offset) - 1
		if key := typed.Field[strings.LastIndexByte(typed.Field, '.')+1:]; slices.Contains([]string{"text", "system", "reasoning"}, key) { // it counts from there
			off = place(raw, key)
		}
		return r.fault(at+max(0, off), recordAgain, "%s of JSON cannot be %s", typed.Value, typed.Field)
	}
	if name, ok := strings.CutPrefix(err.Error(), `json: unknown field "`); ok {
		name = strings.TrimSuffix(name, `"`)
		return r.fault(at+place(raw, name), yamldoc.DidYouMean(name, known), "unknown key %q", yamldoc.Printable(name))
	}
	return r.fault(at, recordAgain, "%s", yamldoc.Printable(err.Error()))
}

func (r *reader) call(at int, raw []byte) error {
	c := &call{at: at, line: r.line(at), life: r.out.lives}
	d := &c.doc
	if err := strict(raw, d); err != nil {
		return r.decoding(at, raw, err, []string{
			"agent", "after", "answer", "arguments", "attempts", "cached", "call", "calls", "class", "error", "finish", "id", "input", "max_tokens", "message", "messages", "model",
			"name", "output", "reasoning", "role", "schema", "setup", "status", "system", "text", "tool", "tools", "usage", "window",
		})
	}
	wrong := func(name, format string, a ...any) error {
		return r.fault(at+place(raw, name), recordAgain, format, a...)
	}
	known := len(r.out.calls)
	switch {
	case d.Call != known+1:
		return wrong("call", "call %d stands where call %d was due: calls are counted from 1", d.Call, known+1)
	case d.After < 0 || d.After > known:
		return wrong("after", "there is no call %d before this one", d.After)
	case d.Setup < 0 || d.Setup > known:
		return wrong("setup", "there is no call %d before this one", d.Setup)
	case d.After > 0 && r.out.calls[d.After-1].doc.Answer == nil:
		return wrong("after", "call %d has no answer to go on from", d.After)
	case (d.Answer == nil) == (d.Error == nil):
		return wrong("call", "a call has either an answer or an error")
	}
	if what, key := d.wrong(); what != "" {
		return wrong(key, "%s", what)
	}
	c.settle(r.out)
	r.out.calls = append(r.out.calls, c)
	return nil
}

// wrong is what is wrong with a call by itself, and below which key.
func (d *document) wrong() (what, key string) {
	if d.Attempts < 0 {
		return fmt.Sprintf("%d is no number of attempts", d.Attempts), "attempts"
	}
	for _, m := range d.Messages {
		switch messages.Role(m.Role) {
		case messages.User, messages.Assistant, messages.ToolRole:
		default:
			return fmt.Sprintf("%q is no role: there are user, assistant and tool", yamldoc.Printable(m.Role)), "role"
		}
	}
	if a := d.Answer; a != nil {
		if !slices.Contains([]string{"stop", "tool_calls", "length", "content_filter"}, a.Finish) {
			return fmt.Sprintf("finish is stop, tool_calls, length or content_filter, not %q", yamldoc.Printable(a.Finish)), "finish"
		}
		if u := a.Usage; u != nil && min(u.Input, u.Output, u.Cached, u.Reasoning) < 0 {
			return "a usage below 0", "usage"
		}
	}
	if e := d.Error; e != nil {
		if _, ok := canned.StatusOf(e.Class); !ok {
			return fmt.Sprintf("%q is no class of error", yamldoc.Printable(string(e.Class))), "class"
		}
		if e.Status != 0 && !isStatus(e.Status) {
			return fmt.Sprintf("%d is no status of an error (400 to 599)", e.Status), "status"
		}
	}
	return "", ""
}

// isStatus says whether an HTTP status is that of an error.
func isStatus(n int) bool { return 400 <= n && n <= 599 }
