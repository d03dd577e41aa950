package troupe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/openai"
	"github.com/troupe-dev/troupe/persistence"
)

// gatherTraces is a provider that keeps what it gets.
func gatherTraces(t *testing.T) (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	p := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept), sdktrace.WithIDGenerator(troupe.TraceIDs{}))
	t.Cleanup(func() { _ = p.Shutdown(context.WithoutCancel(t.Context())) })
	return p, kept
}

// tree writes spans as an indented tree: the children of a span by name, with how many there are. What has a parent that nobody told of is a fault.
func tree(t *testing.T, spans tracetest.SpanStubs) string {
	t.Helper()
	known := make(map[trace.SpanID]bool)
	for _, s := range spans {
		if known[s.SpanContext.SpanID()] {
			t.Errorf("span %s was told twice", s.Name)
		}
		known[s.SpanContext.SpanID()] = true
		if s.SpanContext.TraceID() != spans[0].SpanContext.TraceID() {
			t.Errorf("span %s is of another trace", s.Name)
		}
		if s.EndTime.Before(s.StartTime) {
			t.Errorf("span %s ends before it begins", s.Name)
		}
	}
	var out strings.Builder
	var write func(parents map[trace.SpanID]bool, depth int)
	write = func(parents map[trace.SpanID]bool, depth int) {
		names, count := make(map[string]map[trace.SpanID]bool), []string{}
		for _, s := range spans {
			top := depth == 0 && (!s.Parent.IsValid() || !known[s.Parent.SpanID()])
			if top || parents[s.Parent.SpanID()] {
				if names[s.Name] == nil {
					names[s.Name] = make(map[trace.SpanID]bool)
					count = append(count, s.Name)
				}
				names[s.Name][s.SpanContext.SpanID()] = true
			}
		}
		slices.Sort(count)
		for _, name := range count {
			fmt.Fprintf(&out, "%s%d %s\n", strings.Repeat("  ", depth), len(names[name]), name)
			write(names[name], depth+1)
		}
	}
	write(nil, 0)
	return out.String()
}

// attrs are the attributes of the only span of a name.
func attrs(t *testing.T, spans tracetest.SpanStubs, name string) map[attribute.Key]string {
	t.Helper()
	out := make(map[attribute.Key]string)
	for _, s := range spans {
		if s.Name == name {
			for _, a := range s.Attributes {
				out[a.Key] = a.Value.Emit()
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("no span %s", name)
	}
	return out
}

const turnTree = `1 program
  1 troupe.input
    1 invoke_agent default
      2 chat
      1 execute_tool write_file
      7 troupe.append
      1 troupe.wait.approval
      1 troupe.wait.lease
      2 troupe.wait.limiter
      1 troupe.wait.queue
`

func TestATurnIsOneTraceBelowTheSpanThatItWasSentIn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	provider, kept := gatherTraces(t)
	rt, err := troupe.New(ctx, troupe.Options{Model: writesOnce{}, TracerProvider: provider, Approve: func(context.Context, *troupe.Approval) troupe.Answer {
		return troupe.Answer{Decision: troupe.Approved}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	within, span := provider.Tracer("test").Start(ctx, "program")
	r, err := s.Run(within, "a prompt that is nobody's business")
	span.End()
	if err != nil || r.Outcome != "done" {
		t.Fatalf("%v %v", r, err)
	}
	spans := kept.GetSpans()
	if got := tree(t, spans); got != turnTree {
		t.Errorf("the trace is\n%swant\n%s", got, turnTree)
	}
	turn := attrs(t, spans, "invoke_agent default")
	if turn["troupe.turn"] != r.Turn || turn["troupe.session"] != s.ID() || turn["troupe.outcome"] != "done" {
		t.Errorf("the turn says %v", turn)
	}
	if call := attrs(t, spans, "execute_tool write_file"); call["troupe.outcome"] != "ok" || call["gen_ai.tool.name"] != "write_file" || !strings.HasPrefix(call["troupe.workspace"], "local:") {
		t.Errorf("the call says %v", call)
	}
	if asked := attrs(t, spans, "troupe.wait.approval"); asked["troupe.approval.decision"] != "approved" {
		t.Errorf("the approval says %v", asked)
	}
	for _, secret := range []string{"nobody's business", `"content"`, "done\""} {
		if text := fmt.Sprint(spans); strings.Contains(text, secret) {
			t.Errorf("the trace holds %q", secret)
		}
	}
}

func TestATurnThatGoesOnAfterARestartGoesOnInItsTrace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	provider, kept := gatherTraces(t)
	asked, dir, data := make(chan struct{}, 1), t.TempDir(), t.TempDir()
	rt, err := troupe.New(ctx, troupe.Options{Model: writesOnce{}, DataDir: data, TracerProvider: provider, Approve: func(ctx context.Context, _ *troupe.Approval) troupe.Answer {
		asked <- struct{}{}
		<-ctx.Done()
		return troupe.Answer{Decision: troupe.Approved} // too late
	}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	within, span := provider.Tracer("test").Start(ctx, "program")
	go func() { _, _ = s.Run(within, "go") }()
	<-asked
	span.End()
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	rt, err = troupe.New(ctx, troupe.Options{Model: writesOnce{}, DataDir: data, TracerProvider: provider, Approve: func(context.Context, *troupe.Approval) troupe.Answer {
		return troupe.Answer{Decision: troupe.Approved}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	if s, err = rt.Open(ctx, s.ID()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Wait(ctx)
	if err != nil || r.Outcome != "done" {
		t.Fatalf("%v %v", r, err)
	}
	spans := kept.GetSpans()
	got := tree(t, spans)
	want := strings.Replace(turnTree, "7 troupe.append", strings.TrimSpace(lineWith(got, "troupe.append")), 1) // that of an orderly stop, too
	if got != want {
		t.Errorf("the trace is\n%swant\n%s", got, want)
	}
	if turn := attrs(t, spans, "invoke_agent default"); turn["troupe.resumed"] != "true" || turn["troupe.turn"] != r.Turn {
		t.Errorf("the turn says %v", turn)
	}
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

func TestWithoutAProviderNothingOfATraceIsWrittenDown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	store := memoryOf(t)
	rt, err := troupe.New(ctx, troupe.Options{Model: writesOnce{}, Store: store, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Run{Run: &messages.RunInput{Input: &messages.SubmitInput{
		Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "go"}}}, Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}}}})
	r, ok := reply.(*messages.TurnResult)
	if err != nil || !ok {
		t.Fatalf("%v %v", reply, err)
	}
	inputs := 0
	err = store.Read(ctx, messages.WorkerStream(r.GetWorkerId()), 1, func(e persistence.Entry) error {
		fact, err := messages.WorkerFactIn(e.Record)
		if in, ok := fact.(*messages.InputAccepted); ok {
			inputs++
			if in.GetTraceparent() != "" {
				t.Errorf("the journal keeps %s", in.GetTraceparent())
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if inputs != 1 {
		t.Errorf("%d inputs", inputs)
	}
}

func TestARequestsTraceGoesThroughItsTurnToTheModel(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	asked := make(chan string, 8)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Traceparent")
		if len(asked) == 1 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"done"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	defer service.Close()
	m, err := openai.New(openai.Options{BaseURL: service.URL, Sleep: func(context.Context, time.Duration) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	provider, kept := gatherTraces(t)
	rt, err := troupe.New(ctx, troupe.Options{Model: m, TracerProvider: provider})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	srv := httptest.NewServer(rt.Handler(gateway.Options{}))
	defer srv.Close()
	send := func(method, path, body, traceparent string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method, srv.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if traceparent != "" {
			r.Header.Set("Traceparent", traceparent)
		}
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %s %v", method, path, res.StatusCode, text, err)
		}
		return string(text)
	}
	const caller = "4bf92f3577b34da6a3ce929d0e0e4736"
	var v messages.SessionJSON
	if err := json.Unmarshal([]byte(send("POST", "/api/sessions", `{"input":{"text":"go"}}`, "00-"+caller+"-00f067aa0ba902b7-01")), &v); err != nil {
		t.Fatal(err)
	}
	send("GET", "/api/sessions/"+v.ID+"/wait", "", "")
	spans := kept.GetSpans()
	want := `1 POST /api/sessions
  1 troupe.input
    1 invoke_agent default
      2 chat
      4 troupe.append
      1 troupe.wait.lease
      2 troupe.wait.limiter
      1 troupe.wait.queue
`
	if got := tree(t, spans); got != want {
		t.Errorf("the trace is\n%swant\n%s", got, want)
	}
	for _, s := range spans {
		if s.SpanContext.TraceID().String() != caller {
			t.Errorf("span %s is of trace %s", s.Name, s.SpanContext.TraceID())
		}
		switch s.Name {
		case "invoke_agent default":
			if len(s.Events) != 1 || s.Events[0].Name != "troupe.retry" {
				t.Errorf("events of the turn: %v", s.Events)
			}
		case "chat": // each request is one, in the order in which they ended
			if got, want := <-asked, "00-"+caller+"-"+s.SpanContext.SpanID().String()+"-01"; got != want {
				t.Errorf("the service was told of %q, not %s", got, want)
			}
		}
	}
	if call := attrs(t, spans, "POST /api/sessions"); call["http.route"] != "/api/sessions" || call["http.response.status_code"] != "201" {
		t.Errorf("the request says %v", call)
	}
}

// TestAPipelinesRunIsOneTraceWhoeverWorksOnIt: its items, their repairs and its tools, before and after a restart, and its own span at its end.
func TestAPipelinesRunIsOneTraceWhoeverWorksOnIt(t *testing.T) {
	provider, kept := gatherTraces(t)
	rt, ctx := runtimeOf(t, troupe.Options{Model: flowModel(), DataDir: t.TempDir(), TracerProvider: provider})
	run, err := rt.RunPipeline(ctx, planOf(t, flow), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := run.Wait(ctx); err != nil || v.GetState() != "succeeded" {
		t.Fatalf("%v %v", v, err)
	}
	spans := kept.GetSpans()
	if got, want := tree(t, spans), "1 troupe.run\n  7 troupe.input\n"; !strings.HasPrefix(got, want) || strings.Count(got, "\n1 ")+strings.Count(got, "\n7 ") > 0 {
		t.Errorf("the trace is\n%s", got)
	}
	if a := attrs(t, spans, "troupe.run"); a["troupe.run"] != run.ID() || a["troupe.outcome"] != "succeeded" {
		t.Errorf("%v", a)
	}
	// Whoever goes on with it finds the same trace by the run's id alone.
	other, _ := gatherTraces(t)
	_, span := other.Tracer("x").Start(telemetry.OfTurn(ctx, run.ID()), "again")
	if span.SpanContext().TraceID() != spans[0].SpanContext.TraceID() {
		t.Error("another process gives the run another trace")
	}
}
