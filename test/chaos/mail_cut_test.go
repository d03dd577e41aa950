package chaos

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// TestEveryCutOfWorkInTheBackgroundIsToldOnce cuts a session whose agent delegates in the background, is written to by its child meanwhile, and is
// told what became of it, after each append. Whatever was lost, there is one child, and each message is heard once.
func TestEveryCutOfWorkInTheBackgroundIsToldOnce(t *testing.T) {
	everyCutOf(t, 16, newAside, (*world).checkTold)
}

// newAside is a world whose parent delegates in the background and ends its turn; the child charges, writes to it, and answers.
func newAside(t *testing.T) *world {
	w := newWorld(t)
	w.together = true
	w.script = func(req *model.Request) ([][2]string, string) {
		ms := req.Prompt.Messages
		last := ms[len(ms)-1]
		switch child := strings.Contains(req.Prompt.System, "goes on meanwhile"); {
		case child && last.Role != messages.ToolRole:
			return [][2]string{{"charge", `{"name":"child"}`}, {"send", `{"to":"parent","text":"half done"}`}}, ""
		case child:
			return nil, "all found"
		case last.Role == messages.ToolRole:
			return nil, "I go on"
		case strings.Contains(last.Text, "> half done"):
			return nil, "heard half"
		case strings.Contains(last.Text, "> all found"):
			return nil, "heard all"
		}
		return [][2]string{{"delegate", `{"task":"look","background":true}`}}, ""
	}
	w.until = func(v *messages.SessionView) bool {
		all := v.GetWorkers()
		for _, x := range all {
			if x.GetTurn() != "" || x.GetStaged() > 0 || x.GetOutbox() > 0 {
				return false
			}
		}
		return len(all) == 2 && all[0].GetTurns() == 3 && all[1].GetTurns() == 1
	}
	return w
}

func (w *world) checkTold(t *testing.T, when string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.result.GetOutcome() != messages.TurnCompleted_DONE || w.result.GetText() != "I go on" {
		t.Fatalf("%s: the turn ended as %v", when, w.result)
	}
	for _, b := range w.broken {
		t.Errorf("%s: R6: %s", when, b)
	}
	if ran := w.effects["charge"]; len(ran) > 1 {
		t.Errorf("%s: R3: charge ran as %v", when, ran)
	}
	children, heard := 0, ""
	sent, acked := make(map[string]int), make(map[string]int)
	read := func(e persistence.Entry) error {
		if strings.HasPrefix(e.Stream, "ses/") {
			if f, err := messages.SessionFactIn(e.Record); err == nil {
				if s, ok := f.(*messages.WorkerSpawned); ok && s.GetParent() != "" {
					children++
				}
			}
			return nil
		}
		f, err := messages.WorkerFactIn(e.Record)
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *messages.OutboxEnqueued:
			sent[f.GetMessageId()]++
		case *messages.OutboxAcked:
			acked[f.GetMessageId()]++
			if f.GetRefused() != "" {
				t.Errorf("%s: message %s was refused: %s", when, f.GetMessageId(), f.GetRefused())
			}
		case *messages.GenerationCompleted:
			if strings.HasPrefix(f.GetContent(), "heard") {
				heard += f.GetContent() + "; "
			}
		}
		return nil
	}
	if err := w.store.ReadSession(context.Background(), sessionID, 0, read); err != nil {
		t.Fatal(err)
	}
	if children != 1 || len(sent) != 2 || len(acked) != 2 || heard != "heard half; heard all; " {
		t.Errorf("%s: %d children, %v sent, %v acknowledged; the parent %s", when, children, sent, acked, heard)
	}
	for id, n := range sent {
		if n != 1 {
			t.Errorf("%s: message %s was written %d times", when, id, n)
		}
	}
}
