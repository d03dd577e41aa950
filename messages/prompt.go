package messages

import "sync/atomic"

// Role says who speaks in a message of a prompt.
type Role string

// The roles of a prompt. The system prompt is kept apart (Prompt.System).
const (
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
)

// Message is one message of a prompt. It is immutable once it stands in a conversation, so
// that its encoded form can be made once and used by every later request.
type Message struct {
	Role       Role
	Text       string
	Reasoning  string
	ToolCalls  []*ToolCall // of an assistant
	ToolCallID string      // of a tool: the provider's id of the call it answers
	ToolName   string      // of a tool

	wire atomic.Pointer[wire]
}

type wire struct {
	format string
	bytes  []byte
}

// Wire returns the message as one wire format encodes it. encode runs on first use, or when
// another format was kept; the bytes must not be changed.
func (m *Message) Wire(format string, encode func(*Message) []byte) []byte {
	if w := m.wire.Load(); w != nil && w.format == format {
		return w.bytes
	}
	b := encode(m)
	m.wire.Store(&wire{format: format, bytes: b})
	return b
}

// SegmentSize is how many messages a segment holds.
const SegmentSize = 16

// Segment is a run of SegmentSize messages that keeps its encoded form as one piece of memory: a long
// request is then read in order, where thousands of small pieces would each be a cache miss.
type Segment struct {
	messages []*Message
	wire     atomic.Pointer[wire]
}

// NewSegment takes the messages over; they must not change any more, nor the slice.
func NewSegment(ms []*Message) *Segment { return &Segment{messages: ms} }

// Wire is Message.Wire for all messages of the segment, one behind the other. The messages' own
// bytes are let go.
func (s *Segment) Wire(format string, encode func(*Message) []byte) []byte {
	if w := s.wire.Load(); w != nil && w.format == format {
		return w.bytes
	}
	n := 0
	for _, m := range s.messages {
		n += len(m.Wire(format, encode))
	}
	b := make([]byte, 0, n)
	for _, m := range s.messages {
		b = append(b, m.Wire(format, encode)...)
		m.wire.Store(nil)
	}
	s.wire.Store(&wire{format: format, bytes: b})
	return b
}

// Prompt is what is sent to a model: only [conversation.State.Render] makes one, and only
// when no tool call is open.
type Prompt struct {
	System   string
	Messages []*Message // a snapshot: never changed after it was handed out
	Sealed   []*Segment // the first len(Sealed) * SegmentSize of Messages once more, for who sends their bytes
	Hash     [32]byte   // chained over the messages' hashes
}
