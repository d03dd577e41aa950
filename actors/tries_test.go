package actors_test

import (
	"context"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// never is the class of an answer that never comes: its process ends.
const never model.Class = "cut off"

// inTurn are models that share a list of what their answers come to; behind its end they answer.
type inTurn struct {
	mu    sync.Mutex
	list  []model.Class
	calls int
	hangs chan struct{}
}

func (l *inTurn) answer(ctx context.Context, _ *model.Request) actortest.Reply {
	l.mu.Lock()
	class := model.Class("")
	if l.calls < len(l.list) {
		class = l.list[l.calls]
	}
	l.calls++
	l.mu.Unlock()
	switch class {
	case "":
		return actortest.Reply{Text: "at last"}
	case never:
		l.hangs <- struct{}{}
		<-ctx.Done()
	}
	return actortest.Reply{Err: &model.Error{Class: class, Message: "it fails"}}
}

// TestWhatTheAttemptsBeforeACrashWereCountsAfterIt ends the process in the middle of a model call, and has the next one go on.
func TestWhatTheAttemptsBeforeACrashWereCountsAfterIt(t *testing.T) {
	alone := []actors.Agent{{Name: "careful", Model: "first"}}
	two := []actors.Agent{{Name: "careful", Model: "first", Fallback: []string{"second"}}}
	for _, x := range []struct {
		name    string
		agents  []actors.Agent
		most    int // attempts
		list    []model.Class
		asked   string
		outcome messages.TurnCompleted_Outcome
	}{
		{"a refusal for the number of requests is no attempt", alone, 2, []model.Class{model.RateLimited, never, model.Overloaded}, "first, first, first, first", messages.TurnCompleted_DONE},
		{"an attempt is one", alone, 2, []model.Class{model.Overloaded, never, model.Overloaded}, "first, first, first", messages.TurnCompleted_ERROR},
		{"who failed for good gets no second chance", two, 3, []model.Class{model.Auth, never, model.Auth}, "first, second first, second first", messages.TurnCompleted_ERROR},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			store := memory.New()
			t.Cleanup(func() { _ = store.Close() })
			l := &inTurn{list: x.list, hangs: make(chan struct{}, 1)}
			o := actortest.Options{
				Store: store, DataDir: t.TempDir(), Models: several{"first": l.answer, "second": l.answer}, Agents: x.agents, Limits: actors.Limits{ModelAttempts: x.most},
			}
			first := actortest.New(t, o)
			s, w := first.Create(&messages.CreateSession{Agent: "careful"})
			in := actortest.Ask[*messages.InputReply](first, s, &messages.SubmitInput{Parts: actortest.Text("go")})
			actortest.Wait(t, "the call that is cut off", l.hangs)
			first.Stop()
			h := actortest.New(t, o)
			r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in.GetInputId()})
			if got, _ := asked(h, w); got != x.asked || r.GetOutcome() != x.outcome {
				t.Errorf("asked were %s, and it came to %v", got, r)
			}
		})
	}
}
