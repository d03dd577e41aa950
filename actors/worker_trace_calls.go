package actors

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// traceCall begins the span of a model call, and gives the call its context.
func (w *Worker) traceCall(g *generation) context.Context {
	if w.trace == nil {
		return context.Background()
	}
	w.waited(telemetry.SpanWaitLimiter, g.asked, g.started, telemetry.Provider.String(g.provider))
	attrs := []attribute.KeyValue{
		telemetry.Operation.String(telemetry.OperationChat), telemetry.Provider.String(g.provider), telemetry.RequestModel.String(g.model.Name),
		telemetry.Conversation.String(w.session), telemetry.AgentName.String(w.state.Agent()),
	}
	if g.summary {
		attrs = append(attrs, telemetry.Purpose.String(telemetry.PurposeCompaction))
	} else if t := w.state.Turn(); t != nil && t.Gen != nil {
		attrs = append(attrs, telemetry.Step.Int(int(t.Gen.GetStep())), telemetry.Attempt.Int(int(t.Gen.GetAttempt())))
		if other := t.Gen.GetInsteadOf(); other != "" {
			attrs = append(attrs, telemetry.InsteadOf.String(other))
		}
	}
	ctx, span := w.svc.Tracer.Start(w.inTurn(), strings.TrimSpace(telemetry.OperationChat+" "+g.model.Name),
		trace.WithTimestamp(g.started), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	g.span = span
	return ctx
}

// traceGenerated ends the span of a model call with what came of it; of the answer itself it tells nothing.
func (w *Worker) traceGenerated(g *generation, m *generated) {
	if g.span == nil {
		return
	}
	class := classOf(m.err)
	u, meta := m.completion.Usage, m.completion.Meta
	attrs := []attribute.KeyValue{
		telemetry.InputTokens.Int64(u.GetInputTokens()), telemetry.OutputTokens.Int64(u.GetOutputTokens()), telemetry.CachedTokens.Int64(u.GetCachedTokens()),
		telemetry.Attempts.Int(meta.Attempts), telemetry.FirstToken.Float64(m.first.Seconds()),
	}
	if reason := m.completion.Reason; class == "" && reason != "" {
		attrs = append(attrs, telemetry.FinishReasons.StringSlice([]string{w.svc.Redact.String(reason)}))
	}
	if meta.Model != "" {
		attrs = append(attrs, telemetry.ResponseModel.String(w.svc.Redact.String(meta.Model)))
	}
	if meta.Scripted != "" {
		attrs = append(attrs, telemetry.Scripted.Bool(true))
	}
	w.svc.ends(g.span, class, attrs...)
	g.span = nil
}

// classOf is what kind of error ended a model call; "" for none.
func classOf(err error) string {
	var me *model.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.As(err, &me):
		return string(me.Class)
	}
	return "internal_error"
}

// traceExecute begins the span of a call, and names it to who runs it.
func (w *Worker) traceExecute(call *conversation.Call, m *messages.Execute) {
	if w.trace == nil || m.GetPrepare() || m.GetPreview() {
		return
	}
	tool := w.toolName(call.Name)
	span := w.svc.span(
		w.inTurn(), telemetry.OperationTool+" "+tool, w.svc.Now(),
		telemetry.Operation.String(telemetry.OperationTool), telemetry.ToolName.String(tool), telemetry.Exec.String(m.GetExecId()),
		telemetry.Workspace.String(w.svc.Redact.String(call.Plan.GetWorkspace())), telemetry.Attempt.Int(int(m.GetAttempt())),
		telemetry.Effect.String(strings.ToLower(call.Plan.GetEffect().String())),
	)
	w.trace.calls[m.GetExecId()] = span
	m.Traceparent = telemetry.Written(span.SpanContext())
}

// traceReply ends the span of a run that only found out about a call.
func (w *Worker) traceReply(m *messages.ToolReply) {
	switch {
	case w.trace == nil:
	case m.GetNotDone():
		w.traceCalled(m.GetExecId(), "not_done", "")
	case m.GetUnknown():
		w.traceCalled(m.GetExecId(), "unknown", "unknown")
	}
}

// traceCalled ends the span of a run.
func (w *Worker) traceCalled(exec, outcome, class string) {
	if w.trace == nil {
		return
	}
	if span := w.trace.calls[exec]; span != nil {
		delete(w.trace.calls, exec)
		w.svc.ends(span, class, telemetry.Outcome.String(outcome))
	}
}

// traceFinished ends the span of a call; one that never ran has a span, too.
func (w *Worker) traceFinished(f *messages.ToolFinished) {
	w.traceUnasked(f.GetExecId(), "cancelled")
	outcome, class := strings.ToLower(f.GetStatus().String()), ""
	if f.GetStatus() != messages.ToolFinished_OK {
		class = cmp.Or(f.GetErrorCode(), outcome)
	}
	if w.trace.calls[f.GetExecId()] == nil {
		tool := w.toolName(f.GetTool())
		w.trace.calls[f.GetExecId()] = w.svc.span(
			w.inTurn(), telemetry.OperationTool+" "+tool, w.svc.Now(),
			telemetry.Operation.String(telemetry.OperationTool), telemetry.ToolName.String(tool), telemetry.Exec.String(f.GetExecId()),
		)
	}
	w.traceCalled(f.GetExecId(), outcome, class)
}

// toolName is the name of a tool that there is: others are a model's words.
func (w *Worker) toolName(name string) string {
	if _, err := w.svc.Tools.Lookup(name); err != nil {
		return "unknown"
	}
	return name
}

// traceAsked begins the wait for an approval.
func (w *Worker) traceAsked(f *messages.ApprovalRequested) {
	w.trace.asked[f.GetExecId()] = w.svc.span(
		w.inTurn(), telemetry.SpanWaitApproval, time.UnixMilli(f.GetAskedAtUnixMs()),
		telemetry.Approval.String(f.GetApprovalId()), telemetry.Exec.String(f.GetExecId()), telemetry.ToolName.String(w.toolName(f.GetTool())),
	)
}

func (w *Worker) traceAnswered(f *messages.ApprovalResolved) {
	w.traceUnasked(f.GetExecId(), strings.ToLower(f.GetDecision().String()))
}

// traceUnasked ends the wait for an approval.
func (w *Worker) traceUnasked(exec, decision string) {
	if span := w.trace.asked[exec]; span != nil {
		delete(w.trace.asked, exec)
		w.svc.ends(span, "", telemetry.Decision.String(decision))
	}
}
