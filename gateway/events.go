package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// streamError is the type of the event that ends a stream with a problem. An end without one is a
// lost connection: the client comes back with the id of the last event it got.
const streamError = "error"

// waiting is how many events may wait to be written: those that happen together are sent in one piece.
const waiting = 16

// item is one thing to send: an event, or the error that ends the stream.
type item struct {
	event *messages.Event
	err   error
}

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
	s := &stream{w: w, rc: http.NewResponseController(w)}
	items := make(chan item, waiting)
	go a.pump(ctx, items, id, after)
	defer func() {
		cancel()
		for range items { // until the pump has ended
		}
	}()
	first, more := opening(ctx, items)
	if first != nil && first.err != nil { // nothing was sent yet: it can still be said properly
		a.fail(w, r, first.err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies pass each event on at once
	w.WriteHeader(http.StatusOK)
	if s.begin() != nil {
		return
	}
	if first != nil && (s.event(first.event) != nil || s.flush() != nil) || !more {
		return
	}
	a.forward(ctx, s, items)
}

// openingWait is how long the answer to a client that asks for events waits for the first of them, or for the reason why there are none:
// one that is known by then is a status of its own, and no event in a stream of status 200.
const openingWait = 200 * time.Millisecond

// opening waits for the first item; more says that there may be others.
func opening(ctx context.Context, items <-chan item) (first *item, more bool) {
	wait := time.NewTimer(openingWait)
	defer wait.Stop()
	select {
	case it, open := <-items:
		if !open {
			return nil, false
		}
		return &it, true
	case <-wait.C:
		return nil, true
	case <-ctx.Done():
		return nil, false
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

// pump reads the backend's events until they end or nobody wants them any more.
func (a *api) pump(ctx context.Context, items chan<- item, session string, after uint64) {
	defer close(items)
	send := func(it item) bool {
		select {
		case items <- it:
			return it.err == nil
		case <-ctx.Done():
			return false
		}
	}
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("event stream panicked", "session", session, "err", p, "stack", string(debug.Stack()))
			send(item{err: messages.Fail(messages.CodeInternal, "the stream failed in a way that nobody expected", "see the log")})
		}
	}()
	for ev, err := range a.backend.Events(ctx, session, after) {
		if !send(item{ev, err}) {
			return
		}
	}
}

// forward writes events as they come, and comments while nothing happens.
func (a *api) forward(ctx context.Context, s *stream, items <-chan item) {
	quiet := time.NewTicker(a.opts.Keepalive)
	defer quiet.Stop()
	for {
		var err error
		select {
		case it, more := <-items:
			switch {
			case !more || ctx.Err() != nil:
				return
			case it.err != nil:
				a.log.Warn("event stream ended", "err", it.err)
				_ = s.problem(it.err) // the stream ends either way
				return
			}
			err = s.event(it.event)
			if err == nil && len(items) == 0 { // what came with it goes with it
				err = s.flush()
			}
			quiet.Reset(a.opts.Keepalive)
		case <-quiet.C:
			err = s.comment()
		case <-ctx.Done():
			return
		}
		if err != nil {
			a.log.Debug("event stream dropped", "err", err)
			return
		}
	}
}

// stream writes one event stream.
type stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (s *stream) begin() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
	return s.flush()
}

func (s *stream) event(e *messages.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event %d: %w", e.GetSeq(), err)
	}
	id := ""
	if e.GetSeq() != 0 {
		id = "id: " + strconv.FormatUint(e.GetSeq(), 10) + "\n"
	}
	return s.write(id + "event: " + e.GetType() + "\ndata: " + string(data) + "\n\n")
}

func (s *stream) problem(cause error) error {
	var f *messages.Failure
	if !errors.As(cause, &f) {
		f = messages.Fail(messages.CodeInternal, cause.Error(), "")
	}
	data, err := json.Marshal(problemOf(0, f))
	if err != nil {
		return fmt.Errorf("encode problem: %w", err)
	}
	return s.send("event: " + streamError + "\ndata: " + string(data) + "\n\n")
}

func (s *stream) comment() error { return s.send(":\n\n") }

func (s *stream) send(text string) error {
	if err := s.write(text); err != nil {
		return err
	}
	return s.flush()
}

// write is not sent before flush, unless there is much of it.
func (s *stream) write(text string) error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
	if _, err := io.WriteString(s.w, text); err != nil {
		return fmt.Errorf("write to the event stream: %w", err)
	}
	return nil
}

func (s *stream) flush() error {
	if err := s.rc.Flush(); err != nil {
		return fmt.Errorf("flush the event stream: %w", err)
	}
	return nil
}
