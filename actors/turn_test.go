package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

func TestATurnWithOneCallIsFourAppendsInTheAgreedOrder(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Model: actortest.CallThenSay(actortest.Call("c1", "act", `{"name":"x"}`)),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) { return "did " + a, nil })},
	})
	s, w := h.Create(&messages.CreateSession{})
	r := h.Run(s, "go")
	if r.GetText() != "did x\n" || r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Fatalf("result %v", r)
	}
	var got []string
	for _, f := range h.Facts(w) {
		got = append(got, strings.TrimPrefix(fmt.Sprintf("%T", f), "*messages."))
	}
	want := "WorkerCreated Activated InputAccepted TurnStarted GenerationStarted GenerationCompleted ToolPlanned ToolDispatched " +
		"ToolFinished GenerationStarted GenerationCompleted TurnCompleted"
	if strings.Join(got, " ") != want {
		t.Errorf("journal\n%s\nwant\n%s", strings.Join(got, " "), want)
	}
}

func TestCallsThatOnlyReadRunTogetherAndAnswerInCallOrder(t *testing.T) {
	const n = 5
	var all sync.WaitGroup
	all.Add(n)
	var calls []*messages.ToolCall
	want := ""
	for i := range n {
		calls = append(calls, actortest.Call("same", "look", fmt.Sprintf(`{"name":"%d"}`, i)))
		want += fmt.Sprintf("saw %d\n", i)
	}
	last := make(chan struct{})
	h := actortest.New(t, actortest.Options{
		Model: actortest.CallThenSay(calls...),
		Tools: []tools.Tool{tool(t, "look", pure, func(ctx context.Context, a string) (string, error) {
			all.Done()
			all.Wait() // each waits for all others: one after the other would never end
			if a == "0" {
				select { // the first in call order ends last
				case <-last:
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			if a == "4" {
				close(last)
			}
			return "saw " + a, nil
		})},
	})
	s, w := h.Create(&messages.CreateSession{})
	if r := h.Run(s, "look"); r.GetText() != want {
		t.Errorf("results %q, want %q", r.GetText(), want)
	}
	if d := actortest.Of[*messages.ToolDispatched](h.Facts(w)); len(d) != 0 {
		t.Errorf("%d dispatches of calls that only read", len(d))
	}
}

func TestCallsWithEffectsRunOneAtATimeInCallOrder(t *testing.T) {
	var mu sync.Mutex
	running, order := 0, ""
	var calls []*messages.ToolCall
	for i := range 6 {
		calls = append(calls, actortest.Call(fmt.Sprint(i), "act", fmt.Sprintf(`{"name":"%d"}`, i)))
	}
	h := actortest.New(t, actortest.Options{
		Model: actortest.CallThenSay(calls...),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) {
			mu.Lock()
			running++
			if running != 1 {
				t.Errorf("%d calls with effects at once", running)
			}
			order += a
			mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			running--
			return a, nil
		})},
	})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "go")
	if order != "012345" {
		t.Errorf("order %s", order)
	}
	facts := h.Facts(w)
	finished := map[string]bool{}
	dispatched := 0
	for _, f := range facts {
		switch f := f.(type) {
		case *messages.ToolDispatched:
			if len(finished) != dispatched {
				t.Errorf("call %d dispatched before the one ahead had ended", dispatched)
			}
			dispatched++
		case *messages.ToolFinished:
			finished[f.GetExecId()] = true
		}
	}
}

func TestWorkInTwoWorkspacesOfOneTurnRunsSideBySide(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	h := actortest.New(t, actortest.Options{
		Model: actortest.CallThenSay(
			actortest.Call("1", "act", `{"name":"a"}`), actortest.Call("2", "act", `{"name":"b","workspace_id":"home"}`)),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) {
			both.Done()
			both.Wait()
			return a, nil
		})},
	})
	s, _ := h.Create(&messages.CreateSession{})
	if r := h.Run(s, "go"); r.GetText() != "a\nb\n" {
		t.Errorf("results %q", r.GetText())
	}
}

func TestAMistakenCallIsToldToTheModelAndTheTurnGoesOn(t *testing.T) {
	ran := 0
	h := actortest.New(t, actortest.Options{
		Model: actortest.CallThenSay(
			actortest.Call("1", "nothing_like_it", `{}`),
			actortest.Call("2", "act", `{"name":`),
			actortest.Call("3", "act", `null`),
			actortest.Call("4", "act", ``),
			actortest.Call("5", "act", `{"name":"a","name":"b"}`),
			actortest.Call("6", "act", `{"name":"a","workspace_id":"nowhere"}`),
			actortest.Call("7", "act", `{"name":"good"}`),
		),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) { ran++; return "did " + a, nil })},
	})
	s, w := h.Create(&messages.CreateSession{})
	r := h.Run(s, "go")
	if r.GetOutcome() != messages.TurnCompleted_DONE || ran != 1 {
		t.Fatalf("outcome %v after %d runs", r.GetOutcome(), ran)
	}
	got := strings.Split(strings.TrimSpace(r.GetText()), "\n")
	if len(got) != 7 {
		t.Fatalf("%d results: %q", len(got), got)
	}
	for i, want := range []string{
		"Tool 'nothing_like_it' not found", "", `missing required argument "name"`, `missing required argument "name"`, "given twice",
		"Workspace 'nowhere' not found", "did good",
	} {
		if !strings.Contains(got[i], want) || got[i] == "" {
			t.Errorf("result %d is %q, want %q in it", i+1, got[i], want)
		}
	}
	for i, f := range actortest.Of[*messages.ToolFinished](h.Facts(w)) {
		if want := i == 6; (f.GetStatus() == messages.ToolFinished_OK) != want {
			t.Errorf("call %d finished as %v", i+1, f.GetStatus())
		}
	}
}

func TestALargeResultReachesTheModelWhole(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 100<<10/16)
	h := actortest.New(t, actortest.Options{
		Model: actortest.CallThenSay(actortest.Call("1", "look", `{"name":"x"}`)),
		Tools: []tools.Tool{tool(t, "look", pure, func(context.Context, string) (string, error) { return large, nil })},
	})
	s, _ := h.Create(&messages.CreateSession{})
	if r := h.Run(s, "go"); r.GetText() != large+"\n" {
		t.Errorf("%d bytes, want %d", len(r.GetText()), len(large)+1)
	}
}

func TestATurnEndsAtItsLimitOfSteps(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{Steps: 3},
		Model: actortest.Model(func(context.Context, *model.Request) actortest.Reply {
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("1", "look", `{"name":"again"}`)}}
		}),
		Tools: []tools.Tool{tool(t, "look", pure, func(context.Context, string) (string, error) { return "nothing new", nil })},
	})
	s, w := h.Create(&messages.CreateSession{})
	r := h.Run(s, "go")
	if r.GetOutcome() != messages.TurnCompleted_LIMIT || !strings.Contains(r.GetReason(), "3 steps") {
		t.Errorf("outcome %v: %s", r.GetOutcome(), r.GetReason())
	}
	if g := actortest.Of[*messages.GenerationCompleted](h.Facts(w)); len(g) != 3 {
		t.Errorf("%d generations", len(g))
	}
	if r := h.Run(s, "once more"); r.GetOutcome() != messages.TurnCompleted_LIMIT {
		t.Errorf("the next turn: %v", r.GetOutcome())
	}
}

func TestAHundredSessionsAtOnceFinish(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{ModelCalls: 8},
		Model: actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
			if res := actortest.Results(r); res != nil {
				return actortest.Reply{Text: res[0].Text}
			}
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("1", "act", fmt.Sprintf(`{"name":%q}`, actortest.Asked(r)))}}
		}),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) { return "did " + a, nil })},
	})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			first := &messages.SubmitInput{InputId: fmt.Sprintf("inp_%d", i), Parts: actortest.Text(fmt.Sprint("job ", i))}
			v, err := actortest.Try[*messages.SessionView](h, "", &messages.CreateSession{First: first})
			if err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			r, err := actortest.Try[*messages.TurnResult](h, v.GetId(), &messages.AwaitTurn{InputId: first.GetInputId()})
			if err != nil || r.GetText() != fmt.Sprint("did job ", i) {
				t.Errorf("session %d: %q %v", i, r.GetText(), err)
			}
		})
	}
	all.Wait()
}

func TestAModelThatIsBusyIsAskedAgainAndWhatItSaidIsVoid(t *testing.T) {
	tries := 0
	h := actortest.New(t, actortest.Options{Model: actortest.Model(func(context.Context, *model.Request) actortest.Reply {
		if tries++; tries < 3 {
			return actortest.Reply{Text: "half of an ans", Err: &model.Error{Class: model.Overloaded, Message: "busy"}}
		}
		return actortest.Reply{Text: "whole answer"}
	})})
	s, w := h.Create(&messages.CreateSession{})
	watch := h.Watch(s)
	r := h.Run(s, "go")
	if r.GetText() != "whole answer" || tries != 3 {
		t.Fatalf("%q after %d tries", r.GetText(), tries)
	}
	ids := map[string]bool{}
	for i, g := range actortest.Of[*messages.GenerationStarted](h.Facts(w)) {
		if int(g.GetAttempt()) != i+1 || g.GetStep() != 1 {
			t.Errorf("generation %d is attempt %d of step %d", i+1, g.GetAttempt(), g.GetStep())
		}
		ids[g.GetGenId()] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d different generation ids of 3", len(ids))
	}
	discarded := 0
	for _, e := range watch.Until(messages.EventTurnCompleted) {
		if e.GetType() == messages.EventGenerationDiscarded {
			discarded++
		}
	}
	if discarded != 2 {
		t.Errorf("%d generations shown as discarded, want 2", discarded)
	}
}

func TestAModelThatStaysBusyEndsTheTurnWithItsError(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{ModelAttempts: 2},
		Model: actortest.Model(func(context.Context, *model.Request) actortest.Reply {
			return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "slow down", Hint: "wait"}}
		}),
	})
	s, w := h.Create(&messages.CreateSession{})
	r := h.Run(s, "go")
	if r.GetOutcome() != messages.TurnCompleted_ERROR || r.GetErrorCode() != "overloaded" || !strings.Contains(r.GetReason(), "slow down") {
		t.Errorf("%v %s %s", r.GetOutcome(), r.GetErrorCode(), r.GetReason())
	}
	if n := len(actortest.Of[*messages.GenerationFailed](h.Facts(w))); n != 2 {
		t.Errorf("%d failures written down", n)
	}
}

func TestTheModelIsChangedBetweenTurnsAndRecordedPerGeneration(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		return actortest.Reply{Text: "I am " + r.Model}
	})})
	s, w := h.Create(&messages.CreateSession{Model: "one"})
	if r := h.Run(s, "who"); r.GetText() != "I am one" {
		t.Errorf("%q", r.GetText())
	}
	v := actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{Model: "two"})
	if v.GetModel() != "two" {
		t.Errorf("view says %q", v.GetModel())
	}
	if r := h.Run(s, "who"); r.GetText() != "I am two" {
		t.Errorf("%q", r.GetText())
	}
	var models []string
	for _, g := range actortest.Of[*messages.GenerationStarted](h.Facts(w)) {
		models = append(models, g.GetModel())
	}
	if strings.Join(models, " ") != "one two" {
		t.Errorf("recorded %v", models)
	}
	if _, err := actortest.Try[*messages.WorkerView](h, s, &messages.ConfigureWorker{Agent: "nobody"}); actortest.Code(err) != messages.CodeAgent {
		t.Errorf("an agent that does not exist: %v", err)
	}
}

func TestHistoryIsACopyThatNothingChangesLater(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("yes")})
	s, _ := h.Create(&messages.CreateSession{})
	h.Run(s, "one")
	before := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{})
	kept := proto.Clone(before)
	before.Turns[0].Messages[0].Content = "scribbled over"
	h.Run(s, "two")
	after := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{})
	if len(after.GetTurns()) != 2 || after.GetTurns()[0].GetMessages()[0].GetContent() != "one" {
		t.Errorf("the copy was no copy: %v", after)
	}
	if !proto.Equal(kept.(*messages.History).GetTurns()[0], after.GetTurns()[0]) {
		t.Error("a finished exchange changed")
	}
}
