package actors_test

import (
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/tools"
)

// shown waits until a step is shown as is wanted.
func shown(t *testing.T, h *actortest.House, session, run, step string, is func(*messages.RunStepView) bool) (v *messages.RunStepView) {
	actortest.Until(t, "step "+step+" is shown so", func() bool {
		v = stepOf(h, session, run, step)
		return is(v)
	})
	return v
}

// What ends by itself is told of when it has lasted: every call of a model waits for its permit, if only for a moment.
func TestARunSaysThatItsItemsWaitForAPermitOnceThatLasts(t *testing.T) {
	gate, m := gated()
	clock := actortest.NewClock(time.Now())
	h := actortest.New(t, actortest.Options{Model: m, Clock: clock, Now: clock.Now, Limits: actors.Limits{ModelCalls: 1}})
	s, _, run := startRun(t, h, "agents: {x: {}}\nsteps: [{id: a, foreach: '1..2', agent: x, prompt: x}]\n")
	actortest.Wait(t, "a call of the model", gate.Came)
	if v := stepOf(h, s, run, "a"); v.GetWaits() != 0 || v.GetState() != pipeline.Running {
		t.Errorf("at once it is shown as %v", v)
	}
	var v *messages.RunStepView
	pass(t, clock, 500*time.Millisecond, "one item waits", func() bool {
		v = stepOf(h, s, run, "a")
		return v.GetWaits() == 1
	})
	if v.GetState() != pipeline.Running || v.GetWaiting().GetKind() != "permit" || v.GetWaiting().ForPeople() {
		t.Errorf("one works and one waits, and it is shown as %v", v)
	}
	gate.Open()
	if v := actortest.Ask[*messages.RunView](h, s, &messages.AwaitRun{RunId: run}); v.GetState() != pipeline.Succeeded || v.GetWaits() != 0 {
		t.Errorf("it ended as %v", v)
	}
}

func TestARunSaysWhichBudgetItsItemsWaitFor(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: costing(actortest.Say("yes"), 9000, 500)})
	s, _, run := startRun(t, h, "steps: [{id: a, foreach: '1..4', agent: default, prompt: x, budget: {tokens: 20000, on_exceed: pause}}]\n")
	v := shown(t, h, s, run, "a", func(v *messages.RunStepView) bool { return v.GetState() == pipeline.Waiting })
	if on := v.GetWaiting(); on.GetKind() != "budget" || on.Command(s) != "troupe budget add "+s+" --step a tokens=N" {
		t.Errorf("it is shown as %v: %q", v, on.Command(s))
	}
	cancelledRun(t, h, s, run)
}

// Two who write in the same folder take turns: the one that waits is shown once that has lasted, and no more when its turn has come.
func TestARunSaysThatItsItemsWaitForAWorkspace(t *testing.T) {
	gate, clock := actortest.NewGate(), actortest.NewClock(time.Now())
	h := actortest.New(t, actortest.Options{Model: actortest.CallThenSay(actortest.Call("1", "hold", `{"name":"a"}`)), Tools: []tools.Tool{holding(t, gate)}, Clock: clock, Now: clock.Now})
	s, _, run := startRun(t, h, "steps: [{id: a, foreach: '1..2', agent: default, prompt: x}]\n")
	actortest.Wait(t, "a call", gate.Came)
	var v *messages.RunStepView
	pass(t, clock, 500*time.Millisecond, "one item waits", func() bool {
		v = stepOf(h, s, run, "a")
		return v.GetWaits() == 1
	})
	if on := v.GetWaiting(); on.GetKind() != messages.WaitLease || v.GetState() != pipeline.Running {
		t.Errorf("one works and one waits, and it is shown as %v", v)
	}
	gate.Open()
	if v := endOf(h, s, run); v.GetState() != pipeline.Succeeded || v.GetWaits() != 0 {
		t.Errorf("it ended as %v", v)
	}
}
