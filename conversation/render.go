package conversation

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// Ready is the right to ask the model: [State.Ready] makes one only while no call is open.
// It is good until the next fact is applied.
type Ready struct{ s *State }

// Ready returns the right to render, and false while a tool call is open, no turn is open, or
// the turn is a program's single call.
func (s *State) Ready() (Ready, bool) {
	t := s.turn
	if t == nil || t.Program() || t.assistant != nil || t.finished() {
		return Ready{}, false
	}
	return Ready{s}, true
}

// Render makes what is sent to the model: the history, then those of the turn's inputs
// that no answer has committed yet. The messages are shared and immutable; after an assistant
// message with N tool calls stand exactly N tool messages, in call order.
func (r Ready) Render(system string) *messages.Prompt {
	s, t := r.s, r.s.turn
	p := &messages.Prompt{System: system, Hash: s.chain, Sealed: s.history.segments()}
	if t.heard == len(t.Inputs) {
		p.Messages = s.history.messages[:len(s.history.messages):len(s.history.messages)]
		return p
	}
	p.Messages = make([]*messages.Message, len(s.history.messages), len(s.history.messages)+len(t.Inputs)-t.heard)
	copy(p.Messages, s.history.messages)
	for _, in := range t.Inputs[t.heard:] {
		m := &messages.Message{Role: messages.User, Text: InputText(in.GetParts())}
		p.Messages = append(p.Messages, m)
		p.Hash = link(p.Hash, m)
	}
	return p
}

// Preview renders a turn that is about to begin with an input, before its facts are applied.
func (s *State) Preview(in *messages.InputAccepted, system string) *messages.Prompt {
	m := &messages.Message{Role: messages.User, Text: InputText(in.GetParts())}
	p := &messages.Prompt{System: system, Sealed: s.history.segments(), Messages: make([]*messages.Message, len(s.history.messages), len(s.history.messages)+1)}
	copy(p.Messages, s.history.messages)
	p.Messages = append(p.Messages, m)
	p.Hash = link(s.chain, m)
	return p
}

// NextHash is the hash of the request that follows once the open calls have these results.
func (s *State) NextHash(results ...*messages.ToolFinished) [sha256.Size]byte {
	t := s.turn
	if t == nil || t.assistant == nil {
		return s.chain
	}
	h := link(s.chain, t.assistant)
	for i, tc := range t.assistant.ToolCalls {
		m := &messages.Message{Role: messages.ToolRole, ToolCallID: tc.GetId(), ToolName: tc.GetName()}
		if i < len(t.Calls) {
			m.Text = resultText(t.Calls[i], results)
		}
		h = link(h, m)
	}
	return h
}

func resultText(c *Call, results []*messages.ToolFinished) string {
	if c.Finished != nil {
		return heard(c.Finished)
	}
	for _, f := range results {
		if f.GetExecId() == c.Plan.GetExecId() {
			return heard(f)
		}
	}
	return ""
}

// InputText is the text of an input as the model reads it: the parts in order, files named.
func InputText(parts []*messages.Part) string {
	if len(parts) == 1 && parts[0].GetFile() == nil {
		return parts[0].GetText()
	}
	var b strings.Builder
	for _, p := range parts {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		if f := p.GetFile(); f != nil {
			b.WriteString("File " + f.GetName() + ":\n" + f.GetText())
			continue
		}
		b.WriteString(p.GetText())
	}
	return b.String()
}

// push adds a message to the history. Appending never disturbs a prompt that was handed
// out: it holds the shorter slice.
func (s *State) push(m *messages.Message, from source) {
	from.tokens = tokensOf(m)
	s.again(m, from)
}

// again is push for a message whose tokens are counted.
func (s *State) again(m *messages.Message, from source) {
	s.history.push(m)
	s.tokens += from.tokens
	s.sources = append(s.sources, from)
	s.chain = link(s.chain, m)
}

// kept is the history that goes into requests. It only grows; the runs of messages that are full
// stand in it a second time, as segments.
type kept struct {
	messages []*messages.Message
	sealed   []*messages.Segment
}

func (k *kept) push(m *messages.Message) {
	k.messages = append(k.messages, m)
	if n := len(k.messages); n%messages.SegmentSize == 0 {
		k.sealed = append(k.sealed, messages.NewSegment(k.messages[n-messages.SegmentSize:n:n]))
	}
}

func (k *kept) segments() []*messages.Segment { return k.sealed[:len(k.sealed):len(k.sealed)] }

// link chains the hash of one more message, so that a request's hash costs one message and not the history.
func link(chain [sha256.Size]byte, m *messages.Message) [sha256.Size]byte {
	var short [1 << 10]byte // most messages fit
	b := append(short[:0], chain[:]...)
	b = appendField(b, string(m.Role))
	b = appendField(b, m.Text)
	b = appendField(b, m.ToolCallID)
	for _, c := range m.ToolCalls {
		b = appendField(b, c.GetId())
		b = appendField(b, c.GetName())
		b = appendField(b, c.GetArguments())
	}
	return sha256.Sum256(b)
}

// appendField writes a text behind its length, so that what two fields say is not said by two others.
func appendField(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

// paired checks the message invariant: after an assistant message with N calls, N results.
func paired(ms []*messages.Message) bool {
	for i := 0; i < len(ms); i++ {
		if ms[i].Role != messages.Assistant && (ms[i].Role != messages.User || len(ms[i].ToolCalls) > 0) {
			return false
		}
		for _, c := range ms[i].ToolCalls {
			i++
			if i >= len(ms) || ms[i].Role != messages.ToolRole || ms[i].ToolCallID != c.GetId() {
				return false
			}
		}
	}
	return true
}
