package conversation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// An input of mode STEER joins the turn that is open when it comes, before the turn's next model call: the model reads it behind the results of
// its calls, and it is committed with the answer to that. A turn that makes no further call takes nobody in, and none takes in what the model's
// window has no room for: the input waits for a turn of its own then, as any.

// Join takes inputs that wait into the open turn.
type Join struct{ Inputs []*Input }

func (Join) step() {}

// joining are the inputs that join the open turn before its next model call, in order: those that fit behind what that call sends anyway, as
// it is once the open calls have these results. The first that does not fit, and all behind it, wait for turns of their own.
func (s *State) joining(lim Limits, results ...*messages.ToolFinished) []*Input {
	all := s.joinable()
	if lim.Fits == nil || len(all) == 0 {
		return all
	}
	tokens := s.NextTokens(results...)
	for i, in := range all {
		if tokens += InputTokens(in.InputAccepted); !lim.Fits(tokens) {
			return all[:i]
		}
	}
	return all
}

// joinable are the inputs that may join the open turn, as far as the facts say: whether there is room for them is no fact.
func (s *State) joinable() []*Input {
	t := s.turn
	if t == nil || t.Program() || t.shared() || t.Gen != nil || t.finished() {
		return nil
	}
	var out []*Input
	for _, in := range s.inputs {
		if in.GetMode() == messages.InputAccepted_STEER && in.GetCall() == nil && !in.late {
			out = append(out, in)
		}
	}
	return out
}

// tooLate are the inputs that wait while a turn begins: what was to join the one before has a turn of its own.
func tooLate(inputs []*Input) []*Input {
	out := append([]*Input(nil), inputs...)
	for i, in := range out {
		if in.GetMode() == messages.InputAccepted_STEER && !in.late {
			kept := *in // a frozen state has it, too
			kept.late = true
			out[i] = &kept
		}
	}
	return out
}

// shared says whether the turn is one of a conversation of several workers: the others would not hear what joined it (I18).
func (t *Turn) shared() bool {
	return len(t.Inputs) > 0 && t.Inputs[0].OfConversation()
}

// OfConversation says whether an input is what a shared conversation told a member. A client may say that it comes from whomever it likes, but not
// that it is of the runtime's own origin.
func (in *Input) OfConversation() bool {
	return in.GetOrigin() == messages.InputAccepted_SYSTEM && strings.HasPrefix(in.GetFrom(), messages.ConversationPrefix)
}

func (s *State) applyJoined(f *messages.InputJoined) error {
	t := s.turn
	if t == nil || t.ID != f.GetTurnId() || t.assistant != nil || !slices.ContainsFunc(s.joinable(), func(in *Input) bool { return in.GetInputId() == f.GetInputId() }) {
		return fmt.Errorf("input %s cannot join turn %s: %w", f.GetInputId(), f.GetTurnId(), ErrIllegal)
	}
	i := slices.IndexFunc(s.inputs, func(in *Input) bool { return in.GetInputId() == f.GetInputId() })
	t.Inputs = append(t.Inputs[:len(t.Inputs):len(t.Inputs)], s.inputs[i])
	s.inputs = append(s.inputs[:i:i], s.inputs[i+1:]...)
	s.known[f.GetInputId()].turn = t.ID
	return nil
}
