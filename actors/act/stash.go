package act

import "github.com/asynkron/protoactor-go/actor"

// Stash keeps messages, first in first out and with their senders, until an actor is ready for them.
type Stash struct{ kept []kept }

type kept struct {
	msg    any
	sender *actor.PID
}

// Put keeps the message that is being handled.
func (s *Stash) Put(c actor.Context) { s.kept = append(s.kept, kept{c.Message(), c.Sender()}) }

// PutAs keeps something else from the sender of the message that is being handled.
func (s *Stash) PutAs(c actor.Context, msg any) { s.kept = append(s.kept, kept{msg, c.Sender()}) }

// Len counts what is kept.
func (s *Stash) Len() int { return len(s.kept) }

// Next is the message that was kept first; nil when there is none.
func (s *Stash) Next() any {
	if len(s.kept) == 0 {
		return nil
	}
	return s.kept[0].msg
}

// Holds says whether a message that is kept matches.
func (s *Stash) Holds(match func(msg any) bool) bool {
	for _, k := range s.kept {
		if match(k.msg) {
			return true
		}
	}
	return false
}

// Replay handles what was kept, in order, until handle returns false (not ready again: the rest
// stays kept ahead of whatever the handler put back).
func (s *Stash) Replay(c actor.Context, handle func(actor.Context), ready func() bool) {
	for len(s.kept) > 0 && ready() {
		k := s.kept[0]
		s.kept = s.kept[1:]
		before := c.Capture()
		c.Apply(&actor.CapturedContext{MessageEnvelope: &actor.MessageEnvelope{Message: k.msg, Sender: k.sender}, Context: c})
		handle(c)
		c.Apply(before)
	}
	if len(s.kept) == 0 {
		s.kept = nil
	}
}

// Forward sends everything kept to another actor, senders preserved, and forgets it.
func (s *Stash) Forward(c actor.Context, to *actor.PID) {
	for _, k := range s.kept {
		c.RequestWithCustomSender(to, k.msg, k.sender)
	}
	s.kept = nil
}

// Each answers or inspects everything kept and forgets it.
func (s *Stash) Each(fn func(msg any, sender *actor.PID)) {
	for _, k := range s.kept {
		fn(k.msg, k.sender)
	}
	s.kept = nil
}
