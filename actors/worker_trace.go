package actors

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
)

// tracing holds the spans that a worker has open. It is nil while nobody collects traces. What a span says comes from facts that are
// durable; its times are those of the house's clock. The turn's span has an id that follows from the turn's, so that
// a successor of this worker opens the same one again, and ends it.
type tracing struct {
	turn   trace.Span
	inputs map[string]trace.Span // by input id: not durable yet
	calls  map[string]trace.Span // by exec id: run
	asked  map[string]trace.Span // by exec id: wait for an approval
}

func newTracing(svc *Services) *tracing {
	if svc.Tracer == nil {
		return nil
	}
	return &tracing{inputs: make(map[string]trace.Span), calls: make(map[string]trace.Span), asked: make(map[string]trace.Span)}
}

// logger is the log of the worker outside of a traced turn.
func (w *Worker) logger() *slog.Logger {
	return w.svc.logOf(w.session, w.id)
}

// traceAccept begins the span of an input.
func (w *Worker) traceAccept(f *messages.InputAccepted) {
	if span := w.svc.traceInput(f, w.session, w.id); span != nil {
		w.trace.inputs[f.GetInputId()] = span
	}
}

// traceRefused ends the span of an input that was not accepted after all.
func (w *Worker) traceRefused(input, class string) {
	if w.trace == nil {
		return
	}
	if span := w.trace.inputs[input]; span != nil {
		w.svc.ends(span, class)
		delete(w.trace.inputs, input)
	}
}

// traced tells what an append has written down, now that it is durable, or kept back, and applied.
func (w *Worker) traced(in *appending, late bool) {
	if w.trace == nil {
		return
	}
	for _, f := range in.facts {
		switch f := f.(type) {
		case *messages.InputAccepted:
			w.traceRefused(f.GetInputId(), "")
		case *messages.TurnStarted:
			w.traceTurn(false)
		case *messages.GenerationFailed:
			w.traceRetry(f)
		case *messages.ApprovalRequested:
			w.traceAsked(f)
		case *messages.ApprovalResolved:
			w.traceAnswered(f)
		case *messages.CallDoubted:
			w.traceCalled(f.GetExecId(), "in_doubt", "in_doubt")
		case *messages.ToolFinished:
			w.traceFinished(f)
		case *messages.CancelRequested:
			w.turnEvent(telemetry.EventCancelled, telemetry.By.String(w.cause(f.GetBy())))
		case *messages.TurnCompleted:
			w.traceAppend(in, late)
			in.traced = time.Time{}
			w.traceDone(f)
		}
	}
	w.traceAppend(in, late)
}

// cause is what kind of cause ended a turn: not the name of a person.
func (w *Worker) cause(by string) string {
	switch by {
	case conversation.ByFailure, conversation.ByLimit:
		return by
	}
	return "request"
}

// traceAppend tells how long the store took.
func (w *Worker) traceAppend(in *appending, late bool) {
	if w.trace.turn == nil || late || in.traced.IsZero() {
		return
	}
	w.svc.ends(w.svc.span(w.inTurn(), telemetry.SpanAppend, in.traced, telemetry.Records.Int(len(in.records)+len(in.before.records))), "")
}

// inTurn is the context of what belongs to the turn; before there is one, to the input that waits for it.
func (w *Worker) inTurn() context.Context {
	ctx := context.Background()
	if w.trace.turn != nil {
		return trace.ContextWithSpan(ctx, w.trace.turn)
	}
	if staged := w.state.Staged(); len(staged) > 0 {
		return telemetry.From(ctx, staged[0].GetTraceparent())
	}
	return ctx
}

// traceTurn begins the span of the open turn, which lasts since its input was accepted; again when it goes on after a restart.
func (w *Worker) traceTurn(again bool) {
	t := w.state.Turn()
	if t == nil || len(t.Inputs) == 0 {
		return
	}
	accepted, now := time.UnixMilli(t.Inputs[0].AtMs), w.svc.Now()
	begun, leased := accepted, accepted
	if since := w.leases.since; !again && !since.IsZero() {
		leased = since
		if since.Before(begun) {
			begun = since
		}
	}
	attrs := []attribute.KeyValue{
		telemetry.Operation.String(telemetry.OperationTurn), telemetry.AgentName.String(w.state.Agent()), telemetry.Conversation.String(w.session),
		telemetry.Session.String(w.session), telemetry.Worker.String(w.id), telemetry.Turn.String(t.ID),
	}
	if p := w.state.Parent(); p != "" {
		attrs = append(attrs, telemetry.Parent.String(p))
	}
	if again {
		attrs = append(attrs, telemetry.Resumed.Bool(true))
	}
	ctx := telemetry.OfTurn(telemetry.From(context.Background(), t.Inputs[0].GetTraceparent()), t.ID)
	w.trace.turn = w.svc.span(ctx, telemetry.OperationTurn+" "+w.state.Agent(), begun, attrs...)
	w.log = w.logger().With("trace_id", w.trace.turn.SpanContext().TraceID().String())
	if again {
		return
	}
	w.waited(telemetry.SpanWaitQueue, begun, leased)
	w.waited(telemetry.SpanWaitLease, leased, now, telemetry.Workspace.StringSlice(w.workspaces()))
}

// waited tells of a wait that is over.
func (w *Worker) waited(name string, from, to time.Time, attrs ...attribute.KeyValue) {
	if to.Before(from) { // a clock was set back
		to = from
	}
	w.svc.span(w.inTurn(), name, from, attrs...).End(trace.WithTimestamp(to))
}

// workspaces are the addresses that the turn works in.
func (w *Worker) workspaces() (all []string) {
	for _, g := range w.grant.GetWorkspaces() {
		all = append(all, w.svc.Redact.String(g.GetUri()))
	}
	return all
}

// resumeTrace opens the spans of a turn that goes on: its own, and those of the questions that are still open.
func (w *Worker) resumeTrace() {
	if w.trace == nil || w.trace.turn != nil {
		return
	}
	w.traceTurn(true)
	if t := w.state.Turn(); t != nil {
		for _, call := range t.OpenCalls() {
			if call.Pending() {
				w.traceAsked(call.Requested)
			}
		}
	}
}

// turnEvent puts an event into the turn's span.
func (w *Worker) turnEvent(name string, attrs ...attribute.KeyValue) {
	if w.trace.turn != nil {
		w.trace.turn.AddEvent(name, trace.WithTimestamp(w.svc.Now()), trace.WithAttributes(attrs...))
	}
}

func (w *Worker) traceRetry(f *messages.GenerationFailed) {
	if at := f.GetRetryAtUnixMs(); at > 0 {
		pause := max(0, time.UnixMilli(at).Sub(w.svc.Now()))
		w.turnEvent(telemetry.EventRetry, telemetry.ErrorType.String(f.GetClass()), telemetry.PauseTime.Float64(pause.Seconds()))
	}
}

// traceDone ends the turn's span.
func (w *Worker) traceDone(f *messages.TurnCompleted) {
	span := w.trace.turn
	if span == nil {
		return
	}
	for exec := range w.trace.asked {
		w.traceUnasked(exec, "cancelled")
	}
	class, u := "", f.GetUsage()
	if f.GetOutcome() != messages.TurnCompleted_DONE {
		class = cmp.Or(f.GetErrorCode(), conversation.OutcomeName(f.GetOutcome()))
	}
	w.trace.turn, w.log = nil, w.logger()
	w.svc.ends(span, class,
		telemetry.Outcome.String(conversation.OutcomeName(f.GetOutcome())), telemetry.InputTokens.Int64(u.GetInputTokens()),
		telemetry.OutputTokens.Int64(u.GetOutputTokens()), telemetry.CachedTokens.Int64(u.GetCachedTokens()),
		telemetry.Cost.Float64(float64(u.GetCostMicroUsd())/1e6),
	)
}

// cutTrace ends what is open in the worker's trace when the worker ends. The turn goes on with the next one, which ends its span; a provider that
// does not take the id that was asked for gets two spans.
func (w *Worker) cutTrace() {
	if w.trace == nil {
		return
	}
	if w.gen != nil && w.gen.span != nil {
		w.svc.ends(w.gen.span, "cut_off")
		w.gen.span = nil
	}
	for exec := range w.trace.calls {
		w.traceCalled(exec, "cut_off", "cut_off")
	}
	if done := w.completing(); done != nil {
		w.traceDone(done)
	}
	clear(w.trace.asked) // they are still asked
	for input := range w.trace.inputs {
		w.traceRefused(input, "cut_off")
	}
	if span := w.trace.turn; span != nil {
		if t := w.state.Turn(); t == nil || span.SpanContext().SpanID() != telemetry.SpanOf(t.ID) {
			w.svc.ends(span, "", telemetry.Outcome.String("suspended"))
		}
		w.trace.turn = nil // the log goes on naming its trace: what is said from here on is about its end
	}
}

// completing is the end of the open turn, while it is on its way to the store. Nobody waits for it here any more, and who comes after this worker finds
// the turn ended, so that nobody else would end its span.
func (w *Worker) completing() *messages.TurnCompleted {
	if w.inflight == nil || w.inflight.refused {
		return nil
	}
	for _, f := range w.inflight.facts {
		if done, ok := f.(*messages.TurnCompleted); ok {
			return done
		}
	}
	return nil
}
