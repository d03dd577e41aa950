package actors_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

// accepted asks for a turn without waiting for its end.
func accepted(worker, turn, member string) *messages.TakeTurn {
	m := turnOf(worker, turn, member)
	m.Accept = true
	return m
}

func TestATurnThatWaitsIsDurableAndTakenBackForGood(t *testing.T) {
	gate, m := slowMember()
	h := actortest.New(t, actortest.Options{Model: m})
	s, w, id := talkers(h)
	watch := h.Watch(s)
	if a := actortest.Ask[*messages.TurnAccepted](h, s, accepted(w[1], "inp_slow", "slow")); a.GetDuplicate() || a.GetConversationId() != id || a.GetWorkerId() != w[1] {
		t.Errorf("accepted: %v", a)
	}
	actortest.Wait(t, "the slow one's request", gate.Came)
	for _, turn := range []string{"inp_two", "inp_three", "inp_two"} {
		a := actortest.Ask[*messages.TurnAccepted](h, s, accepted(w[2], turn, "next"))
		if a.GetTurnId() != turn {
			t.Errorf("accepted: %v", a)
		}
	}
	if a := actortest.Ask[*messages.TurnAccepted](h, s, accepted(w[1], "inp_slow", "slow")); !a.GetDuplicate() {
		t.Error("the turn that has the word was accepted anew")
	}
	v := readTalk(h, s)
	if v.GetSpeaking() != w[1] || v.GetWaiting() != 2 || len(v.GetQueue()) != 2 || v.GetQueue()[0].GetTurnId() != "inp_two" || v.GetQueue()[1].GetTurnId() != "inp_three" {
		t.Errorf("while one speaks: %v", v)
	}
	if now := time.Now().UnixMilli(); v.GetSpeakingSinceUnixMs() == 0 || v.GetSpeakingSinceUnixMs() > v.GetQueue()[0].GetAtUnixMs() || v.GetQueue()[1].GetAtUnixMs() > now {
		t.Errorf("since when: %v", v)
	}
	if n := actortest.Ask[*messages.JobCount](h, s, &messages.CountJobs{}); n.GetRunning() != 1 || n.GetWaiting() != 2 {
		t.Errorf("counted: %v", n)
	}
	listed, err := actors.SharedConversations(t.Context(), h.Store, s)
	if err != nil || len(listed) != 1 || listed[0].GetWaiting() != 2 || listed[0].GetSpeaking() != w[1] {
		t.Errorf("listed as %v, %v", listed, err)
	}
	waits := actortest.Later[*messages.TurnResult](h, s, &messages.AwaitSharedTurn{Name: id, TurnId: "inp_two"})
	actortest.Ask[*messages.Ack](h, s, &messages.WithdrawTurn{Name: "talk", TurnId: "inp_two", By: "ann", Reason: "enough"})
	if a := actortest.Wait(t, "the end of a turn that was taken back", waits); actortest.Code(a.Err) != messages.CodeWithdrawn {
		t.Errorf("a turn that was taken back: %v, %v", a.Reply, a.Err)
	}
	for _, again := range []proto.Message{turnOf(w[2], "inp_two", "next"), accepted(w[2], "inp_two", "next"), &messages.AwaitSharedTurn{Name: "talk", TurnId: "inp_two"}} {
		if _, err := actortest.Try[proto.Message](h, s, again); actortest.Code(err) != messages.CodeWithdrawn {
			t.Errorf("asked for again after it was taken back: %T: %v", again, err)
		}
	}
	actortest.Ask[*messages.Ack](h, s, &messages.WithdrawTurn{Name: "talk", TurnId: "inp_two"})
	gate.Open()
	for _, turn := range []string{"inp_slow", "inp_three"} {
		if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitSharedTurn{Name: "talk", TurnId: turn}); r.GetText() != "yes" {
			t.Errorf("%s came to %v", turn, r)
		}
	}
	for turn, code := range map[string]string{"inp_three": messages.CodeCommitted, "inp_none": messages.CodeNotFound} {
		if _, err := actortest.Try[*messages.Ack](h, s, &messages.WithdrawTurn{Name: "talk", TurnId: turn}); actortest.Code(err) != code {
			t.Errorf("%s is taken back: %v, want %s", turn, err, code)
		}
	}
	if _, err := actortest.Try[*messages.TurnResult](h, s, &messages.AwaitSharedTurn{Name: "talk", TurnId: "inp_none"}); actortest.Code(err) != messages.CodeNotFound {
		t.Errorf("a turn that nobody asked for: %v", err)
	}
	if got := strings.Join(said(readTalk(h, s)), "; "); got != "slow: yes; next: yes" {
		t.Errorf("the transcript is %s", got)
	}
	actortest.Ask[*messages.SharedTurn](h, s, &messages.SubmitTurn{Name: "talk", TurnId: "inp_word", Text: "thanks", By: "ann"})
	seen := watch.Until(messages.EventConversationSaid)
	for !slices.ContainsFunc(seen, func(e *messages.Event) bool { return e.GetText() == "thanks" }) {
		seen = append(seen, watch.Until(messages.EventConversationSaid)...)
	}
	var told []string
	for _, e := range seen {
		if strings.HasPrefix(e.GetType(), "conversation.") {
			if e.GetSeq() == 0 || e.GetConversation() != id || e.GetSession() != s {
				t.Errorf("event %v", e)
			}
			told = append(told, strings.TrimPrefix(e.GetType(), "conversation.")+" "+e.GetMember()+e.GetBy()+" "+e.GetInputId())
		}
	}
	want := "joined slow ;given slow inp_slow;asked  inp_two;asked  inp_three;withdrawn ann inp_two;said slow inp_slow;joined next ;given next inp_three;said next inp_three;said ann inp_word"
	if got := strings.Join(told, ";"); got != want {
		t.Errorf("told was\n%s\nwant\n%s", got, want)
	}
}

func TestATurnThatHasTheWordIsEndedWhenItIsTakenBack(t *testing.T) {
	k := whileSlowSpeaks(t, actors.Limits{})
	h, s := k.h, k.s
	actortest.Ask[*messages.Ack](h, s, &messages.WithdrawTurn{Name: "talk", TurnId: "inp_slow", Reason: "enough"})
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitSharedTurn{Name: "talk", TurnId: "inp_slow"}); r.GetOutcome() != messages.TurnCompleted_ABORTED {
		t.Errorf("it came to %v", r)
	}
	if got := strings.Join(said(readTalk(h, s)), "; "); got != "slow cut abortedcancelled" {
		t.Errorf("the transcript is %s", got)
	}
}

func TestTurnsOfAConversationAreBounded(t *testing.T) {
	k := whileSlowSpeaks(t, actors.Limits{Queue: 1, Spoken: 3})
	h, s, w, gate := k.h, k.s, k.w, k.gate
	actortest.Ask[*messages.TurnAccepted](h, s, accepted(w[2], "inp_2", "next"))
	_, err := actortest.Try[*messages.TurnAccepted](h, s, accepted(w[2], "inp_3", "next"))
	var f *messages.Failure
	if !errors.As(err, &f) || f.GetCode() != messages.CodeBusy || f.GetRetryAfterMs() == 0 || !strings.Contains(f.GetHint(), "limits.queue") {
		t.Errorf("one more than may wait: %v", err)
	}
	actortest.Ask[*messages.TurnAccepted](h, s, accepted(w[2], "inp_2", "next")) // the same again is none more
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitSharedTurn{Name: "talk", TurnId: "inp_2"}); r.GetText() != "yes" {
		t.Errorf("it came to %v", r)
	}
	actortest.Ask[*messages.SharedTurn](h, s, &messages.SubmitTurn{Name: "talk", TurnId: "inp_word", Text: "mine", By: "ann"})
	for _, m := range []proto.Message{accepted(w[0], "inp_4", "first"), &messages.SubmitTurn{Name: "talk", Text: "more", By: "ann"}} {
		if _, err := actortest.Try[proto.Message](h, s, m); !errors.As(err, &f) || f.GetCode() != messages.CodeTooLarge || !strings.Contains(f.GetHint(), "limits.spoken") {
			t.Errorf("%T beyond the limit: %v", m, err)
		}
	}
	if t2 := actortest.Ask[*messages.SharedTurn](h, s, &messages.SubmitTurn{Name: "talk", TurnId: "inp_word", Text: "mine", By: "ann"}); t2.GetNumber() != 3 {
		t.Errorf("the same word again: %v", t2)
	}
	if got := len(readTalk(h, s).GetTurns()); got != 3 {
		t.Errorf("there are %d turns", got)
	}
}

func TestNoMoreThanAThousandTurnsWaitWhereNobodySaysHowMany(t *testing.T) {
	k := whileSlowSpeaks(t, actors.Limits{})
	for n := range 1000 {
		actortest.Ask[*messages.TurnAccepted](k.h, k.s, accepted(k.w[2], fmt.Sprint("inp_", n), "next"))
	}
	if _, err := actortest.Try[*messages.TurnAccepted](k.h, k.s, accepted(k.w[2], "inp_more", "next")); actortest.Code(err) != messages.CodeBusy {
		t.Errorf("one more: %v", err)
	}
}

// I10: what could not be written is answered, too.
func TestWhoAsksForATurnThatCannotBeWrittenIsTold(t *testing.T) {
	k := whileSlowSpeaks(t, actors.Limits{})
	h, s, w, store, gate := k.h, k.s, k.w, k.store, k.gate
	store.Refuse(func(f proto.Message) error {
		switch f.(type) {
		case *messages.TurnAsked, *messages.TurnSubmitted:
			return errors.New("no room")
		}
		return nil
	})
	for _, m := range []proto.Message{accepted(w[2], "inp_2", "next"), &messages.SubmitTurn{Name: "talk", TurnId: "inp_word", Text: "mine", By: "ann"}, turnOf(w[2], "inp_3", "next")} {
		if _, err := actortest.Try[proto.Message](h, s, m); actortest.Code(err) != messages.CodeUnavailable { // also what comes while that is noticed
			t.Errorf("%T: %v", m, err)
		}
	}
	store.Refuse(nil)
	if _, err := again[*messages.TurnAccepted](t, h, s, accepted(w[2], "inp_2", "next")); err != nil {
		t.Error(err)
	}
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitSharedTurn{Name: "talk", TurnId: "inp_2"}); r.GetText() != "yes" {
		t.Errorf("it came to %v", r)
	}
}

// A turn whose worker is done is not over before it is written down, and whoever asked for it is answered.
func TestASessionIsIdleWhenNobodyHasOrWantsTheWord(t *testing.T) {
	k := whileSlowSpeaks(t, actors.Limits{})
	h, s, w, store, gate := k.h, k.s, k.w, k.store, k.gate
	var refused atomic.Bool
	store.Refuse(func(f proto.Message) error {
		if said, is := f.(*messages.TurnSubmitted); is && said.GetTurnId() == "inp_slow" && !refused.Swap(true) {
			return errors.New("no room") // the conversation begins anew, and writes it down then
		}
		return nil
	})
	gate.Open()
	actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: w[1], InputId: "inp_slow"})
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	if got := strings.Join(said(readTalk(h, s)), "; "); got != "slow: yes" || !refused.Load() {
		t.Errorf("the session is idle, and the transcript is %q", got)
	}
}

func TestATranscriptIsReadInPages(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	s, _, _ := talkers(h)
	large := strings.Repeat("x", 128<<10)
	for i := range 40 {
		text := "short"
		if i >= 4 {
			text = large
		}
		actortest.Ask[*messages.SharedTurn](h, s, &messages.SubmitTurn{Name: "talk", Text: text, By: "ann"})
	}
	var sizes []int
	next, last := uint64(0), int32(0)
	for {
		v := actortest.Ask[*messages.SharedConversation](h, s, &messages.ReadConversation{Name: "talk", After: next, Limit: 34})
		sizes = append(sizes, len(v.GetTurns()))
		for _, turn := range v.GetTurns() {
			if turn.GetNumber() != last+1 {
				t.Fatalf("turn %d follows %d", turn.GetNumber(), last)
			}
			last = turn.GetNumber()
		}
		if next = v.GetNext(); next == 0 {
			break
		}
	}
	if !slices.Equal(sizes, []int{34, 6}) {
		t.Errorf("by turns the pages have %v", sizes)
	}
	v := actortest.Ask[*messages.SharedConversation](h, s, &messages.ReadConversation{Name: "talk", Limit: 1000})
	if n := len(v.GetTurns()); n != 4+31 || v.GetNext() != v.GetTurns()[n-1].GetSeq() {
		t.Errorf("by size the first page has %d turns, and the next begins after %d", n, v.GetNext())
	}
}
