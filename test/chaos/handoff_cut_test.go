package chaos

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// TestEveryCutOfATurnThatIsHandedOverIsFinishedByTheSameAgents cuts a turn that goes from agent to agent and back, and works in between.
// Whatever was lost, it is handed over once there and once back, and nothing that must not run twice does.
func TestEveryCutOfATurnThatIsHandedOverIsFinishedByTheSameAgents(t *testing.T) {
	everyCutOf(t, 10, newHanding, (*world).checkHanded)
}

// newHanding is a world whose desk hands over to an expert, who charges and hands back; the desk says the last word.
func newHanding(t *testing.T) *world {
	w := newWorld(t)
	w.agents = []troupe.Agent{
		{Name: "default", System: "You are the desk.", Handoff: []string{"expert"}},
		{Name: "expert", System: "You are the expert.", Handoff: []string{"default"}},
	}
	w.script = func(req *model.Request) ([][2]string, string) {
		ms := req.Prompt.Messages
		last := ms[len(ms)-1]
		switch expert := req.Agent == "expert"; {
		case expert && last.ToolName == "handoff":
			return [][2]string{{"charge", `{"name":"expert"}`}}, ""
		case expert:
			return [][2]string{{"handoff", `{"agent":"default"}`}}, ""
		case last.ToolName == "handoff":
			return nil, "all done"
		}
		return [][2]string{{"handoff", `{"agent":"expert"}`}}, ""
	}
	return w
}

func (w *world) checkHanded(t *testing.T, when string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.result.GetOutcome() != messages.TurnCompleted_DONE || w.result.GetText() != "all done" {
		t.Fatalf("%s: the turn ended as %v", when, w.result)
	}
	for _, b := range w.broken {
		t.Errorf("%s: R6: %s", when, b)
	}
	if ran := w.effects["charge"]; len(ran) > 1 {
		t.Errorf("%s: R3: charge ran as %v", when, ran)
	}
	var went []string
	read := func(e persistence.Entry) error {
		if f, err := messages.WorkerFactIn(e.Record); err == nil {
			if f, ok := f.(*messages.HandedOver); ok {
				went = append(went, f.GetFrom()+" to "+f.GetAgent())
			}
		}
		return nil
	}
	if err := w.store.ReadSession(context.Background(), sessionID, 0, read); err != nil {
		t.Fatal(err)
	}
	if len(went) != 2 || went[0] != "default to expert" || went[1] != "expert to default" {
		t.Errorf("%s: it went %q", when, went)
	}
}
