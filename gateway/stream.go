package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// streamError is the type of the event that ends a stream with a problem. An end without one is a
// lost connection: the client comes back with the id of the last event it got.
const streamError = "error"

const (
	// openingWait is how long the answer to a client that asks for events waits for the first of them, or for the reason why there are none:
	// one that is known by then is a status of its own, and no event in a stream of status 200.
	openingWait = 200 * time.Millisecond
	// gather is how long an event may wait for others after the last ones were sent: a turn has a dozen that happen together, and sending
	// each of them by itself costs more than making it. What is waited for goes at once: see urgent.
	gather = 20 * time.Millisecond
	// gathered is the most that waits so, in bytes.
	gathered = 16 << 10
)

// stream writes one event stream. Its owner gives it events and ends it; its timer sends what was gathered, and comments while nothing happens.
type stream struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	keepalive time.Duration
	gone      func()     // the client takes nothing any more
	pieces    *sync.Pool // of *[]byte; a stream that is quiet keeps none

	mu           sync.Mutex
	begun, ended bool
	err          error   // why nothing more can be sent
	piece        *[]byte // what is gathered; nil: nothing
	sent         time.Time
	due          time.Time // when the timer is to do something
	timer        *time.Timer
	telling      bool // the newest event was a part of a text
}

func (a *api) stream(w http.ResponseWriter, gone func()) *stream {
	s := &stream{w: w, rc: http.NewResponseController(w), keepalive: a.opts.Keepalive, gone: gone, pieces: &a.pieces, due: time.Now().Add(openingWait)}
	s.mu.Lock() // until the timer is known
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(openingWait, s.tick)
	return s
}

// event sends an event soon: at once, or with those that follow it.
func (s *stream) event(e *messages.Event) error {
	data, err := e.MarshalJSON() // by itself: json.Marshal would go through all of it again
	if err != nil {
		return fmt.Errorf("encode event %d: %w", e.GetSeq(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	first := s.piece == nil
	b := *s.gathering()
	if e.GetSeq() != 0 {
		b = append(strconv.AppendUint(append(b, "id: "...), e.GetSeq(), 10), '\n')
	}
	b = append(append(b, "event: "...), e.GetType()...)
	b = append(append(append(b, "\ndata: "...), data...), "\n\n"...)
	*s.piece = b
	now := time.Now()
	switch {
	case s.urgent(e) || len(b) > gathered || now.Sub(s.sent) >= gather:
		return s.send(now)
	case first:
		s.wake(now, s.sent.Add(gather).Sub(now))
	}
	return nil
}

// urgent says whether somebody waits for an event: the first part of a text, the end of a turn, a question to a person.
func (s *stream) urgent(e *messages.Event) bool {
	told := s.telling
	s.telling = false
	switch e.GetType() {
	case messages.EventTextDelta, messages.EventReasoningDelta:
		s.telling = true
		return !told
	case messages.EventTurnCompleted, messages.EventApprovalRequested, messages.EventSessionClosed:
		return true
	}
	return false
}

// problem ends the stream with an error, unless ctx has ended, and is false when nothing was sent yet.
func (s *stream) problem(ctx context.Context, cause error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.ended = true // nor does the timer begin it
		return false
	}
	var f *messages.Failure
	if !errors.As(cause, &f) {
		f = messages.Fail(messages.CodeInternal, cause.Error(), "")
	}
	if data, err := json.Marshal(problemOf(0, f)); err == nil && ctx.Err() == nil {
		s.add("event: " + streamError + "\ndata: " + string(data) + "\n\n")
	}
	return true
}

// end sends what is gathered, and begins a stream of no events. Nothing is written after it.
func (s *stream) end(begin bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && (s.piece != nil || begin && !s.begun) {
		_ = s.send(time.Now()) // it ends either way
	}
	s.ended = true
	s.timer.Stop() // sending set it anew, and it would keep the answer until it goes off
}

// tick is what the timer does: it begins the stream, sends what is gathered, or says that the stream lives.
func (s *stream) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.ended || s.err != nil || now.Before(s.due) { // it was set anew when it had gone off
		return
	}
	if s.begun && s.piece == nil {
		s.add(":\n\n")
	}
	if s.send(now) != nil {
		s.gone()
	}
}

func (s *stream) wake(now time.Time, in time.Duration) {
	s.due = now.Add(in)
	s.timer.Reset(in)
}

func (s *stream) add(text string) {
	b := s.gathering()
	*b = append(*b, text...)
}

// gathering is the piece that is begun.
func (s *stream) gathering() *[]byte {
	if s.piece == nil {
		s.piece, _ = s.pieces.Get().(*[]byte)
	}
	if s.piece == nil {
		s.piece = new([]byte)
	}
	return s.piece
}

// send writes what is gathered.
func (s *stream) send(now time.Time) error {
	if !s.begun {
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // proxies pass each event on at once
		s.w.WriteHeader(http.StatusOK)
		s.begun = true
	}
	_ = s.rc.SetWriteDeadline(now.Add(writeTime)) // not every writer has one
	if p := s.piece; p != nil {
		_, s.err = s.w.Write(*p)
		s.piece = nil
		if cap(*p) <= 2*gathered {
			*p = (*p)[:0]
			s.pieces.Put(p)
		}
	}
	if s.err == nil {
		s.err = s.rc.Flush()
	}
	s.sent = now
	if s.err != nil {
		return fmt.Errorf("write to the event stream: %w", s.err)
	}
	s.wake(now, s.keepalive)
	return nil
}
