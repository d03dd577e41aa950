package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/xmltools"
)

// chatMessage encodes a message for Chat Completions, with a comma before it: kept bytes are
// laid one behind the other (see splice).
func chatMessage(m *messages.Message) []byte {
	b := make([]byte, 0, len(m.Text)+len(m.Text)/8+64)
	switch m.Role {
	case messages.Assistant:
		b = append(b, `,{"role":"assistant","content":`...)
		if m.Text == "" && len(m.ToolCalls) > 0 {
			b = append(b, "null"...)
		} else {
			b = appendString(b, m.Text)
		}
		b = appendCalls(b, m.ToolCalls)
	case messages.ToolRole:
		b = append(b, `,{"role":"tool","tool_call_id":`...)
		b = appendString(b, sendableID(m.ToolCallID))
		b = append(b, `,"content":`...)
		b = appendString(b, model.Result(m.Text))
	case messages.User:
		fallthrough
	default:
		b = append(b, `,{"role":"user","content":`...)
		b = appendString(b, m.Text)
	}
	return append(b, '}')
}

// chatMessageReasoned is chatMessage for providers that want the reasoning behind calls back.
func chatMessageReasoned(m *messages.Message) []byte {
	b := chatMessage(m)
	if m.Role != messages.Assistant || m.Reasoning == "" || len(m.ToolCalls) == 0 {
		return b
	}
	b = append(b[:len(b)-1], `,"reasoning_content":`...)
	return append(appendString(b, m.Reasoning), '}')
}

// inText encodes a message whose calls and results are text.
func inText(encode func(*messages.Message) []byte) func(*messages.Message) []byte {
	return func(m *messages.Message) []byte {
		role, text := xmltools.Message(m)
		return encode(&messages.Message{Role: role, Text: text})
	}
}

func appendCalls(b []byte, calls []*messages.ToolCall) []byte {
	for i, c := range calls {
		if i == 0 {
			b = append(b, `,"tool_calls":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, `{"id":`...)
		b = appendString(b, sendableID(c.GetId()))
		b = append(b, `,"type":"function","function":{"name":`...)
		b = appendString(b, model.CallName(c.GetName()))
		b = append(b, `,"arguments":`...)
		b = appendString(b, model.CallArguments(c.GetArguments()))
		b = append(b, "}}"...)
	}
	if len(calls) > 0 {
		b = append(b, ']')
	}
	return b
}

// maxCallID is the longest id of a call that all providers take back: OpenAI refuses the request with anything longer.
const maxCallID = 40

// sendableID is an id of a call that is short enough: the same one for the same id.
func sendableID(id string) string {
	if len(id) <= maxCallID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// appendString writes a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		ch := s[i]
		if ch >= ' ' && ch != '"' && ch != '\\' && ch < utf8.RuneSelf {
			i++
			continue
		}
		if ch >= utf8.RuneSelf {
			if r, n := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		b = append(b, s[start:i]...)
		switch ch {
		case '"', '\\':
			b = append(b, '\\', ch)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			if ch < ' ' {
				b = append(b, '\\', 'u', '0', '0', digits[ch>>4], digits[ch&15])
			} else {
				b = append(b, "\ufffd"...)
			}
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

// toolCache keeps the encoded form of each distinct tool list, which is one per agent.
type toolCache struct {
	mu    sync.Mutex
	kept  map[*model.ToolDef]keptTools
	write func([]model.ToolDef) []byte
}

type keptTools struct {
	defs  []model.ToolDef
	bytes []byte
}

const maxToolLists = 256

// encoded returns the JSON array of defs, made on first use. A list is known by where it lies
// and checked by its content: comparing strings that share their bytes costs nothing.
func (t *toolCache) encoded(defs []model.ToolDef) []byte {
	if len(defs) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.kept[&defs[0]]
	if ok && slices.EqualFunc(k.defs, defs, sameTool) {
		return k.bytes
	}
	if t.kept == nil || len(t.kept) >= maxToolLists {
		t.kept = make(map[*model.ToolDef]keptTools)
	}
	k = keptTools{defs: slices.Clone(defs), bytes: t.write(defs)}
	t.kept[&defs[0]] = k
	return k.bytes
}

func sameTool(a, b model.ToolDef) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Schema, b.Schema)
}

func chatTools(defs []model.ToolDef) []byte {
	b := []byte{'['}
	for i, d := range defs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"type":"function","function":{"name":`...)
		b = append(appendFunction(b, d), "}}"...)
	}
	return append(b, ']')
}

// appendFunction writes a definition from the value of its name on.
func appendFunction(b []byte, d model.ToolDef) []byte {
	b = appendString(b, d.Name)
	b = append(b, `,"description":`...)
	b = appendString(b, d.Description)
	b = append(b, `,"parameters":`...)
	var flat bytes.Buffer
	if len(d.Schema) == 0 || json.Compact(&flat, d.Schema) != nil {
		return append(b, `{"type":"object","properties":{}}`...)
	}
	return append(b, flat.Bytes()...)
}
