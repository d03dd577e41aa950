package actors

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// Redactor takes the secrets that the process knows out of texts. It is asked at the places where
// text from outside enters the house: an input, an answer of the model, a tool's result. What is
// written, published, shown and sent to a model after that is without them.
type Redactor interface {
	// String gives s without secrets.
	String(s string) string
	// Scan does it for a text that comes in pieces: it gives what is sure of s, and the rest
	// from where a secret may have begun whose end is still to come.
	Scan(s string) (out, rest string)
}

// knowsNothing is the Redactor of a process without secrets.
type knowsNothing struct{}

func (knowsNothing) String(s string) string         { return s }
func (knowsNothing) Scan(s string) (string, string) { return s, "" }

// codeForm is what codes of errors are written in.
var codeForm = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_.-]{0,63})?$`)

// cleanReply gives a tool's result without secrets. What was handed in stays as it is: the ledger may have it, and of what is in
// it, the tool.
func (s *Services) cleanReply(r *messages.ToolReply) *messages.ToolReply {
	out := proto.CloneOf(r)
	if !codeForm.MatchString(r.GetErrorCode()) {
		out.ErrorCode = messages.CodeInternal // it may come from another machine, and goes to listings and traces
	}
	out.Content, out.Diff = s.Redact.String(r.GetContent()), s.Redact.String(r.GetDiff())
	out.DetailsJson, out.MetaJson = s.cleanJSON(r.GetDetailsJson()), s.cleanJSON(r.GetMetaJson())
	for _, f := range out.GetFiles() {
		f.Path = s.Redact.String(f.GetPath())
	}
	return out
}

// cleanAnswer takes the secrets out of an answer that nobody else has seen yet, also out of the arguments of its calls: what is
// written down, decided on and executed is the same (I8), and a model that got hold of a key cannot
// send it anywhere. Of an answer that was cut off, an end that may be half a secret is dropped.
func (s *Services) cleanAnswer(c *model.Completion, whole bool) {
	if whole {
		c.Text, c.Reasoning = s.Redact.String(c.Text), s.Redact.String(c.Reasoning)
	} else {
		c.Text, _ = s.Redact.Scan(c.Text)
		c.Reasoning, _ = s.Redact.Scan(c.Reasoning)
	}
	for _, call := range c.ToolCalls {
		call.Name, call.Arguments = s.Redact.String(call.GetName()), s.cleanJSON(call.GetArguments())
	}
}

// cleanParts gives the parts of an input without secrets; the sender's stay as they are.
func (s *Services) cleanParts(parts []*messages.Part) []*messages.Part {
	out := slices.Clone(parts)
	for i, p := range parts {
		switch kind := p.GetKind().(type) {
		case *messages.Part_Text:
			if text := s.Redact.String(kind.Text); text != kind.Text {
				out[i] = &messages.Part{Kind: &messages.Part_Text{Text: text}}
			}
		case *messages.Part_File:
			f := proto.CloneOf(kind.File)
			f.Name, f.Text = s.Redact.String(f.GetName()), s.Redact.String(f.GetText())
			out[i] = &messages.Part{Kind: &messages.Part_File{File: f}}
		}
	}
	return out
}

// cleanWord gives a person's word on a call without secrets; the sender's stays as it is.
func (s *Services) cleanWord(m *messages.ResolveCall) *messages.ResolveCall {
	out := proto.CloneOf(m)
	out.Note = s.Redact.String(m.GetNote())
	return out
}

// cleanApproval gives an answer to an approval without secrets; the sender's stays as it is.
func (s *Services) cleanApproval(m *messages.ResolveApproval) *messages.ResolveApproval {
	out := proto.CloneOf(m)
	out.Message, out.Arguments = s.Redact.String(m.GetMessage()), s.cleanJSON(m.GetArguments())
	return out
}

// cleanCall gives a program's call without secrets; nil stays nil.
func (s *Services) cleanCall(c *messages.ToolCall) *messages.ToolCall {
	if c == nil {
		return nil
	}
	return &messages.ToolCall{Id: c.GetId(), Name: c.GetName(), Arguments: s.cleanJSON(c.GetArguments())}
}

// cleanJSON takes the secrets out of a JSON text, also when it spells them with escapes. The rest,
// well formed or not, stays byte for byte.
func (s *Services) cleanJSON(text string) string {
	if strings.IndexByte(text, '\\') >= 0 {
		text = s.cleanEscaped(text)
	}
	return s.Redact.String(text)
}

// cleanEscaped looks at the strings that hold escapes.
func (s *Services) cleanEscaped(text string) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(text); i++ {
		if text[i] != '"' {
			continue
		}
		end := i + 1
		for end < len(text) && text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(text) {
			break
		}
		if literal, ok := s.cleanLiteral(text[i : end+1]); ok {
			b.WriteString(text[done:i] + literal)
			done = end + 1
		}
		i = end
	}
	return b.String() + text[done:]
}

// cleanLiteral gives a JSON string without the secrets in it, if it had any.
func (s *Services) cleanLiteral(literal string) (string, bool) {
	var plain string
	if strings.IndexByte(literal, '\\') < 0 || json.Unmarshal([]byte(literal), &plain) != nil {
		return "", false
	}
	clean := s.Redact.String(plain)
	if clean == plain {
		return "", false
	}
	out, err := json.Marshal(clean)
	return string(out), err == nil
}
