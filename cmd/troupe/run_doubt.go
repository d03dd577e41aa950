package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// errWaiting ends the walk along the events of a turn that waits for a person who is not here.
var errWaiting = errors.New("the turn waits for a person")

// lookAgain is how often a run looks by itself whether its turn waits for a person. The session's events tell it at once; this is for a turn
// that waited before it was watched.
const lookAgain = 2 * time.Second

// kicks say that an event has come after which somebody may be waited for.
type kicks struct{ approvals, doubts chan struct{} }

func newKicks() kicks { return kicks{make(chan struct{}, 1), make(chan struct{}, 1)} }

// take looks whether an event may be one.
func (k kicks) take(e *messages.Event) {
	switch e.GetType() {
	case messages.EventApprovalRequested, messages.EventApprovalResolved, messages.EventToolFinished, messages.EventToolInDoubt, messages.EventToolResolved:
	default:
		return
	}
	for _, c := range []chan struct{}{k.approvals, k.doubts} {
		select {
		case c <- struct{}{}:
		default: // it will look in any case
		}
	}
}

// watchDoubt says what the session waits for when nobody knows what became of a call and a person is to say it. Where
// nobody sits at a terminal, it ends the walk then.
func (r *runner) watchDoubt(ctx context.Context, h *house, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	told := make(map[string]bool)
	for {
		calls, err := r.inDoubt(ctx, h)
		for _, c := range calls {
			if !told[c.GetExecId()] {
				told[c.GetExecId()] = true
				r.a.note("%s", doubtText(c))
			}
		}
		if err == nil && len(calls) > 0 && !r.a.canAsk() {
			cancel(errWaiting)
			return
		}
		select {
		case <-r.kicks.doubts:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// inDoubt lists the calls of the session that wait for a person's word, once nothing else of their turn goes on.
func (r *runner) inDoubt(ctx context.Context, h *house) ([]*messages.CallView, error) {
	found, err := ask[*messages.Calls](ctx, h, &messages.ListCalls{State: "in_doubt"})
	own := slices.DeleteFunc(found.GetCalls(), func(c *messages.CallView) bool { return c.GetSessionId() != r.session })
	if err != nil || len(own) == 0 {
		return nil, err
	}
	all, err := ask[*messages.Workers](ctx, h, &messages.ListWorkers{SessionId: r.session})
	if err != nil {
		return nil, err
	}
	who := waitsForPeople(all.GetWorkers())
	return slices.DeleteFunc(own, func(c *messages.CallView) bool { return !who[c.GetWorkerId()] }), nil
}

func doubtText(c *messages.CallView) string {
	return fmt.Sprintf("troupe: nobody knows whether %s(%s) ran: it was cut off; look, then say which: troupe calls resolve %s retry|done|fail",
		c.GetTool(), summary(c.GetArguments()), c.GetExecId())
}
