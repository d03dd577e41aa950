package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// TestStoppingWithEverythingInFlightAnswersEverybody stops a house in which every phase of a turn is under way.
// TestMain looks for goroutines that are left.
func TestStoppingWithEverythingInFlightAnswersEverybody(t *testing.T) {
	calls, running, reading := actortest.NewGate(), actortest.NewGate(), actortest.NewGate()
	store := memory.New()
	h := actortest.New(t, actortest.Options{
		Store:  store,
		Limits: actors.Limits{ModelCalls: 2},
		Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			switch {
			case actortest.Asked(r) == "hang":
				return actortest.Reply{Text: "half", Err: calls.Pass(ctx)}
			case actortest.Asked(r) == "fail":
				return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "busy", RetryAfter: 1 << 40}}
			case actortest.Results(r) == nil:
				return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("1", "act", `{"name":"x"}`), actortest.Call("2", "look", `{"name":"x"}`)}}
			}
			return actortest.Reply{Text: "ok"}
		}),
		Tools: []tools.Tool{
			tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) { return "", running.Pass(ctx) }),
			tool(t, "look", pure, func(ctx context.Context, _ string) (string, error) { return "", reading.Pass(ctx) }),
		},
	})
	dir := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	var waits []<-chan actortest.Answer[*messages.TurnResult]
	begin := func(prompt string, in []*messages.WorkspaceSpec) string {
		s, _ := h.Create(&messages.CreateSession{Workspaces: in})
		id := submit(h, s, prompt)
		submit(h, s, "one more, behind it")
		waits = append(waits, actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: id}))
		return s
	}
	failing := begin("fail", nil)
	h.State(failing, "waiting")
	begin("use tools", dir)
	actortest.Wait(t, "a call with effects", running.Came)
	actortest.Wait(t, "a call that reads", reading.Came)
	begin("wait for the workspace", dir)
	begin("hang", nil)
	begin("hang", nil)
	actortest.Wait(t, "a model call", calls.Came)
	actortest.Wait(t, "a model call", calls.Came)
	h.Generating(begin("wait for a permit", nil))

	inbox := act.NewInbox(h.Sys, 16)
	defer inbox.Close()
	h.Sys.Root.RequestWithCustomSender(h.Root, actortest.Command(failing, &messages.Subscribe{}), inbox.PID())
	// Questions go on while the house stops.
	stop, done := make(chan struct{}), make(chan error, 8)
	for i := range 8 {
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				_, err := actortest.Try[*messages.InputReply](h, failing, &messages.SubmitInput{InputId: fmt.Sprint(i, "-", n), Parts: actortest.Text("more")})
				if err != nil && actortest.Code(err) != messages.CodeUnavailable && !errors.Is(err, act.ErrGone) {
					done <- err
					return
				}
			}
		}()
	}
	h.Stop()
	close(stop)
	for range 8 {
		if err := actortest.Wait(t, "who asks", done); err != nil {
			t.Errorf("an ask while stopping: %v", err)
		}
	}
	for _, ch := range waits {
		if a := actortest.Wait(t, "who waits", ch); actortest.Code(a.Err) != messages.CodeUnavailable {
			t.Errorf("told %v %v", a.Reply, a.Err)
		}
	}
	for told := false; !told; {
		ctx, cancel := context.WithTimeout(context.Background(), actortest.Patience)
		msgs, _, err := inbox.Take(ctx)
		cancel()
		if err != nil {
			t.Fatalf("the watcher was told nothing: %v", err)
		}
		for _, m := range msgs {
			if f, ok := m.(*messages.Failure); ok && f.GetCode() == messages.CodeUnavailable {
				told = true
			}
		}
	}
	_ = store.Close()
}
