package chaos

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// TestEveryCutOfATurnThatAnotherModelAnswersRecovers cuts a turn of every class of calls whose own model fails for good, or is overloaded, at each step, so that
// another one stands in. What a step has found out of its own model is not found out again, and what was said says who said it.
func TestEveryCutOfATurnThatAnotherModelAnswersRecovers(t *testing.T) {
	for _, class := range []model.Class{model.Auth, model.Overloaded} {
		t.Run(string(class), func(t *testing.T) {
			everyCutOf(t, 10, func(t *testing.T) *world { return newStandIn(t, class) }, func(w *world, t *testing.T, when string) {
				w.check(t, when)
				w.checkStandIn(t, when, string(class))
			})
		})
	}
}

// newStandIn is a world whose agent's own model fails; the second one is the world.
func newStandIn(t *testing.T, class model.Class) *world {
	w := newWorld(t)
	w.agents = []troupe.Agent{{Name: "default", Model: "first", Fallback: []string{"second"}}}
	w.models = byName{"first": failing(class), "second": w}
	return w
}

// byName are models that have a service of their own each.
type byName map[string]model.Model

func (b byName) Resolve(name string) (*troupe.ResolvedModel, error) {
	m := b[name]
	if m == nil {
		return nil, fmt.Errorf("there is no model %q", name)
	}
	return &troupe.ResolvedModel{Model: m, Provider: name, Name: name}, nil
}

func (b byName) Providers() (all []string) {
	for name := range b {
		all = append(all, name)
	}
	return all
}

// failing is a model that never answers.
type failing model.Class

func (f failing) Stream(context.Context, *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		yield(model.Event{}, &model.Error{Class: model.Class(f), Message: "it does not answer"})
	}
}

// checkStandIn walks the generations in the order in which they became durable.
func (w *world) checkStandIn(t *testing.T, when, class string) {
	t.Helper()
	failed, answered := make(map[uint32]bool), 0
	step := uint32(0)
	err := w.store.ReadSession(context.Background(), sessionID, 0, func(e persistence.Entry) error {
		if !strings.HasPrefix(e.Stream, "wrk/") {
			return nil
		}
		fact, err := messages.WorkerFactIn(e.Record)
		switch f := fact.(type) {
		case *messages.GenerationStarted:
			step = f.GetStep()
			if got, want := f.GetModel()+" "+f.GetInsteadOf(), map[bool]string{false: "first ", true: "second first"}[failed[step]]; got != want {
				t.Errorf("%s: asked was %q at step %d, attempt %d, want %q", when, got, step, f.GetAttempt(), want)
			}
		case *messages.GenerationFailed:
			if failed[step] || f.GetClass() != class {
				t.Errorf("%s: step %d failed again, or as %v", when, step, f)
			}
			failed[step] = true
		case *messages.GenerationCompleted:
			if answered++; f.GetInsteadOf() != "first" || !failed[step] {
				t.Errorf("%s: answered instead of %q", when, f.GetInsteadOf())
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if answered != 3 {
		t.Errorf("%s: %d answers", when, answered)
	}
}
