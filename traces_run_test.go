package troupe_test

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
)

const tracedRun = `
version: 1
name: traced
agents: {pro: {system: for}, con: {system: against}}
steps:
  - {id: talk, group: [pro, con], rounds: 1, prompt: "Well?"}
  - {id: gate, needs: [talk], human: {message: "Go on?"}}
  - {id: last, needs: [gate], agent: default, prompt: "the last"}
`

// waitForQuestion gives the question that a run asks.
func waitForQuestion(t *testing.T, ctx context.Context, rt *troupe.Runtime, run *troupe.Run) string { //nolint:revive // t comes first
	t.Helper()
	for rev := uint64(0); ; {
		v, err := run.Changed(ctx, rev)
		if err != nil {
			t.Fatal(err)
		}
		rev = v.GetRevision()
		asked, err := rt.Approvals(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(asked) > 0 {
			return asked[0].GetApprovalId()
		}
	}
}

// A run belongs to the trace of the request that began it, and so do the turns of its groups. What goes on with it after it had ended, in
// another process too, is there in a span of its own: none is told twice.
func TestARunIsInTheTraceOfItsRequestAndEachOfItsSpansIsToldOnce(t *testing.T) {
	provider, kept := gatherTraces(t)
	options := troupe.Options{Model: echo(), DataDir: t.TempDir(), TracerProvider: provider}
	rt, ctx := runtimeOf(t, options)
	within, program := provider.Tracer("test").Start(ctx, "program")
	run, err := rt.RunPipeline(within, planOf(t, tracedRun), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	program.End()
	waitForQuestion(t, ctx, rt, run)
	if _, err := run.Cancel(ctx, "enough"); err != nil {
		t.Fatal(err)
	}
	if v, err := run.Wait(ctx); err != nil || v.GetState() != "cancelled" {
		t.Fatalf("%v, %v", v, err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	rt, ctx = runtimeOf(t, options)
	if run, err = rt.OpenRun(ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Resume(ctx, nil, false); err != nil {
		t.Fatal(err)
	}
	if err := rt.ResolveApproval(ctx, waitForQuestion(t, ctx, rt, run), troupe.Answer{Decision: troupe.Approved}); err != nil {
		t.Fatal(err)
	}
	if v, err := run.Wait(ctx); err != nil || v.GetState() != "succeeded" {
		t.Fatalf("%v, %v", v, err)
	}
	spans := kept.GetSpans()
	got := tree(t, spans)
	for _, line := range []string{"1 program\n  1 troupe.run\n", "\n    2 troupe.input\n", "\n    1 troupe.run\n      1 troupe.input\n"} {
		if !strings.Contains("\n"+got, line) {
			t.Errorf("%q is not in the trace\n%s", line, got)
		}
	}
	if strings.Count("\n"+got, "\n1 ") != 1 {
		t.Errorf("it has more than one root:\n%s", got)
	}
	resumed := 0
	for _, s := range spans {
		for _, a := range s.Attributes {
			if s.Name == telemetry.SpanRun && a == attribute.Bool(string(telemetry.Resumed), true) {
				resumed++
			}
		}
	}
	if resumed != 1 {
		t.Errorf("%d spans of the run say that it was resumed", resumed)
	}
}

// A client of the API cannot put a run into a trace that it has heard of by the body of its request.
func TestWhoBeginsARunByAMessageNamesItsTraceOnlyByTheRequest(t *testing.T) {
	create, err := troupe.CreateRun(planOf(t, tracedRun), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	create.Run.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	j, err := messages.CreateFrom(create)
	if err != nil {
		t.Fatal(err)
	}
	m, err := j.Proto()
	if err != nil || m.GetRun().GetTraceparent() != "" || m.GetRun().GetName() != "traced" {
		t.Errorf("%v, %v", m, err)
	}
}
