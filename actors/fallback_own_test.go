package actors_test

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// failsOnce is a model that fails so, then answers.
func failsOnce(class model.Class) actortest.Model {
	calls := 0 // one at a time
	return func(context.Context, *model.Request) actortest.Reply {
		if calls++; calls == 1 {
			return actortest.Reply{Err: &model.Error{Class: class, Message: "it fails"}}
		}
		return actortest.Reply{Text: "my own"}
	}
}

// TestAStandInThatRefusesForItselfLeavesTheTurnToTheOwnModel has a pause at the own model, which the turn lives through without a stand-in, too.
func TestAStandInThatRefusesForItselfLeavesTheTurnToTheOwnModel(t *testing.T) {
	for _, class := range []model.Class{model.Auth, model.NotFound, model.BadRequest, model.ContextLength} {
		h := actortest.New(t, actortest.Options{
			Models: several{"first": failsOnce(model.Overloaded), "second": fails(class)},
			Agents: []actors.Agent{{Name: "careful", Model: "first", Fallback: []string{"second"}}},
		})
		s, w := h.Create(&messages.CreateSession{Agent: "careful"})
		if r := h.Run(s, "go"); r.GetText() != "my own" {
			t.Errorf("%s: %v", class, r)
		}
		if got, _ := asked(h, w); got != "first, second first, first" {
			t.Errorf("%s: asked were %s", class, got)
		}
		h.Stop()
	}
}

// small has models with windows.
type small struct {
	several
	window map[string]int64
}

func (s small) Resolve(name string) (*actors.Resolved, error) {
	r, err := s.several.Resolve(name)
	if err == nil {
		r.Context = s.window[name]
	}
	return r, err
}

func TestAModelWhoseWindowIsTooSmallStandsInForNone(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Models: small{several{"first": fails(model.Overloaded), "second": actortest.Say("no"), "third": actortest.Say("I stand in")}, map[string]int64{"first": 1 << 20, "second": 1000, "third": 1 << 20}},
		Agents: []actors.Agent{{Name: "careful", Model: "first", Fallback: []string{"second", "third"}}},
	})
	s, w := h.Create(&messages.CreateSession{Agent: "careful"})
	if r := h.Run(s, strings.Repeat("many words ", 1000)); r.GetText() != "I stand in" {
		t.Errorf("%v", r)
	}
	if got, _ := asked(h, w); got != "first, third first" {
		t.Errorf("asked were %s", got)
	}
}
