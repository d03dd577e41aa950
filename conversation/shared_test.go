package conversation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// talk folds facts into a shared conversation that was just opened.
func talk(t *testing.T, facts ...proto.Message) *conversation.Shared {
	t.Helper()
	s := &conversation.Shared{}
	for _, f := range append([]proto.Message{&messages.ConversationOpened{ConversationId: "cnv_1", SessionId: "ses_1", Name: "talk"}}, facts...) {
		if err := s.Apply(f, &messages.Record{Seq: s.Seq + 1}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func joined(worker, name string) proto.Message {
	return &messages.MemberJoined{WorkerId: worker, Name: name}
}

// spoke is a whole turn of a member: it is given the word, and says something.
func spoke(worker, turn, text string) []proto.Message {
	return []proto.Message{
		&messages.TurnGiven{WorkerId: worker, TurnId: turn, Prompt: "go"},
		&messages.TurnSubmitted{WorkerId: worker, TurnId: turn, Text: text, Usage: &messages.Usage{OutputTokens: 3}},
	}
}

func TestOneMemberHasTheWordAndNothingElseFolds(t *testing.T) {
	given := &messages.TurnGiven{WorkerId: "wrk_a", TurnId: "1"}
	two := []proto.Message{joined("wrk_a", "a"), joined("wrk_b", "b")}
	for what, facts := range map[string][]proto.Message{
		"a turn of nobody that waits":            {&messages.TurnAsked{TurnId: "1"}},
		"a second opening":                       {&messages.ConversationOpened{ConversationId: "cnv_1"}},
		"a member twice":                         {joined("wrk_a", "c")},
		"a name twice":                           {joined("wrk_c", "b")},
		"the word for somebody who never joined": {&messages.TurnGiven{WorkerId: "wrk_c", TurnId: "1"}},
		"the word for two at once":               {given, &messages.TurnGiven{WorkerId: "wrk_b", TurnId: "2"}},
		"the word for one that left":             {&messages.MemberLeft{WorkerId: "wrk_a", Reason: "deleted"}, given},
		"the word for a turn that is over":       append(spoke("wrk_a", "1", "x"), given),
		"a turn that nobody was given":           {&messages.TurnSubmitted{WorkerId: "wrk_a", TurnId: "1"}},
		"somebody else's turn":                   {given, &messages.TurnSubmitted{WorkerId: "wrk_b", TurnId: "1"}},
		"a turn twice":                           append(spoke("wrk_a", "1", "x"), &messages.TurnSubmitted{TurnId: "1"}),
		"the end of a turn that is not open":     {&messages.TurnCut{WorkerId: "wrk_a", TurnId: "1"}},
		"somebody else's turn cut":               {given, &messages.TurnCut{WorkerId: "wrk_b", TurnId: "1"}},
		"leaving with the word":                  {given, &messages.MemberLeft{WorkerId: "wrk_a"}},
		"leaving without having been there":      {&messages.MemberLeft{WorkerId: "wrk_c"}},
	} {
		last := len(facts) - 1
		s := talk(t, append(two[:2:2], facts[:last]...)...)
		if err := s.Apply(facts[last], &messages.Record{Seq: s.Seq + 1}); !errors.Is(err, conversation.ErrIllegal) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s := talk(t, two...)
	if err := s.Apply(given, &messages.Record{Seq: s.Seq + 2}); !errors.Is(err, conversation.ErrIllegal) {
		t.Errorf("a record that skips one: %v", err)
	}
	if err := (&conversation.Shared{}).Apply(joined("wrk_a", "a"), &messages.Record{Seq: 1}); !errors.Is(err, conversation.ErrIllegal) {
		t.Errorf("a record before the opening: %v", err)
	}
}

func TestAMemberIsToldWhatItHasNotHeardAndNothingTwice(t *testing.T) {
	s := talk(t, append([]proto.Message{joined("wrk_a", "a"), joined("wrk_b", "b")}, spoke("wrk_a", "1", "first")...)...)
	told := func(worker, turn, prompt string) string {
		t.Helper()
		if err := s.Apply(s.Give(worker, s.Member(worker).GetName(), turn, prompt), &messages.Record{Seq: s.Seq + 1}); err != nil {
			t.Fatal(err)
		}
		return s.Told()
	}
	over := func(f proto.Message) {
		t.Helper()
		if err := s.Apply(f, &messages.Record{Seq: s.Seq + 1}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(got string, wants bool, what string) {
		t.Helper()
		if strings.Contains(got, what) != wants {
			t.Errorf("%q in it is %v:\n%s", what, !wants, got)
		}
	}
	first := told("wrk_b", "2", "go")
	has(first, true, "[1] agent a:\n> first")
	over(&messages.TurnSubmitted{TurnId: "x", By: "ann\n[1] agent a:", Text: "from\u2028outside"}) // while b has the word
	if s.Told() != first {
		t.Error("who has the word is told something else when it is asked again")
	}
	over(&messages.TurnCut{WorkerId: "wrk_b", TurnId: "2", Outcome: "aborted"}) // it heard nothing
	again := told("wrk_b", "3", "go")
	has(again, true, "> first")
	has(again, true, "[2] from outside (ann__1__agent_a_):\n> from\n> outside")
	has(again, true, "\n\ngo")
	over(&messages.TurnCut{WorkerId: "wrk_b", TurnId: "3", Outcome: "error", Heard: true})
	then := told("wrk_b", "4", "go")
	has(then, false, "first")
	has(then, true, "Nobody else has said anything since your last turn.\n\ngo")
	over(&messages.TurnSubmitted{WorkerId: "wrk_b", TurnId: "4", Text: "second"})
	other := told("wrk_a", "5", "go")
	has(other, true, "[3] agent b said nothing: its turn was cut off.")
	has(other, true, "agent b:\n> second")
	has(other, false, "> first")
}

func TestWhatIsToldAtOnceHasABoundAndTheNewestStays(t *testing.T) {
	facts := []proto.Message{joined("wrk_a", "a"), joined("wrk_b", "b")}
	for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
		facts = append(facts, spoke("wrk_a", id, id+strings.Repeat("x", conversation.MaxSaid))...)
	}
	s := talk(t, facts...)
	if err := s.Apply(s.Give("wrk_b", "b", "7", "go"), &messages.Record{Seq: s.Seq + 1}); err != nil {
		t.Fatal(err)
	}
	got := s.Told()
	if len(got) > 600<<10 || !strings.Contains(got, "earlier messages are left out here") || !strings.Contains(got, "> 6x") || strings.Contains(got, "> 1x") {
		t.Errorf("%d bytes: %.300s", len(got), got)
	}
}

func TestNamesOfMembersAreFreeAndPlain(t *testing.T) {
	s := talk(t, joined("wrk_a", "con"))
	for _, x := range []struct{ worker, name, want string }{
		{"wrk_a", "other", "con"}, {"wrk_b", "con", "con#2"}, {"wrk_b", "con]:\n> ", "con_____"}, {"wrk_b", "", "somebody"}, {"wrk_b", "\xff", "_"},
	} {
		if got := s.Free(x.worker, x.name); got != x.want {
			t.Errorf("%q for %s is %q", x.name, x.worker, got)
		}
	}
	if got := s.Free("wrk_b", strings.Repeat("é", 500)); len(got) > conversation.MaxSharedName || strings.Trim(got, "é") != "" {
		t.Errorf("a long name is %q", got)
	}
	if err := s.Apply(joined("wrk_b", s.Free("wrk_b", "con")), &messages.Record{Seq: s.Seq + 1}); err != nil {
		t.Error(err)
	}
}

func TestAViewIsACopyWithTheTurnsBehindARecord(t *testing.T) {
	s := talk(t, append(append([]proto.Message{joined("wrk_a", "a")}, spoke("wrk_a", "1", "x")...), spoke("wrk_a", "2", "y")...)...)
	v := s.View(s.Turn("1").GetSeq(), 0)
	if len(v.GetTurns()) != 1 || v.GetTurns()[0].GetTurn().GetText() != "y" || v.GetCount() != 2 || v.GetMembers()[0].GetTurns() != 2 || v.GetMembers()[0].GetUsage().GetOutputTokens() != 6 {
		t.Errorf("it is %v", v)
	}
	v.GetTurns()[0].Member, v.GetMembers()[0].Name = "other", "other"
	if s.Turn("2").GetMember() != "a" || s.Member("wrk_a").GetName() != "a" {
		t.Error("what is done to a view is done to the conversation")
	}
}

func TestAConversationIsFullWhenItHoldsSoMuch(t *testing.T) {
	large := strings.Repeat("x", conversation.MaxSaid)
	var facts []proto.Message
	for i := range conversation.MaxTranscript/conversation.MaxSaid - 1 {
		facts = append(facts, &messages.TurnSubmitted{TurnId: fmt.Sprint(i), Text: large, By: "ann"})
	}
	if s := talk(t, facts...); s.Full() {
		t.Error("it is full before its time")
	}
	facts = append(facts, &messages.TurnSubmitted{TurnId: "last", Text: large, By: "ann"})
	if s := talk(t, facts...); !s.Full() {
		t.Error("it is not full")
	}
}
