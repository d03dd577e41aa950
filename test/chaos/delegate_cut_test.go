package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// TestEveryCutOfADelegatingTurnHasOneChildAndOneAnswer cuts a turn that delegates twice, and works itself beside it, after each
// append of parent and children. Whatever was lost, each call has one child, each child its task once, each answer is heard
// once, and nothing that must not run twice does.
func TestEveryCutOfADelegatingTurnHasOneChildAndOneAnswer(t *testing.T) {
	everyCutOf(t, 16, newDelegating, (*world).checkFamily)
}

// newDelegating is a world whose parent delegates two tasks and runs a call beside them. Each child changes a file and charges.
func newDelegating(t *testing.T) *world {
	w := newWorld(t)
	w.script = func(req *model.Request) ([][2]string, string) {
		ms := req.Prompt.Messages
		answered := ms[len(ms)-1].Role == messages.ToolRole
		switch child := strings.Contains(req.Prompt.System, "has delegated a task to you"); {
		case child && !answered:
			name := ms[0].Text
			return [][2]string{
				{"write_file", fmt.Sprintf(`{"path":"%s.txt","content":"by the child"}`, name)}, {"charge", fmt.Sprintf(`{"name":%q}`, name)},
			}, ""
		case child:
			return nil, "answer of " + ms[0].Text
		case !answered:
			return [][2]string{{"delegate", `{"task":"one"}`}, {"charge", `{"name":"own"}`}, {"delegate", `{"task":"two"}`}}, ""
		}
		return nil, "all done"
	}
	return w
}

func (w *world) checkFamily(t *testing.T, when string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.result.GetOutcome() != messages.TurnCompleted_DONE || w.result.GetText() != "all done" {
		t.Fatalf("%s: the turn ended as %v", when, w.result)
	}
	for _, b := range w.broken {
		t.Errorf("%s: R6: %s", when, b)
	}
	charged := make(map[string]int)
	for _, id := range w.effects["charge"] {
		if charged[id]++; charged[id] > 1 {
			t.Errorf("%s: R3: charge ran %d times as %s", when, charged[id], id)
		}
	}
	for _, name := range []string{"one.txt", "two.txt"} {
		if b, err := os.ReadFile(filepath.Join(w.dir, name)); err != nil || string(b) != "by the child" {
			t.Errorf("%s: %s holds %q (%v)", when, name, b, err)
		}
	}
	children, inputs, answers := make(map[string]string), make(map[string]int), make(map[string]string)
	open := make(map[string]int)
	read := func(e persistence.Entry) error {
		if f, err := messages.SessionFactIn(e.Record); err == nil && strings.HasPrefix(e.Stream, "ses/") {
			if s, ok := f.(*messages.WorkerSpawned); ok && s.GetParent() != "" {
				if other := children[s.GetExecId()]; other != "" {
					t.Errorf("%s: call %s has the children %s and %s", when, s.GetExecId(), other, s.GetWorkerId())
				}
				children[s.GetExecId()] = "wrk/" + s.GetWorkerId()
			}
			return nil
		}
		f, err := messages.WorkerFactIn(e.Record)
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *messages.InputAccepted:
			inputs[e.Stream]++
		case *messages.TurnStarted:
			open[e.Stream]++
		case *messages.TurnCompleted:
			open[e.Stream]--
		case *messages.ToolFinished:
			if f.GetTool() == "delegate" {
				if answers[f.GetExecId()] != "" {
					t.Errorf("%s: call %s was answered twice", when, f.GetExecId())
				}
				answers[f.GetExecId()] = f.GetContent()
			}
		}
		return nil
	}
	if err := w.store.ReadSession(context.Background(), sessionID, 0, read); err != nil {
		t.Fatal(err)
	}
	if len(children) != 2 || len(answers) != 2 {
		t.Errorf("%s: %d children and %d answers", when, len(children), len(answers))
	}
	for exec, stream := range children {
		if inputs[stream] != 1 || open[stream] != 0 || !strings.HasPrefix(answers[exec], "answer of ") {
			t.Errorf("%s: %s has %d tasks and %d open turns; its answer is %q", when, stream, inputs[stream], open[stream], answers[exec])
		}
	}
}
