package actors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// TestASummariserThatNeverWorksLeavesRoomForTheConversation drops turns again and again: what says so must not fill the window itself.
func TestASummariserThatNeverWorksLeavesRoomForTheConversation(t *testing.T) {
	const window, turns = 1500, 120
	q := &requests{}
	h := actortest.New(t, actortest.Options{Agents: plain(), Models: windowed{q.summing(func() actortest.Reply {
		return actortest.Reply{Err: &model.Error{Class: model.BadRequest, Message: "no thanks"}}
	}), window}})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range turns {
		if r := h.Run(session, prompt(i)); r.GetOutcome() != messages.TurnCompleted_DONE {
			t.Fatalf("turn %d: %v", i, r)
		}
	}
	var dropped uint32
	compacted := actortest.Of[*messages.HistoryCompacted](h.Facts(worker))
	for _, f := range compacted {
		dropped += f.GetTurns()
	}
	ms := q.last().Prompt.Messages
	says := fmt.Sprintf("(%d older turns of this conversation", dropped)
	if text := ms[1].Text; len(compacted) < 15 || q.largest > window || strings.Count(text, "no longer here") != 1 || !strings.HasPrefix(text, says) {
		t.Errorf("%d compactions, the largest request has %d tokens, the last one says %q instead of %q", len(compacted), q.largest, text, says)
	}
}

// TestASummaryLeavesRoomForTheTurnsThatFollow has a model whose summaries are a little longer each time, and always shorter than what they replace.
func TestASummaryLeavesRoomForTheTurnsThatFollow(t *testing.T) {
	const window, turns = 3000, 60
	q, words := &requests{}, 400
	h := actortest.New(t, actortest.Options{Agents: plain(), Models: windowed{q.summing(func() actortest.Reply {
		words += 60
		return actortest.Reply{Text: strings.Repeat("gist ", words)}
	}), window}})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range turns {
		if r := h.Run(session, prompt(i)); r.GetOutcome() != messages.TurnCompleted_DONE {
			t.Fatalf("turn %d: %v", i, r)
		}
	}
	compacted, cut := actortest.Of[*messages.HistoryCompacted](h.Facts(worker)), 0
	for i, f := range compacted {
		if n := conversation.EstimateTokens(f.GetSummary()); n > window/3 {
			t.Errorf("what stands for the turns of compaction %d has %d tokens", i, n)
		}
		if strings.HasSuffix(f.GetSummary(), "(The summary was cut here.)") {
			cut++
		}
	}
	if cut == 0 || q.largest > window {
		t.Errorf("%d of %d summaries were cut, the largest request has %d tokens", cut, len(compacted), q.largest)
	}
}

// TestAPromptThatCannotFitCostsNoTurns is larger than the window by itself: dropping or summarising what was said would not help it.
func TestAPromptThatCannotFitCostsNoTurns(t *testing.T) {
	q := &requests{}
	h := actortest.New(t, actortest.Options{Agents: plain(), Models: windowed{q.summing(func() actortest.Reply { return actortest.Reply{} }), 3000}})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range 3 {
		h.Run(session, prompt(i))
	}
	r := h.Run(session, strings.Repeat("far too much ", 4000))
	if _, summaries := q.counts(); r.GetOutcome() != messages.TurnCompleted_LIMIT || r.GetErrorCode() != conversation.ContextLength || summaries != 0 {
		t.Errorf("%v; %d summaries were asked for", r, summaries)
	}
	if f := actortest.Of[*messages.HistoryCompacted](h.Facts(worker)); len(f) != 0 {
		t.Errorf("turns went for nothing: %v", f)
	}
	if r := h.Run(session, prompt(4)); r.GetOutcome() != messages.TurnCompleted_DONE || q.largest > 3000 {
		t.Errorf("the next one: %v; the largest request has %d tokens", r, q.largest)
	}
}

// TestWhatIsShorterThanANoteIsNotDropped has one short turn before a prompt that comes near to the window.
func TestWhatIsShorterThanANoteIsNotDropped(t *testing.T) {
	q := &requests{}
	h := actortest.New(t, actortest.Options{Agents: plain(), Models: windowed{q.summing(func() actortest.Reply { return actortest.Reply{Text: "the gist of a short turn in many words"} }), 3000}})
	session, worker := h.Create(&messages.CreateSession{})
	h.Run(session, "a short one")
	r := h.Run(session, strings.Repeat("word ", 2300))
	if f := actortest.Of[*messages.HistoryCompacted](h.Facts(worker)); r.GetOutcome() != messages.TurnCompleted_DONE || len(f) != 0 {
		t.Errorf("%v, %v", r, f)
	}
}

// TestASystemPromptLargerThanTheWindowIsNamedAndKeepsTheConversation asks a model that cannot even be told who it is.
func TestASystemPromptLargerThanTheWindowIsNamedAndKeepsTheConversation(t *testing.T) {
	q := &requests{}
	agents := []actors.Agent{{Name: actors.DefaultAgent, System: strings.Repeat("be good ", 2000)}}
	h := actortest.New(t, actortest.Options{Agents: agents, Models: windowed{q.summing(func() actortest.Reply { return actortest.Reply{Text: "the gist"} }), 500}})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range 3 {
		if r := h.Run(session, prompt(i)); r.GetOutcome() != messages.TurnCompleted_LIMIT || r.GetErrorCode() != conversation.ContextLength || !strings.Contains(r.GetReason(), "takes 500") {
			t.Errorf("turn %d: %v", i, r)
		}
	}
	if turns, summaries := q.counts(); turns+summaries != 0 || len(actortest.Of[*messages.HistoryCompacted](h.Facts(worker))) != 0 {
		t.Errorf("the model was asked %d times, and %d times for a summary", turns, summaries)
	}
}
