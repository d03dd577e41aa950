package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// told are the results of a request that the runtime has added its own word to.
func told(r *model.Request) (n int) {
	for _, m := range r.Prompt.Messages {
		if m.Role == messages.ToolRole && strings.Contains(m.Text, "Note of the runtime") {
			n++
		}
	}
	return n
}

func TestAModelThatGoesInCirclesIsToldOnceAndThenTheTurnIsStuck(t *testing.T) {
	asked, heard := 0, 0
	h := actortest.New(t, actortest.Options{Limits: actors.Limits{Repeats: 5}, Model: actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		asked++
		heard = told(r)
		return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call(fmt.Sprint(asked), "list_files", `{}`)}}
	})})
	s, w := h.Create(&messages.CreateSession{})
	res := h.Run(s, "go")
	if res.GetOutcome() != messages.TurnCompleted_STUCK || asked != 5 || heard != 1 || !strings.Contains(res.GetReason(), "list_files was called 5 times") {
		t.Errorf("after %d requests, %d notes: %v", asked, heard, res)
	}
	for i, f := range actortest.Of[*messages.ToolFinished](h.Facts(w)) {
		if noted := f.GetNudge() != ""; noted != (i == 2) || strings.Contains(f.GetContent(), "Note of") {
			t.Errorf("result %d: %v", i+1, f)
		}
	}
}

func TestAModelThatHeedsTheNoteGoesOn(t *testing.T) {
	h := actortest.New(t, actortest.Options{Limits: actors.Limits{Repeats: 5}, Model: actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		if told(r) > 0 {
			return actortest.Reply{Text: "I see"}
		}
		return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("1", "nowhere", `{}`)}}
	})})
	s, _ := h.Create(&messages.CreateSession{})
	if res := h.Run(s, "go"); res.GetOutcome() != messages.TurnCompleted_DONE || res.GetText() != "I see" {
		t.Errorf("the turn: %v", res)
	}
}
