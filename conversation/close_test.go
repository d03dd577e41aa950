package conversation_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// TestWhatIsOpenAtAnyCutCanBeClosed cuts a history anywhere and closes it: no turn and no call is open
// any more, every answer has its results, and the next prompt begins.
func TestWhatIsOpenAtAnyCutCanBeClosed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(t)
		d.run(rapid.IntRange(5, 60).Draw(t, "length"))
		d.cut(rapid.IntRange(1, len(d.records)).Draw(t, "cut"))
		open, made := d.s.Turn(), 0
		before := len(d.s.History().GetTurns())
		facts := d.s.Close("fork", "forked", func() string { made++; return fmt.Sprintf("exe_closed_%d", made) })
		if (open == nil) != (facts == nil) {
			t.Fatalf("turn %v is closed by %v", open, facts)
		}
		for _, f := range facts {
			d.put(f)
		}
		if d.s.Turn() != nil || len(d.s.Recover()) > 0 {
			t.Fatalf("still open: %+v", d.s.Turn())
		}
		if open != nil && open.Completed == nil {
			t.Fatal("the turn has no end")
		}
		if open != nil && !open.Program() && open.Completed.GetInputsStay() && len(d.s.History().GetTurns()) != before+1 {
			t.Fatalf("what was said is gone: %v", d.s.History())
		}
		d.checkHandedOut()
	})
}

func TestClosingKeepsTheWordsOfAnOpenTurnAndTheExactTextOfLostCalls(t *testing.T) {
	j := newJournal()
	put := func(facts ...proto.Message) {
		t.Helper()
		for _, f := range facts {
			if err := j.write(f); err != nil {
				t.Fatalf("%T: %v", f, err)
			}
		}
	}
	in := func(id string) *messages.InputAccepted {
		return &messages.InputAccepted{InputId: id, Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "said " + id}}}}
	}
	put(&messages.WorkerCreated{WorkerId: "wrk_1"}, in("one"), &messages.TurnStarted{TurnId: "t1", InputIds: []string{"one"}},
		&messages.GenerationStarted{GenId: "g1"})
	put(j.s.Close("fork", "forked", nil)...)
	put(in("two"), &messages.TurnStarted{TurnId: "t2", InputIds: []string{"two"}}, &messages.GenerationStarted{GenId: "g2"},
		&messages.GenerationCompleted{GenId: "g2", ToolCalls: []*messages.ToolCall{{Id: "c", Name: "exec"}, {Id: "c", Name: "probe"}}},
		&messages.ToolPlanned{ExecId: "exe_1", CallId: "c", Tool: "exec"}, &messages.ToolDispatched{ExecId: "exe_1"})
	put(j.s.Close("fork", "forked", func() string { return "exe_new" })...)

	var said []string
	for _, turn := range j.s.History().GetTurns() {
		for _, m := range turn.GetMessages() {
			said = append(said, m.GetRole()+": "+m.GetContent())
		}
	}
	want := []string{"user: said one", "user: said two", "assistant: ", "tool: " + conversation.InterruptedText, "tool: " + conversation.InterruptedText}
	if got := strings.Join(said, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the history is\n%s", got)
	}
	if j.s.Last().Completed.GetOutcome() != messages.TurnCompleted_ABORTED {
		t.Errorf("the turn ended as %v", j.s.Last().Completed)
	}
}

func TestATurnThatOnlyLacksItsEndEndsAsItWouldHave(t *testing.T) {
	j := newJournal()
	for _, f := range []proto.Message{
		&messages.WorkerCreated{WorkerId: "wrk_1"}, &messages.InputAccepted{InputId: "one"}, &messages.TurnStarted{TurnId: "t1", InputIds: []string{"one"}},
		&messages.GenerationStarted{GenId: "g1"}, &messages.GenerationCompleted{GenId: "g1", Content: "done so", FinishReason: "stop"},
	} {
		if err := j.write(f); err != nil {
			t.Fatal(err)
		}
	}
	facts := j.s.Close("fork", "forked", nil)
	if len(facts) != 1 || facts[0].(*messages.TurnCompleted).GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("closed by %v", facts)
	}
}

// TestTimersAreFoldedAndEndOnce: a timer is set once and ends once, whatever else goes on.
func TestTimersAreFoldedAndEndOnce(t *testing.T) {
	j := newJournal()
	write := func(f proto.Message) error { return j.write(f) }
	for _, f := range []proto.Message{
		&messages.WorkerCreated{WorkerId: "wrk_1"},
		&messages.TimerSet{TimerId: "late", DueUnixMs: 9}, &messages.TimerSet{TimerId: "soon", DueUnixMs: 3}, &messages.TimerSet{TimerId: "never", DueUnixMs: 5},
		&messages.InputAccepted{InputId: "one"}, &messages.TurnStarted{TurnId: "t", InputIds: []string{"one"}},
		&messages.TimerCancelled{TimerId: "never"}, &messages.TimerFired{TimerId: "soon"},
	} {
		if err := write(f); err != nil {
			t.Fatalf("%T: %v", f, err)
		}
	}
	if left := j.s.Timers(); len(left) != 1 || left[0].GetTimerId() != "late" || j.s.Timer("soon").End != conversation.TimerFired ||
		j.s.Timer("never").End != conversation.TimerCancelled || j.s.Timer("unknown") != nil {
		t.Errorf("left %v", left)
	}
	for _, f := range []proto.Message{
		&messages.TimerSet{TimerId: "soon"}, &messages.TimerFired{TimerId: "soon"}, &messages.TimerCancelled{TimerId: "soon"},
		&messages.TimerFired{TimerId: "unknown"},
	} {
		if err := write(f); err == nil {
			t.Errorf("%T %v was applied", f, f)
		}
	}
}

// TestTheTimeWorkedOnATurnLeavesOutWhatIsBetweenActivations: neither downtime nor a clock that is set back counts.
func TestTheTimeWorkedOnATurnLeavesOutWhatIsBetweenActivations(t *testing.T) {
	var s conversation.State
	seq := uint64(0)
	apply := func(epoch uint64, at int64, f proto.Message) {
		t.Helper()
		seq++
		if err := s.ApplyFact(f, &messages.Record{Seq: seq, Epoch: epoch, AtUnixMs: at}); err != nil {
			t.Fatal(err)
		}
	}
	apply(1, 1000, &messages.WorkerCreated{WorkerId: "wrk_1"})
	apply(1, 2000, &messages.InputAccepted{InputId: "one"})
	apply(1, 3000, &messages.TurnStarted{TurnId: "t", InputIds: []string{"one"}})
	apply(1, 3500, &messages.GenerationStarted{GenId: "g"})
	apply(2, 90_000, &messages.Activated{})
	apply(2, 90_200, &messages.GenerationStarted{GenId: "h"})
	apply(2, 10, &messages.GenerationFailed{GenId: "h"})
	if got := s.Turn().WorkedMs; got != 700 {
		t.Errorf("worked %d ms", got)
	}
	if got := s.Turn().FailedMs; got != 10 {
		t.Errorf("failed at %d", got)
	}
}

func TestTheTimeThatATurnWaitsForAPersonIsNotWork(t *testing.T) {
	var s conversation.State
	for i, f := range []proto.Message{
		&messages.WorkerCreated{WorkerId: "wrk_1"}, &messages.InputAccepted{InputId: "one"}, &messages.TurnStarted{TurnId: "t", InputIds: []string{"one"}},
		&messages.GenerationStarted{GenId: "g"}, &messages.GenerationCompleted{GenId: "g", ToolCalls: []*messages.ToolCall{{Name: "exec"}}},
		&messages.ToolPlanned{ExecId: "exe_1", Tool: "exec"}, &messages.ToolDispatched{ExecId: "exe_1"},
		&messages.CallDoubted{ExecId: "exe_1"}, &messages.CallResolved{ExecId: "exe_1", Resolution: messages.CallResolved_RETRY},
		&messages.ToolDispatched{ExecId: "exe_1", Attempt: 2},
	} {
		at := int64(i) * 100
		if i >= 8 { // the word comes a day later
			at += 86_400_000
		}
		if err := s.ApplyFact(f, &messages.Record{Seq: uint64(i + 1), Epoch: 1, AtUnixMs: at}); err != nil {
			t.Fatalf("%T: %v", f, err)
		}
	}
	if got := s.Turn().WorkedMs; got != 600 {
		t.Errorf("worked %d ms", got)
	}
}
