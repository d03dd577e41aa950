package main

import (
	"context"
	"errors"
	"sync"

	"github.com/troupe-dev/troupe/messages"
)

// turn takes the pending turn, or goes on with it in another house than it began in.
func (c *chat) turn(ctx context.Context, h *house) error {
	r := c.pending
	if !r.begun {
		if err := c.begin(ctx, h, r); err != nil {
			return err
		}
		r.begun = true
		if r.input == "" && r.turn == "" { // a session without a turn
			return nil
		}
	}
	err := c.follow(ctx, h, r)
	c.told = c.told || r.told
	if err != nil {
		if v, ok := r.view.(*textView); ok {
			err = errors.Join(v.endLine(), err)
		}
		return err
	}
	var ended *exitError
	if err := r.end(nil); errors.As(err, &ended) && c.code == exitDone {
		c.code = ended.code
	} else if err != nil && ended == nil {
		return err
	}
	return nil
}

// begin makes the session, or sends it the prompt. Without a prompt it finds what is to be finished, or the last turn.
func (c *chat) begin(ctx context.Context, h *house, r *runner) error {
	switch {
	case c.session == "" && !c.flags.resume:
		if r.create == nil {
			if err := r.prepare(ctx, c.loaded); err != nil {
				return err
			}
		}
		if err := r.begin(ctx, h); err != nil {
			return err
		}
	case r.parts == nil:
		if err := c.recall(ctx, h, r); err != nil {
			return err
		}
	default:
		if err := r.submit(ctx, h); err != nil {
			return err
		}
	}
	c.session, c.known = r.session, true
	return nil
}

// recall finds the session's open turn, or the last one.
func (c *chat) recall(ctx context.Context, h *house, r *runner) error {
	if r.session == "" {
		id, err := r.find(ctx, h)
		if err != nil {
			return err
		}
		r.session, r.log.session = id, id
	}
	shown, err := ask[*messages.Shown](ctx, h, &messages.Show{Id: r.session})
	if err != nil {
		return err
	}
	if !c.known {
		c.greet(shown)
		if own, ok := c.in.history.(*history); ok {
			own.seed(shown.GetTurns())
		}
		if c.flags.model != "" {
			if err := c.setModel(ctx, h, r.session, c.flags.model); err != nil {
				return err
			}
		}
	}
	var none *exitError
	if err := r.findTurn(ctx, h, shown); err != nil && (!errors.As(err, &none) || none.code != exitMissing) {
		return err
	}
	return nil
}

// follow shows the turn. On a terminal Ctrl-C cancels it; pressed again, it leaves.
func (c *chat) follow(ctx context.Context, h *house, r *runner) error {
	if !c.a.canAsk() {
		return r.follow(ctx, h)
	}
	ctx, leave := context.WithCancelCause(ctx)
	pressed := make(chan struct{}, 2)
	take := func() bool {
		select {
		case pressed <- struct{}{}:
		default:
		}
		return true
	}
	c.a.ctrlC.Store(&take)
	var canceller sync.WaitGroup
	canceller.Go(func() { c.onCtrlC(ctx, h, r, pressed, leave) })
	steered := c.steering(ctx, h, r)
	err := r.follow(ctx, h)
	steered()
	c.a.ctrlC.Store(nil)
	left := errors.Is(context.Cause(ctx), errLeave)
	leave(nil)
	canceller.Wait()
	if left && r.log.outcome == "" {
		return errLeave
	}
	return err
}

// onCtrlC cancels the turn, and then ends the walk along it.
func (c *chat) onCtrlC(ctx context.Context, h *house, r *runner, pressed <-chan struct{}, leave context.CancelCauseFunc) {
	var asks sync.WaitGroup
	defer asks.Wait() // they end with the walk
	for times := 1; ; times++ {
		select {
		case <-pressed:
		case <-ctx.Done():
			return
		}
		if times > 1 {
			leave(errLeave)
			return
		}
		c.a.note("\ntroupe: the turn is being cancelled; Ctrl-C again leaves")
		m := &messages.CancelSession{By: "user", Reason: "Ctrl-C"}
		asks.Go(func() {
			if _, err := h.Ask(ctx, inSession(r.session, &messages.ToSession{Command: &messages.ToSession_Cancel{Cancel: m}})); err != nil && ctx.Err() == nil {
				c.a.note("troupe: warning: the turn was not cancelled: %v", err)
			}
		})
	}
}
