package openai

import "bytes"

// likeness is an event that was classified, but for its content, reasoning or arguments. The events of a stream mostly differ in
// nothing else: one that has the same bytes before and after says the same, and only what is between is looked at.
type likeness struct {
	before, after []byte // with the quotes
	shape         shape  // kind odd: nothing was learnt
}

// learn keeps an event that others may be like. The model's name, which it has told, is not kept.
func (l *likeness) learn(data []byte, s *shape) {
	if s.kind != text && s.kind != musing && s.kind != args {
		return
	}
	l.before = append(l.before[:0], data[:s.at]...)
	l.after = append(l.after[:0], data[s.at+len(s.body):]...)
	l.shape = shape{kind: s.kind, choice: s.choice, tool: s.tool, at: s.at}
}

// read is classify for an event that is like the one before.
func (l *likeness) read(data []byte) (shape, bool) {
	end := len(data) - len(l.after)
	if l.shape.kind == odd || end < len(l.before) || !bytes.HasPrefix(data, l.before) || !bytes.HasSuffix(data, l.after) {
		return shape{}, false
	}
	c := cursor{b: data, i: len(l.before) - 1} // at the quote
	body, clean, ok := c.str()
	if !ok || !clean || c.i != end+1 || len(body) == 0 {
		return shape{}, false
	}
	s := l.shape
	s.body = body
	return s, true
}
