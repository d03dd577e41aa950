package script

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"sync/atomic"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/canned"
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

// Title implements canned.Source.
func (p *player) Title() string { return p.s.Name }

// Answer implements canned.Source.
func (p *player) Answer(req *model.Request) (*canned.Answer, error) {
	v := look(req)
	r := p.s.find(v)
	if r == nil {
		return nil, p.s.unmatched(v)
	}
	a := &canned.Answer{
		Text: r.text.render(v), Reasoning: r.reasoning.render(v), Usage: r.usage, Finish: r.finish,
		Delay: r.delay, Pause: r.pause, Chunk: r.chunk, Cut: r.cut, Garbage: r.garbage,
	}
	p.given[r.slot].Store(true)
	if f := r.fail; f != nil && (f.times == 0 || p.failed[f.slot].Add(1) <= int64(f.times)) {
		a.Fail = &f.Failure
		return a, nil
	}
	said := len(a.Text) + len(a.Reasoning)
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
		a.Calls = append(a.Calls, &messages.ToolCall{Id: id, Name: c.name, Arguments: args})
		said += len(c.name) + len(args)
	}
	if a.Usage == nil {
		a.Usage = canned.Guess(v.size, said, len(a.Reasoning))
	}
	return a, nil
}

// Model plays the script in process. Each Model counts the failures of `fail.times` anew.
func (s *Script) Model() model.Model { return &direct{s.player()} }

type direct struct{ p *player }

// Unplayed are the replies that this model has never given, each as name:line:column and what it is for: a test asks for them that wants its script to
// say no more than what happened.
func (d *direct) Unplayed() []string { return d.p.unplayed() }

// Stream implements model.Model.
func (d *direct) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return canned.Stream(ctx, d.p, req)
}

// Handler serves a script as an OpenAI-compatible API: see [canned.Handler].
func Handler(s *Script, opts ServeOptions) http.Handler { return canned.Handler(s.player(), opts) }

// ServeOptions make the endpoint of a script misbehave.
type ServeOptions = canned.ServeOptions

// Stats count what an endpoint did.
type Stats = canned.Stats
