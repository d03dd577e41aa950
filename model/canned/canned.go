// Package canned gives answers that were written down before anybody asked: in process ([Stream]) or behind an OpenAI-compatible HTTP endpoint
// ([Handler]), which also refuses what a strict provider would refuse. What the answer is, a [Source] says: a script (model/script), or a
// recording (model/replay). Both ways name the source in model.Meta.Scripted, and every surface says of it that no language model is running.
package canned

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// Source knows the answers. It is safe for concurrent use.
type Source interface {
	// Title is the name that surfaces show, of letters, digits, dot, dash and underscore: it goes into a header.
	Title() string
	// Answer is what a request is answered with; an error, mostly a *model.Error, where there is nothing.
	Answer(req *model.Request) (*Answer, error)
}

// Answer is one answer. Only what says something counts: the zero value of everything else is the usual.
type Answer struct {
	Text, Reasoning string
	Calls           []*messages.ToolCall
	Usage           *messages.Usage // not nil
	Finish          string          // "": by what is answered
	Delay, Pause    time.Duration   // before the answer, and before each piece
	Chunk           int             // characters per piece; 0: 32
	Cut             int             // characters after which the stream breaks off; -1: never
	Garbage         bool            // what comes is not the protocol
	Fail            *Failure        // instead of all that
	Unheard         func()          // is told when nobody heard the answer to its end; may be nil
}

// Failure is a call that fails.
type Failure struct {
	Class   model.Class
	Status  int // HTTP status; 200: the answer began well
	Message string
	After   time.Duration // when to come again, as a provider says it
}

const defaultChunk = 32

// finish is why the answer ends.
func (a *Answer) finish() string {
	switch {
	case a.Finish != "":
		return a.Finish
	case len(a.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

// unheard gives the answer back.
func (a *Answer) unheard() {
	if a.Unheard != nil {
		a.Unheard()
	}
}

// Guess is the usage of a call whose tokens nobody counted: four characters each, as everybody guesses.
func Guess(asked, said, reasoned int) *messages.Usage {
	return &messages.Usage{InputTokens: tokens(asked), OutputTokens: tokens(said), ReasoningTokens: int64(reasoned / 4)}
}

func tokens(chars int) int64 { return max(1, int64(chars/4)) }

// JSON encodes without escaping what only HTML minds.
func JSON(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// Stream is one call of a model that a source plays in process.
func Stream(ctx context.Context, s Source, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if err := stream(ctx, s, req, yield); err != nil {
			yield(model.Event{}, err)
		}
	}
}

// stream returns the error to end with; nil when all was said or nobody listens any more.
func stream(ctx context.Context, s Source, req *model.Request, yield func(model.Event, error) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a, err := s.Answer(req)
	if err != nil {
		return err
	}
	heard := false
	defer func() {
		if !heard {
			a.unheard()
		}
	}()
	if err := wait(ctx, a.Delay); err != nil {
		return err
	}
	if f := a.Fail; f != nil {
		heard = true
		return &model.Error{Class: f.Class, Message: f.Message, Status: f.reported(), RetryAfter: f.After, Attempts: 1}
	}
	if a.Garbage {
		return &model.Error{Class: model.Protocol, Message: "the script answers with garbage", Attempts: 1}
	}
	whole, stopped := a.events(func(ev *model.Event) bool {
		if err = wait(ctx, a.Pause); err != nil {
			return false
		}
		return yield(*ev, nil)
	})
	switch {
	case err != nil:
		return err
	case stopped:
		return nil
	case !whole:
		return &model.Error{Class: model.Truncated, Message: "the script breaks the stream off here", Attempts: 1}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !yield(model.Event{Kind: model.UsageSeen, Usage: a.Usage}, nil) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	heard = true
	yield(model.Event{Kind: model.Finish, Reason: a.finish(), Meta: model.Meta{Model: req.Model, Attempts: 1, Scripted: s.Title()}}, nil)
	return nil
}

// events gives out the content of the answer in pieces, usage and finish not included. It ends
// early, and reports false, where the script breaks the stream off.
func (a *Answer) events(yield func(*model.Event) bool) (whole, stopped bool) {
	left, chunk := a.Cut, a.Chunk
	if chunk == 0 {
		chunk = defaultChunk
	}
	send := func(ev model.Event) bool {
		for s := ev.Text; s != ""; {
			if left == 0 {
				return false
			}
			n := chunk
			if left > 0 {
				n = min(n, left)
			}
			ev.Text = prefix(s, n)
			s = s[len(ev.Text):]
			if left > 0 {
				left -= utf8.RuneCountInString(ev.Text)
			}
			if !yield(&ev) {
				stopped = true
				return false
			}
		}
		return true
	}
	if !send(model.Event{Kind: model.Reasoning, Text: a.Reasoning}) || !send(model.Event{Kind: model.Text, Text: a.Text}) {
		return false, stopped
	}
	for i, c := range a.Calls {
		if left == 0 {
			return false, false
		}
		if !yield(&model.Event{Kind: model.CallStart, Index: i, CallID: c.GetId(), Name: c.GetName()}) {
			return false, true
		}
		if !send(model.Event{Kind: model.CallArgs, Index: i, Text: c.GetArguments()}) {
			return false, stopped
		}
	}
	return a.Cut < 0, false
}

// prefix returns the first n characters.
func prefix(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// reported is the HTTP status of a failure, 0 where the answer began as a 200.
func (f *Failure) reported() int {
	if f.Status == http.StatusOK {
		return 0
	}
	return f.Status
}

// StatusOf is the HTTP status by which a provider says that a call failed; false for what no provider says.
func StatusOf(c model.Class) (int, bool) {
	switch c {
	case model.RateLimited:
		return http.StatusTooManyRequests, true
	case model.Overloaded:
		return http.StatusServiceUnavailable, true
	case model.ContextLength, model.BadRequest:
		return http.StatusBadRequest, true
	case model.Auth:
		return http.StatusUnauthorized, true
	case model.NotFound:
		return http.StatusNotFound, true
	case model.Timeout:
		return http.StatusRequestTimeout, true
	case model.Truncated, model.Protocol:
		return http.StatusOK, true
	case model.Unmatched:
	}
	return 0, false
}

// ClassOf is what an HTTP status of an error means.
func ClassOf(status int) model.Class {
	switch {
	case status == http.StatusTooManyRequests:
		return model.RateLimited
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusPaymentRequired:
		return model.Auth
	case status == http.StatusNotFound:
		return model.NotFound
	case status == http.StatusRequestTimeout:
		return model.Timeout
	case status >= 500:
		return model.Overloaded
	}
	return model.BadRequest
}
