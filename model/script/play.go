package script

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// player is a script being played. The only thing it remembers that decides about an answer is how often a reply with
// `fail.times` has failed already: retries could not be shown without.
type player struct {
	s      *Script
	failed []atomic.Int64
	given  []atomic.Bool // by reply
}

func (s *Script) player() *player {
	return &player{s: s, failed: make([]atomic.Int64, s.failing), given: make([]atomic.Bool, s.replies)}
}

// unplayed are the places of the replies that were never given, and what they are for.
func (p *player) unplayed() (out []string) {
	for i := range p.s.rules {
		r := &p.s.rules[i]
		for k := range r.plays {
			if p.given[r.plays[k].slot].Load() {
				continue
			}
			what := "this reply was never given"
			if r.match != nil {
				what += fmt.Sprintf(" (match: %s)", quoted(r.match.String()))
			}
			out = append(out, p.s.src.at(r.plays[k].path, "%s", what).Error())
		}
	}
	return out
}

// answer is a reply made for one request.
type answer struct {
	text, reasoning string
	calls           []*messages.ToolCall
	usage           *messages.Usage
	finish          string
	delay, pause    time.Duration
	chunk           int
	cut             int
	garbage         bool
	fail            *failure // instead of all that
}

func (p *player) answer(req *model.Request) (*answer, error) {
	v := look(req)
	r := p.s.find(v)
	if r == nil {
		return nil, p.s.unmatched(v)
	}
	a := &answer{
		text: r.text.render(v), reasoning: r.reasoning.render(v), usage: r.usage, finish: r.finish,
		delay: r.delay, pause: r.pause, chunk: r.chunk, cut: r.cut, garbage: r.garbage,
	}
	p.given[r.slot].Store(true)
	if f := r.fail; f != nil && (f.times == 0 || p.failed[f.slot].Add(1) <= int64(f.times)) {
		a.fail = f
		return a, nil
	}
	said := len(a.text) + len(a.reasoning)
	for i := range r.calls {
		c := &r.calls[i]
		args, err := c.args.render(v)
		if err != nil {
			return nil, &model.Error{Class: model.Protocol, Message: err.Error(), Err: err}
		}
		id := c.id
		if id == "" { // from the place in the conversation, so that a repeated call gets the same
			id = fmt.Sprintf("call_%d_%d_%d", v.turn, v.step, i)
		}
		a.calls = append(a.calls, &messages.ToolCall{Id: id, Name: c.name, Arguments: args})
		said += len(c.name) + len(args)
	}
	if a.usage == nil {
		a.usage = &messages.Usage{InputTokens: tokens(v.size), OutputTokens: tokens(said), ReasoningTokens: int64(len(a.reasoning) / 4)}
	}
	if a.finish == "" {
		a.finish = "stop"
		if len(a.calls) > 0 {
			a.finish = "tool_calls"
		}
	}
	if a.chunk == 0 {
		a.chunk = defaultChunk
	}
	return a, nil
}

// tokens guesses as everybody does: four characters each.
func tokens(chars int) int64 { return max(1, int64(chars/4)) }

// events gives out the content of the answer in pieces, usage and finish not included. It ends
// early, and reports false, where the script breaks the stream off.
func (a *answer) events(yield func(*model.Event) bool) (whole, stopped bool) {
	left := a.cut
	send := func(ev model.Event) bool {
		for s := ev.Text; s != ""; {
			if left == 0 {
				return false
			}
			n := a.chunk
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
	if !send(model.Event{Kind: model.Reasoning, Text: a.reasoning}) || !send(model.Event{Kind: model.Text, Text: a.text}) {
		return false, stopped
	}
	for i, c := range a.calls {
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
	return a.cut < 0, false
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

// Model plays the script in process. Each Model counts the failures of `fail.times` anew.
func (s *Script) Model() model.Model { return &direct{s.player()} }

type direct struct{ p *player }

// Unplayed are the replies that this model has never given, each as name:line:column and what it is for: a test asks for them that wants its script to
// say no more than what happened.
func (d *direct) Unplayed() []string { return d.p.unplayed() }

// Stream implements model.Model.
func (d *direct) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if err := d.stream(ctx, req, yield); err != nil {
			yield(model.Event{}, err)
		}
	}
}

// stream returns the error to end with; nil when all was said or nobody listens any more.
func (d *direct) stream(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a, err := d.p.answer(req)
	if err != nil {
		return err
	}
	if err := wait(ctx, a.delay); err != nil {
		return err
	}
	if f := a.fail; f != nil {
		return &model.Error{Class: f.class, Message: f.message, Status: f.reported(), RetryAfter: f.after, Attempts: 1}
	}
	if a.garbage {
		return &model.Error{Class: model.Protocol, Message: "the script answers with garbage", Attempts: 1}
	}
	whole, stopped := a.events(func(ev *model.Event) bool {
		if err = wait(ctx, a.pause); err != nil {
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
	if !yield(model.Event{Kind: model.UsageSeen, Usage: a.usage}, nil) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	yield(model.Event{Kind: model.Finish, Reason: a.finish, Meta: model.Meta{Model: req.Model, Attempts: 1, Scripted: d.p.s.Name}}, nil)
	return nil
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
func (f *failure) reported() int {
	if f.status == http.StatusOK {
		return 0
	}
	return f.status
}

func statusOf(c model.Class) (int, bool) {
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

func classOf(status int) model.Class {
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
