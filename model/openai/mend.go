package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/model"
)

// chunk is an event as providers write it: every field whose type differs between them is
// taken raw, so that one of them being strange does not lose the others.
type chunk struct {
	Model   json.RawMessage `json:"model"`
	Choices []chunkChoice   `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type chunkChoice struct {
	Index  json.RawMessage `json:"index"`
	Delta  *chunkDelta     `json:"delta"`
	Whole  *chunkDelta     `json:"message"` // some send the whole message instead
	Finish json.RawMessage `json:"finish_reason"`
	Error  json.RawMessage `json:"error"`
}

type chunkDelta struct {
	Content          json.RawMessage `json:"content"`
	Refusal          json.RawMessage `json:"refusal"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
	FunctionCall     json.RawMessage `json:"function_call"`
}

// callPiece is what one event says about one call.
type callPiece struct {
	sentAs         int // -1: no index
	id, name, args string
}

// mend decodes an event in full and writes it anew in the form that go-openai reads.
func (b *repair) mend(data []byte, last bool) {
	b.tell()
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		if f := readFault(data); f.said {
			b.err = b.of.fault(f)
		} else if last && !json.Valid(data) {
			b.unfinished()
		} else {
			b.fail(model.Protocol, fmt.Sprintf("an event of the stream is not a chat completion chunk: %q", cut(data, 120)))
		}
		return
	}
	choice, failed := c.first()
	if failed || !void(c.Error) || (choice == nil && void(c.Usage)) {
		if f := readFault(data); f.said {
			b.err = b.of.fault(f)
			return
		}
	}
	start := len(b.out)
	b.out = append(b.out, `data: {"model":`...)
	b.out = appendString(b.out, scalar(c.Model))
	b.out = append(b.out, `,"choices":[`...)
	if choice != nil && !b.choice(choice) {
		b.out = b.out[:start]
		return
	}
	b.out = append(b.out, ']')
	b.out = appendUsage(b.out, c.Usage)
	b.out = append(b.out, "}\n"...)
}

// unfinished ends a stream whose last event was cut off.
func (b *repair) unfinished() {
	if b.finished {
		b.close()
		return
	}
	b.fail(model.Truncated, "the stream ended in the middle of an event")
}

// first returns the choice with index 0, the only one asked for.
func (c *chunk) first() (choice *chunkChoice, failed bool) {
	for i := range c.Choices {
		ch := &c.Choices[i]
		if !void(ch.Error) {
			return ch, true
		}
		if n := index(ch.Index); n <= 0 && choice == nil {
			choice = ch
		}
	}
	return choice, false
}

// choice writes one choice; false when the stream failed by it.
func (b *repair) choice(ch *chunkChoice) bool {
	d := ch.Delta
	if d == nil {
		d = ch.Whole
	}
	if d == nil {
		d = &chunkDelta{}
	}
	content, thought, ok := flatten(d.Content)
	if !ok {
		b.fail(model.Protocol, fmt.Sprintf("the content of a delta is neither text nor parts: %q", cut(d.Content, 120)))
		return false
	}
	refusal, _, _ := flatten(d.Refusal)
	reasoning, _, _ := flatten(d.ReasoningContent)
	if reasoning == "" {
		reasoning, _, _ = flatten(d.Reasoning)
	}
	b.out = append(b.out, `{"index":0,"delta":{"content":`...)
	b.out = appendString(b.out, content+refusal)
	b.out = append(b.out, `,"reasoning_content":`...)
	b.out = appendString(b.out, reasoning+thought)
	if !b.toolCalls(d) {
		return false
	}
	b.out = append(b.out, `},"finish_reason":`...)
	finish := scalar(ch.Finish)
	switch finish {
	case "", "null":
		b.out = append(b.out, "null"...)
	case "error":
		b.err = b.of.fault(fault{said: true, message: "the provider ended the answer with an error"})
		return false
	default:
		b.out = appendString(b.out, finish)
		b.sawFinish()
	}
	b.out = append(b.out, '}')
	return true
}

// toolCalls writes the pieces of calls, each at its position, once its name is known.
func (b *repair) toolCalls(d *chunkDelta) bool {
	pieces, ok := readPieces(d)
	if !ok {
		b.fail(model.Protocol, fmt.Sprintf("the tool calls of a delta cannot be read: %q", cut(d.ToolCalls, 120)))
		return false
	}
	if len(pieces) == 0 {
		return true
	}
	b.out = append(b.out, `,"tool_calls":[`...)
	for nth := range pieces {
		p := &pieces[nth]
		i := b.calls.resolve(p, nth)
		if !b.room(i) {
			return false
		}
		b.callPiece(i, p)
	}
	if b.out[len(b.out)-1] == ',' {
		b.out = b.out[:len(b.out)-1]
	}
	b.out = append(b.out, ']')
	return true
}

const maxToolCalls = 256

// room fails the stream of an answer that has too many calls.
func (b *repair) room(i int) bool {
	if i < maxToolCalls {
		return true
	}
	b.fail(model.Protocol, fmt.Sprintf("the answer has more than %d tool calls", maxToolCalls))
	return false
}

func (b *repair) callPiece(i int, p *callPiece) {
	c := &b.calls.list[i]
	if c.name == "" {
		c.name = p.name
	}
	if c.id == "" && !c.announced {
		c.id = p.id
	}
	if c.sentAs < 0 {
		c.raw = append(c.raw, p.args...)
	}
	if c.name == "" {
		c.held = append(c.held, p.args...)
		return
	}
	b.out = append(b.out, `{"index":`...)
	b.out = strconv.AppendInt(b.out, int64(i), 10)
	given := p.args
	if !c.announced {
		id := b.calls.announce(i)
		b.out = appendString(append(b.out, `,"id":`...), id)
		b.out = append(b.out, `,"type":"function","function":{"name":`...)
		b.out = appendString(b.out, c.name)
		given = string(c.held) + given
		c.held = nil
		b.out = append(b.out, `,"arguments":`...)
	} else {
		b.out = append(b.out, `,"function":{"arguments":`...)
	}
	b.out = appendString(b.out, given)
	b.out = append(b.out, "}},"...)
}

type rawPiece struct {
	Index    json.RawMessage `json:"index"`
	ID       json.RawMessage `json:"id"`
	Function *rawFunction    `json:"function"`
}

type rawFunction struct {
	Name      json.RawMessage `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func (r *rawPiece) piece() callPiece {
	p := callPiece{sentAs: index(r.Index), id: scalar(r.ID)}
	if r.Function != nil {
		p.name = scalar(r.Function.Name)
		p.args = arguments(r.Function.Arguments)
	}
	return p
}

func readPieces(d *chunkDelta) ([]callPiece, bool) {
	var raws []rawPiece
	if !void(d.ToolCalls) {
		if err := json.Unmarshal(d.ToolCalls, &raws); err != nil {
			var one rawPiece
			if err := json.Unmarshal(d.ToolCalls, &one); err != nil {
				return nil, false
			}
			raws = []rawPiece{one}
		}
	}
	if !void(d.FunctionCall) { // the form before tool calls
		var f rawFunction
		if err := json.Unmarshal(d.FunctionCall, &f); err != nil {
			return nil, false
		}
		raws = append(raws, rawPiece{Index: json.RawMessage("0"), Function: &f})
	}
	pieces := make([]callPiece, len(raws))
	for i, r := range raws {
		pieces[i] = r.piece()
	}
	return pieces, true
}

// arguments are a string of JSON; some send the JSON itself.
func arguments(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '{' {
		var flat bytes.Buffer
		if json.Compact(&flat, raw) == nil {
			return flat.String()
		}
	}
	return scalar(raw)
}

// flatten reads content: a string, or parts of which text and reasoning count.
func flatten(raw json.RawMessage) (content, thought string, ok bool) {
	if void(raw) {
		return "", "", true
	}
	switch raw[0] {
	case '"':
		return scalar(raw), "", true
	case '[':
		var parts []json.RawMessage
		if json.Unmarshal(raw, &parts) != nil {
			return "", "", false
		}
		var c, t strings.Builder
		for _, p := range parts {
			if pc, pt, ok := flatten(p); ok {
				c.WriteString(pc)
				t.WriteString(pt)
			}
		}
		return c.String(), t.String(), true
	case '{':
		var part struct {
			Text, Thinking, Refusal json.RawMessage
		}
		if json.Unmarshal(raw, &part) != nil {
			return "", "", false
		}
		content, _, _ = flatten(part.Text)
		refusal, _, _ := flatten(part.Refusal)
		thought, _, _ = flatten(part.Thinking)
		return content + refusal, thought, true
	}
	return "", "", false
}

func void(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// scalar reads a string, or a number as its text; anything else is empty.
func scalar(raw json.RawMessage) string {
	if void(raw) {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// index reads an index, in a string too; -1 when there is none.
func index(raw json.RawMessage) int {
	n, err := strconv.ParseFloat(scalar(raw), 64)
	if err != nil || n < 0 || n != math.Trunc(n) || n > 1e6 {
		return -1
	}
	return int(n)
}
