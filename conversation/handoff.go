package conversation

import "github.com/troupe-dev/troupe/messages"

// applyHandedOver gives the conversation to another agent in the middle of its turn. What the one before was reduced to, by people or by
// who delegated, stays as a bound: the other one may do no more.
func (s *State) applyHandedOver(f *messages.HandedOver) error {
	if s.turn == nil {
		return ErrIllegal
	}
	if f.GetModel() != s.model {
		s.estimated, s.reported = 0, 0 // another vocabulary
	}
	s.agent, s.model, s.system, s.tools, s.handed = f.GetAgent(), f.GetModel(), f.GetSystem(), nil, true
	if f.GetBounds() != nil {
		s.bounds = append(s.bounds[:len(s.bounds):len(s.bounds)], f.GetBounds())
	}
	return nil
}

// Bounds are what else the worker is held to: what its parent could be asked for, and what it was reduced to before it was handed over, and
// what its parent became since.
func (s *State) Bounds() []*messages.Bounds {
	var out []*messages.Bounds
	if b := s.created.GetBounds(); b != nil {
		out = append(append(out, b), b.GetAlso()...)
	}
	return append(out, s.bounds...)
}
