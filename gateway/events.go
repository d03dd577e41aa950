package gateway

import (
	"context"
	"net/http"
	"runtime/debug"

	"github.com/troupe-dev/troupe/messages"
)

// events streams what happens in a session (text/event-stream): durable events carry their seq as
// id, so that Last-Event-ID resumes without gap or duplicate; deltas carry none.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	after, err := cursor(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	id := r.PathValue("id")
	// Asked first, so that an unknown session is a 404 and no empty stream. It wakes nobody, and costs the same however many sessions there are.
	if _, err := ask[*messages.Belongs](r.Context(), a, &messages.WhoseIs{Id: id, Any: true}); err != nil {
		a.fail(w, r, err)
		return
	}
	ctx, cancel := a.untilStopped(r.Context())
	defer cancel()
	s := a.stream(w, cancel)
	var refused error
	a.each(ctx, id, after, func(e *messages.Event, err error) bool {
		switch {
		case err == nil:
			err = s.event(e)
			if err != nil {
				a.log.Debug("event stream dropped", "err", err)
			}
			return err == nil
		case !s.problem(ctx, err): // nothing was sent yet: it can still be said properly
			refused = err
		case ctx.Err() == nil:
			a.log.Warn("event stream ended", "err", err)
		}
		return false
	})
	s.end(refused == nil)
	if refused != nil {
		a.fail(w, r, refused)
	}
}

// cursor is the event after which a stream begins. What the client got last counts more than what
// it asked for at first.
func cursor(r *http.Request) (uint64, error) {
	q, err := query(r, "after")
	if err != nil {
		return 0, err
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		return number("Last-Event-ID", last, 63)
	}
	return number("after", q.Get("after"), 63)
}

// each hands over the backend's events until they end or nobody wants them any more. A panic is the error that they end with.
func (a *api) each(ctx context.Context, session string, after uint64, take func(*messages.Event, error) bool) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("event stream panicked", "session", session, "err", p, "stack", string(debug.Stack()))
			take(nil, messages.Fail(messages.CodeInternal, "the stream failed in a way that nobody expected", "see the log"))
		}
	}()
	for e, err := range a.backend.Events(ctx, session, after) {
		if !take(e, err) || err != nil {
			return
		}
	}
}
