package chaos

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// TestEveryCutOfASharedConversationLosesNoTurnAndRepeatsNone cuts a conversation of three workers, whose turns all wait at once, after each
// append of all journals. A turn that was acknowledged is not asked for again. Each turn ends once, in the order in which they were accepted;
// each member has each input once; and what the members were told is one and the same transcript.
func TestEveryCutOfASharedConversationLosesNoTurnAndRepeatsNone(t *testing.T) {
	everyCutOf(t, 16, newTalking, (*world).checkTalk)
}

// talkTurns are the turns, by the member's place in the session.
func talkTurns() map[string]int {
	return map[string]int{"inp_t1": 0, "inp_t2": 1, "inp_t3": 2, "inp_t4": 0}
}

// newTalking is a world whose workers speak with each other. The second one charges before it speaks.
func newTalking(t *testing.T) *world {
	w := newWorld(t)
	w.together = true
	w.script = func(req *model.Request) ([][2]string, string) {
		ms := req.Prompt.Messages
		last := ms[len(ms)-1]
		if strings.Contains(last.Text, "You are m1 ") {
			return [][2]string{{"charge", `{"name":"m1"}`}}, ""
		}
		if last.Role == messages.ToolRole {
			return nil, "it is charged"
		}
		return nil, fmt.Sprintf("answer %d", len(ms))
	}
	acked := make(map[string]bool)
	w.beside = func(ctx context.Context, rt *troupe.Runtime) error { return w.talk(ctx, rt, acked) }
	return w
}

// talk has three workers share a conversation, asks for all turns and a word from outside, and waits for their ends.
func (w *world) talk(ctx context.Context, rt *troupe.Runtime, acked map[string]bool) error {
	members, err := w.threeWorkers(ctx, rt)
	if err != nil {
		return err
	}
	ask := func(m *messages.ToSession) error {
		m.SessionId = sessionID
		_, err := rt.Ask(ctx, m)
		return err
	}
	if err := ask(&messages.ToSession{Command: &messages.ToSession_ShareConversation{ShareConversation: &messages.ShareConversation{Name: "talk"}}}); err != nil {
		return err
	}
	for _, turn := range []string{"inp_t1", "inp_t2", "inp_word", "inp_t3", "inp_t4"} {
		m := &messages.ToSession{Command: &messages.ToSession_TakeTurn{TakeTurn: &messages.TakeTurn{
			Name: "talk", WorkerId: members[talkTurns()[turn]], TurnId: turn, Prompt: "Go on.", Member: fmt.Sprint("m", talkTurns()[turn]), Accept: true,
		}}}
		if turn == "inp_word" {
			m.Command = &messages.ToSession_SubmitTurn{SubmitTurn: &messages.SubmitTurn{Name: "talk", TurnId: turn, Text: "Keep it short.", By: "ann"}}
		}
		if acked[turn] {
			continue // it was promised
		}
		if err := ask(m); err != nil {
			return err
		}
		acked[turn] = true
	}
	for turn := range talkTurns() {
		if err := ask(&messages.ToSession{Command: &messages.ToSession_AwaitSharedTurn{AwaitSharedTurn: &messages.AwaitSharedTurn{Name: "talk", TurnId: turn}}}); err != nil {
			return err
		}
	}
	return nil
}

// threeWorkers adds two to the session's first, unless they are there.
func (w *world) threeWorkers(ctx context.Context, rt *troupe.Runtime) (ids []string, err error) {
	for {
		v, err := rt.Ask(ctx, to(&messages.ToSession_Describe{Describe: &messages.DescribeSession{}}))
		if err != nil {
			return nil, err
		}
		ids = nil
		for _, x := range v.(*messages.SessionView).GetWorkers() { //nolint:forcetypeassert // the reply of DescribeSession
			ids = append(ids, x.GetId())
		}
		if len(ids) >= 3 {
			return ids, nil
		}
		if _, err := rt.Ask(ctx, to(&messages.ToSession_SpawnWorker{SpawnWorker: &messages.SpawnWorker{}})); err != nil {
			return nil, err
		}
	}
}

func (w *world) checkTalk(t *testing.T, when string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.broken {
		t.Errorf("%s: R6: %s", when, b)
	}
	if n := len(w.effects["charge"]); n > 1 {
		t.Errorf("%s: R3: charge ran %d times", when, n)
	}
	facts := make(map[string][]proto.Message)
	read := func(e persistence.Entry) error {
		decode := messages.WorkerFactIn
		switch {
		case strings.HasPrefix(e.Stream, "cnv/"):
			decode = messages.ConversationFactIn
		case strings.HasPrefix(e.Stream, "ses/"):
			return nil
		}
		f, err := decode(e.Record)
		if err == nil && f != nil {
			facts[e.Stream] = append(facts[e.Stream], f)
		}
		return err
	}
	if err := w.store.ReadSession(context.Background(), sessionID, 0, read); err != nil {
		t.Fatal(err)
	}
	heldToTalk(t, when, facts, []string{"inp_t1", "inp_t2", "inp_word", "inp_t3", "inp_t4"})
}

// heldToTalk holds the journals of a session to what a shared conversation promises: want are all turns, words from outside among them.
func heldToTalk(t *testing.T, when string, facts map[string][]proto.Message, want []string) {
	t.Helper()
	var lines []string // who said what, as everybody reads it
	own := make(map[int]string)
	ended, given := make(map[string]int), ""
	names := make(map[string]string)
	for stream, all := range facts {
		if !strings.HasPrefix(stream, "cnv/") {
			continue
		}
		for _, f := range all {
			switch f := f.(type) {
			case *messages.MemberJoined:
				names[f.GetWorkerId()] = f.GetName()
			case *messages.TurnGiven:
				if given != "" {
					t.Errorf("%s: %s was given the word while %s had it", when, f.GetTurnId(), given)
				}
				given = f.GetTurnId()
			case *messages.TurnSubmitted:
				ended[f.GetTurnId()]++
				if f.GetWorkerId() != "" {
					if given != f.GetTurnId() {
						t.Errorf("%s: %s ended while %q had the word", when, f.GetTurnId(), given)
					}
					given = ""
				}
				lines = append(lines, f.GetText())
				own[len(lines)] = f.GetWorkerId()
			case *messages.TurnCut:
				t.Errorf("%s: turn %s was cut off: %s %s", when, f.GetTurnId(), f.GetCode(), f.GetReason())
			}
		}
	}
	for _, id := range want {
		if ended[id] != 1 {
			t.Errorf("%s: turn %s ended %d times", when, id, ended[id])
		}
		delete(ended, id)
	}
	if len(ended) > 0 {
		t.Errorf("%s: nobody asked for %v", when, ended)
	}
	for worker := range names {
		told(t, when, facts["wrk/"+worker], worker, lines, own)
	}
}

var toldLine = regexp.MustCompile(`(?m)^\[(\d+)\] .*:\n> (.*)$`)

// told checks that a member was told each line of the others once, in order, with the same words, up to where its newest turn began.
func told(t *testing.T, when string, facts []proto.Message, worker string, lines []string, own map[int]string) {
	t.Helper()
	seen, last := make(map[string]int), 0
	for _, f := range facts {
		in, is := f.(*messages.InputAccepted)
		if !is || !strings.HasPrefix(in.GetFrom(), messages.ConversationPrefix) {
			continue
		}
		if seen[in.GetInputId()]++; seen[in.GetInputId()] > 1 {
			t.Errorf("%s: %s has the input %s twice", when, worker, in.GetInputId())
		}
		for _, m := range toldLine.FindAllStringSubmatch(in.GetParts()[0].GetText(), -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil || n > len(lines) || own[n] == worker || lines[n-1] != m[2] {
				t.Errorf("%s: %s was told %q, which nobody else said as number %s", when, worker, m[2], m[1])
				continue
			}
			for missed := last + 1; missed < n; missed++ {
				if own[missed] != worker {
					t.Errorf("%s: %s was not told number %d before number %d", when, worker, missed, n)
				}
			}
			if n <= last {
				t.Errorf("%s: %s was told number %d after number %d", when, worker, n, last)
			}
			last = n
		}
	}
	if len(seen) == 0 {
		t.Errorf("%s: %s had no turn", when, worker)
	}
}
