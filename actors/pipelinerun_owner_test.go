package actors_test

import (
	"context"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/tools"
)

// laptop is an owner that does what it is given once its gate is open.
type laptop struct{ gate *actortest.Gate }

func (l laptop) Deliver(ctx context.Context, m *messages.Execute, _ func(*messages.Progress)) (*messages.ToolReply, error) {
	if err := l.gate.Pass(ctx); err != nil {
		return nil, err
	}
	return &messages.ToolReply{ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: messages.ToolFinished_OK, Content: "done"}, nil
}
func (laptop) Cancel(string)         {}
func (laptop) Settle(string, uint32) {}

// A machine that leaves while it works is waited for, and nobody tells the run of it.
func TestARunSaysThatItsItemsWaitForAMachine(t *testing.T) {
	const uri = "laptop:~/x"
	gate, clock := actortest.NewGate(), actortest.NewClock(time.Now())
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), Tools: []tools.Tool{holding(t, actortest.NewGate())}, Clock: clock, Now: clock.Now})
	m, err := (&messages.StartRunJSON{Pipeline: "version: 1\nname: t\nsteps: [{id: a, tool: hold, with: {name: a}}]\n"}).Proto()
	if err != nil {
		t.Fatal(err)
	}
	m.Workspaces = []*messages.WorkspaceSpec{{Uri: uri, Trust: messages.Trust_FULL}}
	s := m.GetSessionId()
	run, at := messages.RunOf(s), actors.Place{Session: s, URI: uri}
	come := func() func(bool) {
		_, leave, fail := h.Svc.Owners.Connect(at, laptop{gate}, "c", false)
		if fail != nil {
			t.Fatal(fail)
		}
		return leave
	}
	leave := come()
	h.Create(m)
	actortest.Wait(t, "the call", gate.Came)
	if v := stepOf(h, s, run, "a"); v.GetWaits() != 0 {
		t.Errorf("while the machine works it is shown as %v", v)
	}
	leave(false)
	v := shown(t, h, s, run, "a", func(v *messages.RunStepView) bool { return v.GetWaits() == 1 })
	if on := v.GetWaiting(); v.GetState() != pipeline.Waiting || on.GetKind() != messages.WaitOwner || !on.ForPeople() || on.Command(s) != "troupe attach DIR --session "+s {
		t.Errorf("it is shown as %v", v)
	}
	listed := func(state string) {
		pass(t, clock, 500*time.Millisecond, "the run is listed as "+state, func() bool { // it looks now and then
			return entry(t, h, actors.RunKey(run), &messages.RunView{}).GetState() == state
		})
	}
	listed(pipeline.Waiting)
	come()
	listed(pipeline.Running)
	gate.Open()
	if v := endOf(h, s, run); v.GetState() != pipeline.Succeeded || v.GetWaits() != 0 {
		t.Errorf("it ended as %v", v)
	}
}
