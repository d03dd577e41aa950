package actors

import (
	"context"
	"log/slog"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

func TestTracesThatNobodyCollectsCostNoAllocation(t *testing.T) {
	w := newWorker(&Services{})
	in := &appending{}
	f, g, m, x, call := &messages.InputAccepted{}, &generation{}, &generated{completion: &model.Completion{}}, &messages.Execute{}, &conversation.Call{}
	cost := testing.AllocsPerRun(100, func() {
		w.traceAccept(f)
		w.traced(in, false)
		w.traceCall(g)
		w.traceGenerated(g, m)
		w.traceExecute(call, x)
		w.traceReply(&messages.ToolReply{})
		w.resumeTrace()
		w.cutTrace()
	})
	if cost != 0 {
		t.Errorf("%v allocations", cost)
	}
}

// tracedWorker is one whose turn has a span, and what its spans go to.
func tracedWorker(t *testing.T) (*Worker, *tracetest.InMemoryExporter) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	p := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept), sdktrace.WithIDGenerator(telemetry.IDs{}))
	t.Cleanup(func() { _ = p.Shutdown(context.WithoutCancel(t.Context())) })
	w := newWorker(&Services{Tracer: p.Tracer("test"), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	w.trace, w.state = newTracing(w.svc), &conversation.State{}
	w.trace.turn = w.svc.span(telemetry.OfTurn(t.Context(), "trn_1"), "turn", time.Now())
	return w, kept
}

func TestATurnWhoseEndIsOnItsWayToTheStoreHasItsSpanToldWhenTheWorkerStops(t *testing.T) {
	for _, refused := range []bool{false, true} {
		w, kept := tracedWorker(t)
		w.inflight = &appending{facts: []proto.Message{&messages.TurnCompleted{Outcome: messages.TurnCompleted_DONE}}, refused: refused}
		w.cutTrace()
		spans := kept.GetSpans()
		if len(spans) != 1 || spans[0].SpanContext.SpanID() != telemetry.SpanOf("trn_1") {
			t.Fatalf("told are %v", spans)
		}
		want := "done"
		if refused { // the turn is still open
			want = "suspended"
		}
		if outcome := spans[0].Attributes[0]; outcome.Key != telemetry.Outcome || outcome.Value.AsString() != want {
			t.Errorf("refused by the store %v: the turn says %v", refused, spans[0].Attributes)
		}
	}
}

func TestAnInputThatIsRefusedLeavesNoSpanOpen(t *testing.T) {
	w, kept := tracedWorker(t)
	for _, id := range []string{"inp_1", "inp_2"} {
		w.traceAccept(&messages.InputAccepted{InputId: id})
	}
	w.traceRefused("inp_1", messages.CodeUnavailable)
	if len(w.trace.inputs) != 1 || len(kept.GetSpans()) != 1 {
		t.Errorf("open are %v, told %v", w.trace.inputs, kept.GetSpans())
	}
	w.cutTrace()
	if len(w.trace.inputs) != 0 {
		t.Errorf("open are %v", w.trace.inputs)
	}
}
