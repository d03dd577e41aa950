package actors_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/tools"
)

// startRun makes the session of a pipeline, and gives its id, its first worker's and its run's.
func startRun(t *testing.T, h *actortest.House, text string) (session, worker, run string) {
	t.Helper()
	m, err := (&messages.StartRunJSON{Pipeline: "version: 1\nname: t\n" + text}).Proto()
	if err != nil {
		t.Fatal(err)
	}
	session, worker = h.Create(m)
	return session, worker, messages.RunOf(session)
}

// stepOf is a step of a run as it stands.
func stepOf(h *actortest.House, session, run, step string) *messages.RunStepView {
	for _, s := range actortest.Ask[*messages.RunView](h, session, &messages.ShowRun{RunId: run}).GetStepViews() {
		if s.GetStep() == step {
			return s
		}
	}
	return nil
}

// cancelledRun cancels a run, and waits for its end.
func cancelledRun(t *testing.T, h *actortest.House, session, run string) {
	t.Helper()
	actortest.Ask[*messages.RunView](h, session, &messages.CancelRun{RunId: run})
	if v := actortest.Ask[*messages.RunView](h, session, &messages.AwaitRun{RunId: run}); v.GetState() != pipeline.Cancelled {
		t.Fatalf("the run ended as %v", v)
	}
}

// holding is a tool that waits at a gate.
func holding(t *testing.T, gate *actortest.Gate) tools.Tool {
	t.Helper()
	return tool(t, "hold", idempotent, func(ctx context.Context, name string) (string, error) { return "held " + name, gate.Pass(ctx) })
}

func TestTheCallsOfARunThatIsCancelledEndWithIt(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), Tools: []tools.Tool{holding(t, gate)}})
	s, w, run := startRun(t, h, `
steps:
  - {id: a, tool: hold, with: {name: a}}
  - {id: b, tool: hold, with: {name: b}}
`)
	actortest.Wait(t, "a call", gate.Came)
	actortest.Until(t, "the other one waits", func() bool { return len(actortest.Of[*messages.InputAccepted](h.Facts(w))) == 2 })
	cancelledRun(t, h, s, run)
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	facts := h.Facts(w)
	if done := finishedCalls(h, w); len(done) != 1 || done[0].GetStatus() != messages.ToolFinished_CANCELLED {
		t.Errorf("the calls ended as %v", done)
	}
	if n := len(actortest.Of[*messages.InputWithdrawn](facts)); n != 1 {
		t.Errorf("%d inputs are taken back", n)
	}
	works(t, h, s)
}

func TestACallWhoseTimeIsOverEndsAndTheOthersGoOn(t *testing.T) {
	gate, clock := actortest.NewGate(), actortest.NewClock(time.Now())
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), Tools: []tools.Tool{holding(t, gate)}, Now: clock.Now, Clock: clock})
	s, w, run := startRun(t, h, `
steps:
  - {id: a, tool: hold, with: {name: a}, timeout: 2s, on_error: continue}
  - {id: b, tool: hold, with: {name: b}}
`)
	actortest.Wait(t, "a call", gate.Came)
	actortest.Until(t, "the other one waits", func() bool { return len(actortest.Of[*messages.InputAccepted](h.Facts(w))) == 2 })
	begun := clock.Now()
	actortest.Until(t, "its time is over", func() bool {
		if clock.Now().Sub(begun) < 30*time.Second { // a call may take a minute
			clock.Advance(time.Second)
		}
		return stepOf(h, s, run, "a").GetState() == pipeline.Failed
	})
	actortest.Until(t, "the call is recalled, and has ended if it ran", func() bool {
		facts := h.Facts(w)
		cancelled := len(actortest.Of[*messages.CancelRequested](facts))
		return cancelled+len(actortest.Of[*messages.InputWithdrawn](facts)) == 1 && len(finishedCalls(h, w)) == cancelled
	})
	gate.Open()
	if v := actortest.Ask[*messages.RunView](h, s, &messages.AwaitRun{RunId: run}); v.GetState() != pipeline.Succeeded {
		t.Fatalf("the run ended as %v", v)
	}
	var held []string
	for _, f := range finishedCalls(h, w) {
		if f.GetStatus() == messages.ToolFinished_OK {
			held = append(held, f.GetContent())
		}
	}
	if a := stepOf(h, s, run, "a"); a.GetState() != pipeline.Failed || len(held) != 1 || held[0] != "held b" {
		t.Errorf("a is %v, and what was held is %q", a, held)
	}
}

// TestAWorkerThatWasBeingMadeWhenItsRunWasCancelledDoesNothing though its word was sent before it was there.
func TestAWorkerThatWasBeingMadeWhenItsRunWasCancelledDoesNothing(t *testing.T) {
	gate, m := gated()
	store := &actortest.Store{Store: stored(t)}
	came, release := store.Hold(func(f proto.Message) bool {
		sp, ok := f.(*messages.WorkerSpawned)
		return ok && sp.GetRunId() != ""
	})
	h := actortest.New(t, actortest.Options{Store: store, Model: m})
	s, _, run := startRun(t, h, "steps: [{id: a, agent: default, prompt: x}]\n")
	actortest.Wait(t, "the worker's record", came)
	worker := stepOf(h, s, run, "a").GetItemViews()[0].GetWorkerId()
	cancelledRun(t, h, s, run)
	release()
	actortest.Until(t, "the worker is there", func() bool { return len(workers(h, s)) == 2 })
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	if n := len(gate.Came); n > 1 || len(actortest.Of[*messages.GenerationCompleted](h.Facts(worker))) > 0 {
		t.Errorf("%d calls of its model, and it answered: %v", n, h.Facts(worker))
	}
}

// TestAnAttemptThatIsOverIsRecalledByTheNextProcess when the one before ended after the fact, and before its word to the worker.
func TestAnAttemptThatIsOverIsRecalledByTheNextProcess(t *testing.T) {
	retried := &messages.StepItemRetried{Step: "a", Attempt: 1, Class: "timeout", Error: "slow", NotBeforeUnixMs: time.Now().Add(time.Hour).UnixMilli()}
	cancelled := &messages.StepItemFinished{Step: "a", Status: pipeline.Cancelled, Error: "the run was cancelled"}
	for name, c := range map[string]struct {
		step string
		fact proto.Message
	}{
		"an agent, retried":   {"agent: default, prompt: x", retried},
		"an agent, cancelled": {"agent: default, prompt: x", cancelled},
		"a tool, retried":     {"tool: hold, with: {name: a}", retried},
		"a tool, cancelled":   {"tool: hold, with: {name: a}", cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			gate, m := gated()
			store, dir := stored(t), t.TempDir()
			o := actortest.Options{Store: store, DataDir: dir, Model: m, Tools: []tools.Tool{holding(t, gate)}}
			h := actortest.New(t, o)
			s, worker, run := startRun(t, h, "steps: [{id: a, "+c.step+"}]\n")
			actortest.Wait(t, "the call", gate.Came)
			if id := stepOf(h, s, run, "a").GetItemViews()[0].GetWorkerId(); id != "" {
				worker = id
			}
			h.Stop()
			journalled(t, store, run, c.fact)
			h = actortest.New(t, o)
			actortest.Ask[*messages.RunView](h, s, &messages.ShowRun{RunId: run})
			actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
			if by := actortest.Of[*messages.CancelRequested](h.Facts(worker)); len(by) != 1 || by[0].GetBy() != "pipeline" {
				t.Errorf("its turn was cancelled as %v", by)
			}
		})
	}
}

func TestACommandThatIsBeingWrittenIsAnsweredWhenItsRunStops(t *testing.T) {
	store := &actortest.Store{Store: stored(t)}
	came, release := store.Hold(actortest.Is[*messages.RunCancelled])
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, _, run := startRun(t, h, "steps: [{id: a, human: {message: Well?}}]\n")
	asked := actortest.Later[*messages.RunView](h, s, &messages.CancelRun{RunId: run})
	actortest.Wait(t, "the command's record", came)
	closed := actortest.Later[proto.Message](h, s, &messages.CloseSession{})
	if a := actortest.Wait(t, "an answer", asked); actortest.Code(a.Err) != messages.CodeUnavailable {
		t.Errorf("the command is answered with %v %v", a.Reply, a.Err)
	}
	release()
	if a := actortest.Wait(t, "the session's end", closed); a.Err != nil {
		t.Error(a.Err)
	}
}

// journalled adds facts to the journal of a run that nobody holds.
func journalled(t *testing.T, store persistence.Store, run string, facts ...proto.Message) {
	t.Helper()
	j, err := persistence.OpenJournal(context.Background(), store, messages.RunStream(run), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Release()
	d := persistence.Draft{}
	for _, f := range facts {
		r, err := messages.NewRunRecord(f)
		if err != nil {
			t.Fatal(err)
		}
		d.Records = append(d.Records, r)
	}
	done := make(chan error, 1)
	j.Append(func(_ persistence.Receipt, err error) { done <- err }, d)
	if err := actortest.Wait(t, "the append", done); err != nil {
		t.Fatal(err)
	}
}

// A pipeline that took too long is worked on anew: its worker of before would have no other answer than that it was ended.
func TestAPipelineThatTookTooLongIsTriedAgainByOthers(t *testing.T) {
	gate := actortest.NewGate()
	first := true
	var mu sync.Mutex
	h := actortest.New(t, actortest.Options{Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
		mu.Lock()
		slow := first
		first = false
		mu.Unlock()
		if slow {
			return actortest.Reply{Text: "late", Err: gate.Pass(ctx)}
		}
		return actortest.Reply{Text: "in time"}
	})})
	m, err := (&messages.StartRunJSON{
		Pipeline: "version: 1\nname: t\nsteps: [{id: in, pipeline: inner.yaml, timeout: 200ms, retry: {max: 1, on: [timeout], initial: 1ms}}]\noutputs: {said: '${{ steps.in.output.said }}'}\n",
		Files:    []messages.RunFileJSON{{Path: "inner.yaml", Text: "version: 1\nname: inner\nsteps: [{id: say, agent: default, prompt: x}]\noutputs: {said: '${{ steps.say.output }}'}\n"}},
	}).Proto()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := h.Create(m)
	v := endOf(h, s, messages.RunOf(s))
	if v.GetState() != pipeline.Succeeded || v.GetOutputsJson() != `{"said":"in time"}` {
		t.Errorf("the run is %s: %s %s", v.GetState(), v.GetError(), v.GetOutputsJson())
	}
}
