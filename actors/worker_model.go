package actors

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// generation is the model call under way. Its number stamps everything it sends back.
type generation struct {
	number    uint64
	request   uint64 // for the permit, the newest
	id        string
	model     *Resolved
	prompt    *messages.Prompt
	permit    bool                    // held
	cancel    context.CancelCauseFunc // nil until the call runs
	asked     time.Time               // for the permit
	started   time.Time
	provider  string
	instead   string      // the model that this one stands in for
	sent      int         // requests of the step before, which nothing came of
	summary   bool        // of a compaction
	span      trace.Span  // of the call; nil when nobody collects traces
	receiving atomic.Bool // set by the goroutine of the call with its first event
	arrived   arrived     // by the same
}

// Results of the goroutine of a model call.
type (
	generated struct {
		number     uint64
		completion *model.Completion
		err        error
		first      time.Duration
		took       time.Duration
		around     *around // when this call has read it
	}
	retryDue struct{ gen uint64 }
)

// generate starts the next attempt of a step, after the pause that a failed one asked for.
func (w *Worker) generate(c actor.Context, next conversation.Generate) {
	if f := w.state.Turn().Failed; f != nil {
		if left := w.pauseLeft(f); left > 0 {
			w.become((*Worker).generating, stateWaiting)
			w.retry.SetBy(w.svc.Clock, c, left, func(gen uint64) any { return &retryDue{gen} })
			return
		}
	}
	if w.refusedForLength() {
		w.compactRefused(c)
		return
	}
	if tokens := w.state.RequestTokens(); w.exceeds(tokens) {
		w.append(c, nil, w.turnDone, w.completed(conversation.TooLong(w.request(tokens), w.window())))
		return
	}
	if w.budgeted() && w.purse.granted == nil {
		w.pay(c, w.request(w.state.RequestTokens()), len(w.toolDefs()) > 0, w.overBudget)
		return
	}
	prompt := next.Ready.Render(w.systemPrompt())
	w.append(c, nil, w.ask, w.paid(w.generationStarted(next.Number, next.Attempt, prompt.Hash, w.state.RequestTokens()))...)
}

// pauseLeft is what is left of the pause after a failed attempt. A time of day that was set back does not make
// it longer than it was meant to be.
func (w *Worker) pauseLeft(f *messages.GenerationFailed) time.Duration {
	meant := time.Duration(f.GetRetryAtUnixMs()-w.state.Turn().FailedMs) * time.Millisecond
	return min(time.UnixMilli(f.GetRetryAtUnixMs()).Sub(w.svc.Now()), meant)
}

// ask asks the model, once the start of the generation is durable and a permit is there.
func (w *Worker) ask(c actor.Context) {
	started := w.state.Turn().Gen
	w.gen = &generation{number: w.generations, id: started.GetGenId(), prompt: w.prompt}
	w.prompt = nil
	if w.gen.prompt == nil {
		ready, ok := w.state.Ready()
		if !ok {
			w.generationFailed(c, &model.Error{Class: model.Protocol, Message: "the conversation is not ready for a model call"}, "")
			return
		}
		w.gen.prompt = ready.Render(w.systemPrompt())
	}
	if _, ok := w.svc.agent(w.state.Agent()); !ok {
		w.generationFailed(c, &model.Error{Class: model.NotFound, Message: fmt.Sprintf("agent %q is not configured", w.state.Agent()), Hint: "see `agents:` in the configuration"}, "")
		return
	}
	resolved, err := w.svc.Models.Resolve(started.GetModel())
	if err != nil {
		w.generationFailed(c, &model.Error{Class: model.NotFound, Message: err.Error()}, "")
		return
	}
	if !slices.Contains(w.svc.Models.Providers(), resolved.Provider) {
		w.generationFailed(c, &model.Error{Class: model.NotFound, Message: fmt.Sprintf("provider %q of model %q is not configured", resolved.Provider, started.GetModel())}, "")
		return
	}
	w.learn(started.GetModel(), resolved)
	if tokens := w.state.RequestTokens(); w.exceeds(tokens) {
		w.generationFailed(c, &model.Error{Class: model.ContextLength, Message: fmt.Sprintf("the request is about %d tokens, and the model takes %d", w.request(tokens), w.window())}, "")
		return
	}
	if err := w.unpaid(); err != nil {
		w.generationFailed(c, err, "")
		return
	}
	w.armBudgetWall(c)
	w.gen.model, w.gen.provider, w.gen.instead, w.gen.sent = resolved, resolved.Provider, started.GetInsteadOf(), w.state.Turn().Tries.Unanswered
	w.become((*Worker).generating, stateWaiting)
	w.askPermit(c)
}

// askPermit takes a place in the Limiter's queue, under a number of its own.
func (w *Worker) askPermit(c actor.Context) {
	w.permits++
	w.gen.request, w.gen.asked = w.permits, w.svc.Now()
	c.Request(w.peers.limiter(w.svc, c.ActorSystem(), w.gen.provider), w.permitWish(false))
}

// permitWish asks for a place in the queue; again after the Limiter was replaced.
func (w *Worker) permitWish(again bool) *messages.AcquirePermit {
	return &messages.AcquirePermit{
		Request: w.gen.request, Again: again, Tenant: w.newest.GetTenant(), Session: w.session, Background: w.state.Parent() != "", UnlessOpen: !w.gen.summary && w.mayAskAnother(),
	}
}

// permitRefused: the Limiter is being replaced. The Supervisor says when to ask its successor.
func (w *Worker) permitRefused(c actor.Context) {
	if w.gen != nil && !w.gen.permit && w.gen.provider != "" {
		w.find(c, limiterName(w.gen.provider))
	}
}

// noPermits ends a generation for which no permit can be had.
func (w *Worker) noPermits(c actor.Context, why string) {
	err := &model.Error{Class: model.NotFound, Message: fmt.Sprintf("provider %q gives no permits: its actor failed again and again: %s", w.gen.provider, why)}
	if w.compacting != nil {
		w.generated(c, &generated{number: w.gen.number, completion: &model.Completion{}, err: err})
		return
	}
	w.generationFailed(c, err, "")
}

// releasePermit gives a permit back, with what the call spent and came to; nil when that is not known.
func (w *Worker) releasePermit(c actor.Context, spent *model.Completion, err error) {
	m := &messages.ReleasePermit{Request: w.gen.request}
	if spent != nil {
		m.Outcome, m.RetryAfterMs = outcomeOf(spent, err)
		m.Tokens, m.Requests = spent.Usage.GetInputTokens()+spent.Usage.GetOutputTokens(), int32(spent.Meta.Attempts)
	}
	c.Request(w.peers.limiter(w.svc, c.ActorSystem(), w.gen.provider), m)
}

func (w *Worker) permitGranted(c actor.Context, m *messages.PermitGranted) {
	g := w.gen
	if g == nil || g.request != m.GetRequest() || g.permit {
		return // it was released when its call, or its place in the queue, was dropped
	}
	w.retry.Stop()
	g.permit, g.started = true, w.svc.Now()
	w.phase = stateRequesting
	ctx, cancel := context.WithCancelCause(w.traceCall(g))
	g.cancel = cancel
	call := w.modelCall(c, g)
	call.ctx, call.cancel, call.log = ctx, cancel, w.log
	w.svc.spawnTask(c.ActorSystem(), c.Self(), call)
}

func (w *Worker) modelCall(c actor.Context, g *generation) *modelCall {
	if g.summary {
		return w.summaryCall(c, g)
	}
	call := &modelCall{
		svc: w.svc, sys: c.ActorSystem(), session: c.Parent(), receiving: &g.receiving, arrived: &g.arrived, watched: &w.watched, number: g.number,
		model: g.model.Model, request: model.Request{
			Model: g.model.Name, Prompt: g.prompt, Tools: w.toolDefs(), Agent: cmp.Or(w.state.Alias(), w.state.Agent()), Session: w.session, MaxTokens: w.room(),
			XML: g.model.XML || w.inText(), Once: model.Attempts(g.model.Model) > 1,
		},
		worker: w.id, turn: w.state.Turn().ID, gen: g.id, grant: w.grant,
	}
	w.surround(call)
	return call
}

// inText says whether the agent's tools are offered in text, whatever the model.
func (w *Worker) inText() bool {
	agent, _ := w.svc.agent(w.state.Agent())
	return agent.XML
}

// dropGeneration gives the permit, or the place in its queue, back.
func (w *Worker) dropGeneration(c actor.Context, spent *model.Completion, err error) {
	if g := w.gen; g != nil && g.provider != "" {
		w.releasePermit(c, spent, err)
	}
	if w.gen != nil && spent == nil { // it was not made
		w.purse.charge = &messages.Amounts{}
	}
	if w.gen != nil && w.gen.span != nil {
		w.svc.ends(w.gen.span, "cancelled")
	}
	w.gen = nil
}

// generated takes the answer, or the reason why there is none.
func (w *Worker) generated(c actor.Context, m *generated) {
	g := w.gen
	if g == nil || g.number != m.number {
		return
	}
	w.traceGenerated(g, m)
	w.measured(g, m)
	w.dropGeneration(c, m.completion, m.err)
	w.charged(g, m.completion, m.err)
	w.phase = stateWorking
	if g.summary {
		w.summarised(c, g, m)
		return
	}
	if m.around != nil {
		w.around = *m.around
	}
	if m.err == nil && weight(m.completion) > maxAnswer {
		m.err = &model.Error{Class: model.Protocol, Message: fmt.Sprintf("the answer is larger than %d bytes", maxAnswer)}
		m.completion = &model.Completion{}
	}
	if t := w.state.Turn(); m.err != nil && t.Cancelled != nil && !t.Cancelled.GetDiscard() && m.completion.Text != "" {
		w.cutOff(c, g, m)
		return
	}
	if m.err != nil {
		w.unanswered = m.unanswered(g)
		partial, _ := cut(m.completion.Text, maxResult)
		w.generationFailed(c, m.err, partial)
		return
	}
	w.answered(c, completed(g, m))
}

// cutOff keeps what had arrived of an answer when its turn was cancelled: people have seen it, and the model is to know.
func (w *Worker) cutOff(c actor.Context, g *generation, m *generated) {
	done := completed(g, m)
	done.Partial, done.FinishReason, done.ToolCalls = true, "cancelled", nil
	done.Content, _ = cut(done.GetContent(), maxResult)
	w.append(c, nil, w.advance, done)
}

// completed is the fact of an answer.
func completed(g *generation, m *generated) *messages.GenerationCompleted {
	done := &messages.GenerationCompleted{
		InsteadOf: g.instead,
		GenId:     g.id, Content: m.completion.Text, Reasoning: m.completion.Reasoning, ToolCalls: m.completion.ToolCalls,
		FinishReason: m.completion.Reason, Usage: priced(m.completion.Usage, g.model.Price),
		ProviderRequestId: m.completion.Meta.RequestID, Model: m.completion.Meta.Model, Scripted: m.completion.Meta.Scripted != "",
		Timing: &messages.Timing{
			StartedAtUnixMs: g.started.UnixMilli(), FirstTokenUs: m.first.Microseconds(), DurationUs: m.took.Microseconds(),
			ProviderAttempts: int32(g.sent + m.completion.Meta.Attempts), //nolint:gosec // a count
		},
	}
	if done.GetModel() == "" {
		done.Model = g.model.Name
	}
	return done
}

func weight(c *model.Completion) int {
	n := len(c.Text) + len(c.Reasoning)
	for _, call := range c.ToolCalls {
		n += len(call.GetId()) + len(call.GetName()) + len(call.GetArguments())
	}
	return n
}

// answered writes the answer down: with the plans of its calls, or with the end of the turn.
func (w *Worker) answered(c actor.Context, done *messages.GenerationCompleted) {
	t := w.state.Turn()
	facts := []proto.Message{done}
	if calls := done.GetToolCalls(); len(calls) > 0 && t.Cancelled != nil {
		w.append(c, nil, w.advance, append(facts, w.abandoned(calls)...)...)
		return
	}
	if len(done.GetToolCalls()) > 0 {
		facts = append(facts, w.planFacts(done.GetToolCalls(), 0)...)
		w.append(c, nil, w.advance, facts...)
		return
	}
	if t.Cancelled == nil && done.GetFinishReason() == "stop" {
		facts = append(facts, &messages.TurnCompleted{
			TurnId: t.ID, Outcome: messages.TurnCompleted_DONE, Usage: sumUsage(t.Usage, done.GetUsage()),
			FinalSeq: w.next() + w.activationRecord(),
		})
		w.append(c, nil, w.turnDone, facts...)
		return
	}
	w.append(c, nil, w.advance, facts...)
}

// activationRecord is how many records the next append puts ahead of its facts.
func (w *Worker) activationRecord() uint64 {
	if w.activated {
		return 0
	}
	return 1
}

// generationFailed writes the failure down and either tries again after a pause or ends the turn.
func (w *Worker) generationFailed(c actor.Context, err error, partial string) {
	t := w.state.Turn()
	f := &messages.GenerationFailed{GenId: t.Gen.GetGenId(), Class: "internal_error", Message: w.svc.Redact.String(err.Error()), Partial: partial, NotMade: w.denied, Unanswered: w.unanswered}
	w.gen, w.denied, w.unanswered = nil, false, false
	if w.purse.charge == nil { // it was not made
		w.purse.charge = &messages.Amounts{}
	}
	var me *model.Error
	switch {
	case t.Cancelled != nil || errors.Is(err, context.Canceled):
		f.Class, f.Message = "cancelled", "cancelled"
	case errors.As(err, &me):
		f.Class, f.Message = string(me.Class), w.svc.Redact.String(modelErrorText(me))
		if me.Class == model.ContextLength && t.Gen.GetInsteadOf() == "" && t.Steps == 0 && !t.Compacted && w.state.Exchanges() > 0 {
			f.RetryAtUnixMs = w.svc.Now().UnixMilli() // once it is compacted
		}
		if me.Class == shortOfBudget && w.attempts(f) < w.svc.Limits.ModelAttempts {
			f.RetryAtUnixMs = w.svc.Now().UnixMilli() // it is known now
		}
		if w.triesAgain(me.Class, f) {
			pause := pauseAfter(me, w.pauses(f))
			if w.substitute(t.Failures+1, f.GetClass()) != "" {
				pause = 0 // another service is asked
			}
			f.RetryAtUnixMs = w.svc.Now().Add(pause).UnixMilli()
		}
	}
	w.append(c, nil, w.advance, f)
}

func modelErrorText(e *model.Error) string {
	if e.Hint == "" {
		return e.Error()
	}
	return fmt.Sprintf("%s\n%s", e.Error(), e.Hint)
}

// retryable says whether the same request may succeed later. What was shown of it is void.
func retryable(class model.Class) bool {
	switch class {
	case model.RateLimited, model.Overloaded, model.Truncated, model.Timeout, model.Protocol:
		return true
	case model.ContextLength, model.Auth, model.BadRequest, model.NotFound, model.Unmatched:
	}
	return false
}

func priced(u *messages.Usage, p Price) *messages.Usage {
	if u == nil {
		return &messages.Usage{}
	}
	if p != (Price{}) {
		fresh := float64(u.GetInputTokens() - u.GetCachedTokens())
		u.CostMicroUsd = int64(fresh*p.Input + float64(u.GetCachedTokens())*p.Cached + float64(u.GetOutputTokens())*p.Output + 0.5)
	}
	return u
}

// generationStarted is the fact of a request whose messages are so many tokens, as estimated. Its id comes with its
// place in the journal.
func (w *Worker) generationStarted(step, attempt int, hash [sha256.Size]byte, tokens int) *messages.GenerationStarted {
	w.generations++
	g := &messages.GenerationStarted{
		Step: uint32(step), Attempt: uint32(attempt),
		Model: w.state.Model(), RequestHash: hash[:], EstimatedTokens: int64(w.uncorrected(tokens)),
	}
	if m := w.nextModel(); m != g.GetModel() {
		g.Model, g.InsteadOf = m, g.GetModel()
	}
	return g
}
