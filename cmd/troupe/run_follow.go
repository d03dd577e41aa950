package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// errTurnDone ends the walk along the events.
var errTurnDone = errors.New("the turn is done")

// follow shows the turn that is waited for, from its first event to its last.
func (r *runner) follow(ctx context.Context, h *house) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watched sync.WaitGroup
	watched.Go(func() { r.watch(ctx, h, cancel) })
	started := make(chan struct{})
	r.started = started
	watched.Go(func() { r.sayWhatIsWaitedFor(ctx, h, started) })
	if r.input != "" {
		watched.Go(func() { r.watchDoubt(ctx, h, cancel) })
		watched.Go(func() { r.watchApprovals(ctx, h, cancel) })
		watched.Go(func() { r.watchBudget(ctx, h, cancel) })
	}
	defer func() {
		cancel(nil)
		watched.Wait()
	}()
	for e, err := range h.Events(ctx, r.session, r.after) {
		if err == nil {
			r.kicks.take(e)
			err = r.take(e)
		}
		switch {
		case errors.Is(err, errTurnDone):
			return nil
		case errors.Is(context.Cause(ctx), errWaiting):
			r.log.outcome, r.unpaid = "waiting", errors.Is(context.Cause(ctx), errUnpaid)
			return nil
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("the events of the session ended before the turn did")
}

// watch ends the walk when the turn can never complete here: its input was withdrawn, its worker is out
// of service, or the process that holds the directory has ended. That has no event.
func (r *runner) watch(ctx context.Context, h *house, cancel context.CancelCauseFunc) {
	if r.input == "" {
		return // a turn of the past
	}
	_, err := h.Ask(ctx, &messages.ToSession{SessionId: r.session, Command: &messages.ToSession_AwaitTurn{
		AwaitTurn: &messages.AwaitTurn{InputId: r.input},
	}})
	var refused *messages.Failure
	switch {
	case errors.As(err, &refused):
		cancel(refused)
	case err != nil && h.client != nil:
		cancel(err) // the holder is gone: the events would wait some seconds for it to come back
	}
}

// waitingNote is how long a turn may take to begin before the run says what it waits for.
const waitingNote = 500 * time.Millisecond

// sayWhatIsWaitedFor says once what a turn waits for that does not begin.
func (r *runner) sayWhatIsWaitedFor(ctx context.Context, h *house, started <-chan struct{}) {
	tick := time.NewTicker(waitingNote)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-started:
			return
		case <-tick.C:
		}
		all, err := ask[*messages.Workers](ctx, h, &messages.ListWorkers{SessionId: r.session})
		if err != nil {
			return // what is wrong the walk along the events says
		}
		for _, w := range all.GetWorkers() {
			if w.GetWaitsFor() != "" && w.GetTurn() == "" {
				r.a.note("troupe: waits for %s", visible(w.GetWaitsFor()))
				return
			}
		}
	}
}

// take shows an event if it is of the turn that is waited for.
func (r *runner) take(e *messages.Event) error {
	if e.GetSeq() > r.after {
		r.after = e.GetSeq()
	}
	if e.GetType() == messages.EventInputJoined && r.joiners != nil {
		r.joiners[e.GetInputId()] = true
	}
	if r.begins(e) {
		r.joined = r.joined || e.GetType() == messages.EventInputJoined
		if r.started != nil {
			close(r.started)
			r.started = nil
		}
		r.turn = e.GetTurn()
		r.log.take(e)
		return r.view.show(e, r.log)
	}
	before := r.log.turn == "" || e.GetTurn() != r.log.turn
	if before {
		return r.preamble(e)
	}
	if e.GetScripted() {
		r.scripted("")
	}
	if e.GetType() == messages.EventHistoryCompacted {
		if err := r.compacted(e); err != nil {
			return err
		}
	}
	r.log.take(e)
	if err := r.view.show(e, r.log); err != nil {
		return err
	}
	if e.GetType() == messages.EventTurnCompleted {
		return errTurnDone
	}
	return nil
}

// begins says whether an event is the first one that is shown of the turn that is waited for.
func (r *runner) begins(e *messages.Event) bool {
	own := r.input != "" && e.GetInputId() == r.input
	switch e.GetType() {
	case messages.EventTurnStarted:
		return own || e.GetTurn() == r.turn
	case messages.EventInputJoined: // of somebody else's turn
		return own && r.log.turn == ""
	}
	return false
}

// compacted says that older turns are no longer sent as they were.
func (r *runner) compacted(e *messages.Event) error {
	if v, ok := r.view.(*textView); ok && v.both {
		if err := v.endLine(); err != nil {
			return err
		}
	}
	r.a.note("%s", compactedNote(e.GetStatus() == "dropped", e.GetTotal(), e.GetDone(), e.GetReason()))
	return nil
}

// preamble shows, where events are data, those that belong to the turn without being in it: how the
// session came to be, and the input.
func (r *runner) preamble(e *messages.Event) error {
	if e.GetType() == messages.EventHistoryCompacted && r.accepted { // to make room for the prompt
		if err := r.compacted(e); err != nil {
			return err
		}
	}
	v, data := r.view.(*eventView)
	r.accepted = r.accepted || e.GetType() == messages.EventInputAccepted && e.GetInputId() == r.input
	own := e.GetType() == messages.EventInputAccepted && e.GetInputId() == r.input ||
		e.GetType() == messages.EventHistoryCompacted && r.accepted ||
		r.create != nil && (e.GetType() == messages.EventSessionCreated || e.GetType() == messages.EventWorkerSpawned)
	if !data || !own {
		return nil
	}
	return v.show(e, r.log)
}
