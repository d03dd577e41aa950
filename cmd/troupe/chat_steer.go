package main

import (
	"context"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// steerWord begins a line that is for the open turn.
const steerWord = "/steer"

// steer is /steer at the prompt: the turn that is open, if one is, may be somebody else's, or wait for a person.
func (c *chat) steer(_ context.Context, _ node, arg string) error {
	if arg == "" {
		return usage("/steer: say what the turn should know: /steer TEXT")
	}
	c.pending = c.runner([]*messages.Part{{Kind: &messages.Part_Text{Text: arg}}})
	c.pending.mode = messages.InputAccepted_STEER
	return nil
}

// steering takes what is typed with /steer while a turn is under way. What it returns ends that: what came too late for the turn has
// one of its own next. Other lines stay for the next prompt.
func (c *chat) steering(ctx context.Context, h *house, r *runner) (end func()) {
	listening, stop := context.WithCancel(ctx)
	r.joiners = make(map[string]bool)
	var sent []*runner
	over := c.in.in.listening(listening, func(line string) bool {
		word, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word != steerWord {
			return false
		}
		if one := c.tell(ctx, h, strings.TrimSpace(text)); one != nil {
			sent = append(sent, one)
		}
		return true
	})
	return func() {
		stop()
		over()
		for _, one := range sent {
			if !r.joiners[one.input] {
				c.late = append(c.late, one)
			}
		}
	}
}

// tell sends a word for the open turn, and gives what follows its turn if it has one of its own; nil when it was not taken.
func (c *chat) tell(ctx context.Context, h *house, text string) *runner {
	if text == "" {
		c.a.note("troupe: say what the turn should know: /steer TEXT")
		return nil
	}
	one := c.runner([]*messages.Part{{Kind: &messages.Part_Text{Text: text}}})
	one.mode = messages.InputAccepted_STEER
	if err := one.submit(ctx, h); err != nil {
		c.a.note("troupe: warning: it was not taken: %s", visible(err.Error()))
		return nil
	}
	one.begun = true
	c.a.note("troupe: noted; the model reads it with its next request")
	return one
}
