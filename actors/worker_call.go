package actors

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// modelCall is one call in its own goroutine: nothing of the worker is touched there.
type modelCall struct {
	ctx    context.Context //nolint:containedctx // of its goroutine
	cancel context.CancelCauseFunc
	log    *slog.Logger

	svc       *Services
	sys       *actor.ActorSystem
	session   *actor.PID
	receiving *atomic.Bool // of the generation
	arrived   *arrived     // of the generation; nil: nobody sees its text, as that of a summary
	watched   *atomic.Bool // of the worker; nil: nobody watches
	number    uint64
	model     model.Model
	request   model.Request
	worker    string // for the deltas, as the next two
	turn, gen string
	before    *surroundings // to gather before the call; nil when that was done
	grant     *messages.Grant

	out   generated
	start time.Time
	first time.Duration
	held  [2]string // of text and of reasoning: may be the beginning of a secret
}

// Run implements act.Task.
func (m *modelCall) Run() any {
	defer m.cancel(nil)
	return m.run(m.ctx)
}

// Failed implements act.Task.
func (m *modelCall) Failed(p *act.Panic) any {
	m.log.Error("model adapter panicked", "err", p.Error(), "stack", p.Stack)
	return m.unasked(&model.Error{Class: model.Protocol, Message: "the model adapter crashed"})
}

// unasked is the end of a call that brought nothing.
func (m *modelCall) unasked(err error) *generated {
	return &generated{number: m.number, completion: &model.Completion{}, err: err}
}

func (m *modelCall) run(ctx context.Context) *generated {
	out := &m.out
	out.number = m.number
	if m.before != nil {
		text, err := m.before.gather(ctx)
		if err != nil {
			return m.unasked(err)
		}
		text = m.svc.Redact.String(text)
		out.around = &around{turn: m.before.turn.Turn, text: text}
		m.extend(text)
	}
	m.extend(m.svc.Redact.String(fieldsText(ctx, m.svc, m.sys, m.grant))) // as they are now (row 57)
	if m.request.MaxTokens < 0 {
		gone := m.unasked(&model.Error{Class: shortOfBudget, Message: "what stands around the turn is larger than what was set aside for the request"})
		gone.around = out.around
		return gone
	}
	m.start = time.Now()
	out.completion, out.err = model.Collect(m.model.Stream(ctx, &m.request), m.see)
	out.first, out.took = m.first, time.Since(m.start)
	m.svc.cleanAnswer(out.completion, out.err == nil)
	if out.err == nil {
		m.publish(messages.EventTextDelta, m.svc.Redact.String(m.held[0]))
		m.publish(messages.EventReasoningDelta, m.svc.Redact.String(m.held[1]))
	}
	return out
}

// extend adds to the request what was not known when it was paid: the answer may be so much shorter.
func (m *modelCall) extend(text string) {
	m.request.Prompt = extended(m.request.Prompt, text)
	if most := &m.request.MaxTokens; *most > 0 && text != "" {
		if *most -= atMost(conversation.EstimateTokens(text)); *most < leastAnswer {
			*most = -1
		}
	}
}

// see forwards deltas to the Session while somebody watches. They carry the generation's id and are
// void until its fact arrives.
func (m *modelCall) see(e model.Event) {
	if m.first == 0 {
		m.first = time.Since(m.start)
		m.receiving.Store(true)
	}
	switch e.Kind {
	case model.Text:
		text := m.piece(0, e.Text)
		m.arrived.add(text)
		m.publish(messages.EventTextDelta, text)
	case model.Reasoning:
		m.publish(messages.EventReasoningDelta, m.piece(1, e.Text))
	case model.CallStart, model.CallArgs, model.UsageSeen, model.Finish: // shown with the fact
	}
}

// piece is what may be shown after one more piece of a text. It is asked for whether somebody watches
// or not: who comes in the middle of a secret must not see its end.
func (m *modelCall) piece(of int, text string) string {
	text, m.held[of] = m.svc.Redact.Scan(m.held[of] + text)
	return text
}

func (m *modelCall) publish(typ, text string) {
	if text == "" || m.watched == nil || !m.watched.Load() {
		return
	}
	m.sys.Root.Send(m.session, &messages.Published{Events: []*messages.Event{{
		Type: typ, AtUnixMs: m.svc.Now().UnixMilli(), Session: m.request.Session, Worker: m.worker,
		Turn: m.turn, GenId: m.gen, Text: text,
	}}})
}
