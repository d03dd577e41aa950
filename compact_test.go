package troupe_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

func TestAProgramCompactsAConversationAndItsHistoryStaysWhole(t *testing.T) {
	var last *model.Request
	rt, ctx := runtimeOf(t, troupe.Options{Model: say(func(req *model.Request) (string, []*messages.ToolCall) {
		if req.Agent == actors.CompactionAgent {
			if text := req.Prompt.Messages[0].Text; !strings.Contains(text, "[user]\nquestion") || len(req.Tools) > 0 {
				t.Errorf("asked to summarise %q with %d tools", text, len(req.Tools))
			}
			return "we talked", nil
		}
		last = req
		return strings.Repeat("a long answer ", 20), nil
	})})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := s.Run(ctx, "question"); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.Compact(ctx)
	if err != nil || c.UptoSeq == 0 || c.Fallback || c.TokensAfter >= c.TokensBefore {
		t.Fatalf("%+v, %v", c, err)
	}
	h, err := s.History(ctx)
	if err != nil || len(h.GetTurns()) != 5 || h.GetSummary() != "we talked" || !h.GetTurns()[0].GetCompacted() {
		t.Errorf("%v, %v", h, err)
	}
	if _, err := s.Run(ctx, "question"); err != nil {
		t.Fatal(err)
	}
	if ms := last.Prompt.Messages; ms[1].Text != "we talked" || len(ms) >= 11 {
		t.Errorf("%d messages are sent", len(ms))
	}
	// The conversation as a value is the whole of it, too.
	whole, err := s.Conversation(ctx)
	if err != nil || len(whole.Turns) != 6 {
		t.Errorf("%v, %v", whole, err)
	}
}
