package conversation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// reader reads the facts of encoded records again, and counts.
func reader(records [][]byte, count *int) func(uint64) (proto.Message, error) {
	return func(seq uint64) (proto.Message, error) {
		*count++
		var r messages.Record
		if seq == 0 || seq > uint64(len(records)) {
			return nil, fmt.Errorf("there is no record %d", seq)
		}
		if err := proto.Unmarshal(records[seq-1], &r); err != nil {
			return nil, err
		}
		return messages.WorkerFactIn(&r)
	}
}

// TestASnapshotAndTheTailFoldToTheSameAsAll (R10) draws histories, takes snapshots anywhere, also in
// the middle of turns, and compares all that the states hold.
func TestASnapshotAndTheTailFoldToTheSameAsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(t)
		d.large = rapid.Bool().Draw(t, "large")
		d.run(rapid.IntRange(5, 60).Draw(t, "length"))
		whole, err := foldLive(d.records)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			at := rapid.IntRange(1, len(d.records)).Draw(t, "snapshot")
			s, err := foldLive(d.records[:at])
			if err != nil {
				t.Fatal(err)
			}
			frozen := s.Freeze()
			for _, b := range d.records[at:] { // what comes later does not change the picture
				if err := apply(s, b); err != nil {
					t.Fatal(err)
				}
			}
			bytes, err := frozen.Encode()
			if err != nil {
				t.Fatal(err)
			}
			read := 0
			back, err := conversation.Restore(frozen.Seq(), bytes, reader(d.records, &read))
			if err != nil {
				t.Fatalf("snapshot at %d: %v", at, err)
			}
			for _, b := range d.records[at:] {
				if err := apply(back, b); err != nil {
					t.Fatalf("tail after %d: %v", at, err)
				}
			}
			if diff := conversation.Difference(whole, back); diff != "" {
				t.Fatalf("snapshot at %d of %d: %s", at, len(d.records), diff)
			}
			if fingerprint(back) != fingerprint(whole) {
				t.Fatalf("snapshot at %d says\n%s\nwhole\n%s", at, fingerprint(back), fingerprint(whole))
			}
		}
	})
}

// TestADamagedSnapshotIsRefusedAndNeverPanics flips, cuts and adds bytes.
func TestADamagedSnapshotIsRefusedAndNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(t)
		d.large = true
		d.run(40)
		live, err := foldLive(d.records)
		if err != nil {
			t.Fatal(err)
		}
		good, err := live.Freeze().Encode()
		if err != nil {
			t.Fatal(err)
		}
		bad := append([]byte(nil), good...)
		for range rapid.IntRange(1, 8).Draw(t, "damages") {
			at := rapid.IntRange(0, len(bad)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				bad[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
			case 1:
				bad = bad[:at+1]
			case 2:
				bad = append(bad[:at:at], append([]byte{byte(at)}, bad[at:]...)...)
			}
		}
		if rapid.Bool().Draw(t, "sealed again") { // the sum finds all but what was damaged before
			bad = conversation.Sealed(bad)
		}
		read := 0
		s, err := conversation.Restore(uint64(len(d.records)), bad, reader(d.records, &read))
		if err != nil {
			return
		}
		_ = fingerprint(s) // what still decodes may say something else, and holds together
		for _, f := range []proto.Message{&messages.TurnCompleted{}, &messages.ToolFinished{}, &messages.InputAccepted{InputId: "new"}} {
			_ = s.ApplyFact(f, &messages.Record{})
		}
	})
}

func TestASnapshotHoldsALargeTextOnlyAsTheNumberOfItsRecord(t *testing.T) {
	j := newJournal()
	j.s = conversation.Live()
	big := func(name string) string { return name + strings.Repeat("0123456789abcdef", 4<<10) }
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1", Copied: []*messages.Turn{{Messages: []*messages.ChatMessage{
		{Role: "user", Content: big("copied")}, {Role: "assistant", Content: big("copied answer")},
	}}}},
		&messages.InputAccepted{InputId: "i1", Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: big("input")}}}},
		&messages.TurnStarted{TurnId: "t1", InputIds: []string{"i1"}},
		&messages.GenerationStarted{GenId: "g1", Step: 1},
		&messages.GenerationCompleted{GenId: "g1", FinishReason: "tool_calls", ToolCalls: []*messages.ToolCall{{Id: "c", Name: "write_file", Arguments: big("arguments")}}},
		&messages.ToolPlanned{ExecId: "e1", CallId: "c", Tool: "write_file"},
		&messages.ToolDispatched{ExecId: "e1"},
		&messages.ToolFinished{ExecId: "e1", CallId: "c", Content: big("result")},
		&messages.GenerationStarted{GenId: "g2", Step: 2},
		&messages.GenerationCompleted{GenId: "g2", FinishReason: "stop", Content: big("answer")},
		&messages.TurnCompleted{TurnId: "t1", Outcome: messages.TurnCompleted_DONE, FinalSeq: 10})
	b, err := j.s.Freeze().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 2<<10 || strings.Contains(string(b), "0123456789abcdef") {
		t.Errorf("the snapshot has %d bytes", len(b))
	}
	read := 0
	back, err := conversation.Restore(j.s.Seq(), b, reader(j.records, &read))
	if err != nil {
		t.Fatal(err)
	}
	if diff := conversation.Difference(j.s, back); diff != "" {
		t.Error(diff)
	}
	if read != 5 {
		t.Errorf("%d records were read for the texts of 5", read)
	}
	for name, s := range map[string]*conversation.State{"folded": j.s, "restored": back} {
		h, calls := s.History().GetTurns(), s.Last().AllCalls
		result := h[len(h)-1].GetMessages()[2].GetContent()
		if unsafe.StringData(result) != unsafe.StringData(calls[0].Finished.GetContent()) {
			t.Errorf("%s: a result is in memory twice", name)
		}
		if unsafe.StringData(h[1].GetMessages()[1].GetToolCalls()[0].GetArguments()) != unsafe.StringData(calls[0].Arguments) {
			t.Errorf("%s: the arguments of a call are in memory twice", name)
		}
	}
}

// TestWhatHadArrivedOfAnAnswerIsThereUntilTheNextOneBegins also in a snapshot, and the model is never asked with it.
func TestWhatHadArrivedOfAnAnswerIsThereUntilTheNextOneBegins(t *testing.T) {
	for name, text := range map[string]string{"small": "half", "large": strings.Repeat("0123456789abcdef", 4<<10)} {
		for next, f := range map[string]proto.Message{
			"again": &messages.GenerationStarted{GenId: "g2", Step: 1, Attempt: 2}, "end": &messages.TurnCompleted{TurnId: "t1", Outcome: messages.TurnCompleted_ABORTED},
			"answer": &messages.GenerationCompleted{GenId: "g1", FinishReason: "stop", Content: "whole"},
		} {
			j := newJournal()
			j.s = conversation.Live()
			mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1"}, &messages.InputAccepted{InputId: "i1", Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "go"}}}},
				&messages.TurnStarted{TurnId: "t1", InputIds: []string{"i1"}}, &messages.Suspended{Text: "of no answer"}, &messages.GenerationStarted{GenId: "g1", Step: 1, Attempt: 1})
			if j.s.Turn().Suspended != nil {
				t.Errorf("%s: the turn has %v before its first answer", name, j.s.Turn().Suspended)
			}
			before := rendered(t, j.s)
			mustWrite(t, j, &messages.Suspended{Text: text}, &messages.Activated{Epoch: 2}, &messages.Suspended{}) // it was stopped again before it could ask
			if got := j.s.Turn().Suspended.GetText(); got != text || rendered(t, j.s) != before {
				t.Errorf("%s: the turn has %d bytes, and is asked as %s", name, len(got), rendered(t, j.s))
			}
			b, err := j.s.Freeze().Encode()
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 2<<10 {
				t.Errorf("%s: the snapshot has %d bytes", name, len(b))
			}
			read := 0
			back, err := conversation.Restore(j.s.Seq(), b, reader(j.records, &read))
			if err != nil {
				t.Fatal(err)
			}
			if diff := conversation.Difference(j.s, back); diff != "" || back.Turn().Suspended.GetText() != text || (read > 0) != (name == "large") {
				t.Errorf("%s: restored after %d records were read: %s", name, read, diff)
			}
			mustWrite(t, j, f)
			for _, turn := range []*conversation.Turn{j.s.Turn(), j.s.Last()} {
				if turn != nil && turn.Suspended != nil {
					t.Errorf("%s, %s: it is there still", name, next)
				}
			}
		}
	}
}

func rendered(t *testing.T, s *conversation.State) string {
	t.Helper()
	ready, ok := s.Ready()
	if !ok {
		t.Fatal("it is not ready")
	}
	return promptText(ready.Render("s"))
}

func TestASnapshotWhoseRecordsAreGoneIsRefused(t *testing.T) {
	j := newJournal()
	j.s = conversation.Live()
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1"},
		&messages.InputAccepted{InputId: "i1", Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: strings.Repeat("x", 100<<10)}}}})
	b, err := j.s.Freeze().Encode()
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	if _, err := conversation.Restore(2, b, func(uint64) (proto.Message, error) { return nil, gone }); !errors.Is(err, gone) {
		t.Errorf("restored without its text: %v", err)
	}
	other := func(uint64) (proto.Message, error) { return &messages.Closed{}, nil }
	if _, err := conversation.Restore(2, b, other); !errors.Is(err, conversation.ErrIllegal) {
		t.Errorf("restored from a record of another type: %v", err)
	}
	if _, err := conversation.Restore(2, conversation.Sealed(make([]byte, 4)), other); !errors.Is(err, conversation.ErrIllegal) {
		t.Errorf("restored from nothing: %v", err)
	}
}
