package actors_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// letter is a message as it stands in the outbox of its sender.
func letter(from, to, text string) *messages.OutboxEnqueued {
	id := "msg_" + strings.TrimPrefix(messages.NewID(messages.ExecPrefix), messages.ExecPrefix)
	mail := &messages.Mail{MessageId: id, Kind: messages.Mail_MESSAGE, WorkerId: from}
	return &messages.OutboxEnqueued{MessageId: id, To: to, Mail: mail, Parts: actortest.Text(conversation.MailText(mail, text))}
}

func TestTheSameMessageAgainIsTheSameInput(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("read")})
	s, a, b := pair(h)
	m := &messages.DeliverMail{WorkerId: b, Mail: letter(a, b, "hello")}
	for i := range 3 {
		r, err := deliver(t, h, s, m)
		if err != nil || r.GetDuplicate() != (i > 0) {
			t.Fatalf("the answer to the %d. delivery is %v, %v", i+1, r, err)
		}
	}
	quiet(h, t, s, 1)
	if n := len(mailTo(h, b)); n != 1 {
		t.Errorf("it was taken %d times", n)
	}
}

// refusedOnce is a sender, at work still, whose message to a receiver was refused, as that is full: its one input waits for the workspace in which
// the sender works. The message is tried again when the clock goes on; done lets the sender end.
func refusedOnce(t *testing.T) (h *actortest.House, clock *actortest.Clock, done *actortest.Gate, s, a, b string) {
	t.Helper()
	busy := actortest.NewGate()
	clock, done = actortest.NewClock(time.Unix(1<<30, 0)), actortest.NewGate()
	h = actortest.New(t, actortest.Options{Limits: actors.Limits{Queue: 1}, Clock: clock, Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
		switch {
		case actortest.Results(r) != nil:
			return actortest.Reply{Text: "sent", Err: done.Pass(ctx)}
		case actortest.Asked(r) == "go":
			return actortest.Reply{Calls: []*messages.ToolCall{send("1", b, "hello")}, Err: busy.Pass(ctx)}
		}
		return actortest.Reply{Text: "ok", Err: done.Pass(ctx)}
	})})
	s, a, b = pair(h)
	actortest.Until(t, "the Timers wait, as they always do", func() bool { return clock.Waits() > 0 })
	submit(h, s, "go")
	actortest.Wait(t, "the sender works", busy.Came)
	actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: b, Parts: actortest.Text("wait")})
	actortest.Until(t, "the receiver waits", func() bool { return listedWorker(t, h.Store, s, b).GetStaged() == 1 })
	before := clock.Waits()
	busy.Open()
	actortest.Wait(t, "the message is sent", done.Came)
	actortest.Until(t, "the sender has been refused, and waits", func() bool { return clock.Waits() > before })
	return h, clock, done, s, a, b
}

func TestAMessageToOneWhoIsFullIsTriedAgain(t *testing.T) {
	h, clock, done, s, a, b := refusedOnce(t)
	done.Open()
	actortest.Until(t, "the receiver is free", func() bool { return workers(h, s)[1].GetTurns() == 1 })
	if len(mailTo(h, b)) != 0 || len(actortest.Of[*messages.OutboxAcked](h.Facts(a))) != 0 {
		t.Fatalf("it was taken by one who was full: %v", mailTo(h, b))
	}
	clock.Advance(time.Minute)
	quiet(h, t, s, 3)
	if n := len(mailTo(h, b)); n != 1 {
		t.Errorf("it arrived %d times", n)
	}
}

func TestAMessageToOneWhoIsQuarantinedWaitsAndKeepsNobodyInMemory(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	first := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, a, b := pair(first)
	first.Stop()
	write(t, store, s, a, recordOf(t, letter(a, b, "hello")))
	write(t, store, s, b, recordOf(t, &messages.Panicked{Reason: "as the test wants it", Quarantined: true}))
	h := actortest.New(t, actortest.Options{Store: store, IdleAfter: time.Millisecond, Model: actortest.Say("ok")})
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{WorkerId: a})
	asleep(t, h)
	if n := len(mailTo(h, b)) + len(actortest.Of[*messages.OutboxAcked](h.Facts(a))); n != 0 {
		t.Fatal("it was delivered")
	}
	actortest.Ask[*messages.WorkerView](h, s, &messages.ReleaseWorker{WorkerId: b})
	actortest.Until(t, "it has arrived", func() bool { return len(actortest.Of[*messages.OutboxAcked](h.Facts(a))) == 1 })
	if n := len(mailTo(h, b)); n != 1 {
		t.Errorf("it arrived %d times", n)
	}
}

// TestAForkLetsGoOfWhatIsOnItsWay forks a session whose message has not arrived, and whose child has told nothing.
func TestAForkLetsGoOfWhatIsOnItsWay(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	first := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, a, b := pair(first)
	first.Stop()
	exec := messages.NewID(messages.ExecPrefix)
	write(t, store, s, a, recordOf(t, letter(a, b, "hello")), recordOf(t, &messages.ChildSpawned{WorkerId: messages.NewID(messages.WorkerPrefix), ExecId: exec, Background: true}))
	h := actortest.New(t, actortest.Options{Store: store, IdleAfter: time.Millisecond, Limits: actors.Limits{Children: 1}, Model: actortest.Say("ok")})
	f, own := forked(t, h, &messages.ForkSession{SessionId: s})
	facts := h.Facts(own)
	if acks := actortest.Of[*messages.OutboxAcked](facts); len(acks) != 1 || acks[0].GetRefused() == "" || len(actortest.Of[*messages.ChildEnded](facts)) != 1 {
		t.Errorf("the fork has let go of %v", facts)
	}
	works(t, h, f.GetSession().GetId())
	asleep(t, h)
	if in := mailTo(h, f.GetSession().GetWorkers()[1].GetId()); len(in) != 0 {
		t.Errorf("in the fork it arrived as %v", in)
	}
	works(t, h, s)
	actortest.Until(t, "it arrives in the original", func() bool { return len(mailTo(h, b)) == 1 })
}

// TestAProgramsOwnToolsOfTheseNamesAreOrdinaryOnes: what they return sends nothing, hands nothing over, and is asked about.
func TestAProgramsOwnToolsOfTheseNamesAreOrdinaryOnes(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.CallThenSay(
		actortest.Call("1", "send", `{"name":"x"}`),
	)})
	own := func(name string) tools.Tool {
		return tool(t, name, atMostOnce, func(context.Context, string) (string, error) { return "did " + name, nil })
	}
	registry, err := tools.NewRegistry(own("send"), own("handoff"))
	if err != nil {
		t.Fatal(err)
	}
	h.Svc.Tools = registry
	s, w := h.Create(&messages.CreateSession{})
	if got := h.Run(s, "go").GetText(); got != "did send\n" {
		t.Errorf("the agent was told %q", got)
	}
	r := actortest.Ask[*messages.ToolReply](h, s, &messages.CallTool{Tool: "handoff", Arguments: `{"name":"x"}`})
	if r.GetContent() != "did handoff" {
		t.Errorf("the call came to %v", r)
	}
	facts := h.Facts(w)
	if len(actortest.Of[*messages.OutboxEnqueued](facts))+len(actortest.Of[*messages.HandedOver](facts)) != 0 {
		t.Errorf("it brought %v", facts)
	}
	for _, name := range []string{"send", "handoff"} {
		if actors.Question(own(name).Spec(), nil).NeverAsks {
			t.Errorf("%s is never asked about", name)
		}
	}
	if !actors.Question(actors.NewSend().Spec(), nil).NeverAsks || !actors.Question(actors.NewHandoff(nil).Spec(), nil).NeverAsks {
		t.Error("the actors' own are asked about")
	}
}

// TestNoMoreIsOnItsWayThanLimitsOutboxAllows: what is refused is told to the model, and what was sent before arrives.
func TestNoMoreIsOnItsWayThanLimitsOutboxAllows(t *testing.T) {
	for most, want := range map[int]int{0: 3, 2: 2, -1: 0} {
		var b string
		h := actortest.New(t, actortest.Options{Limits: actors.Limits{Outbox: most}, Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
			if strings.HasPrefix(actortest.Asked(r), "Message from worker") {
				return actortest.Reply{Text: "read"}
			}
			return actortest.CallThenSay(send("1", b, "one"), send("2", b, "two"), send("3", b, "three"))(ctx, r)
		})})
		s, _, other := pair(h)
		b = other
		got := h.Run(s, "go").GetText()
		quiet(h, t, s, int32(1+want))
		if refused := strings.Count(got, "may be on their way") + strings.Count(got, "do not write to each other"); refused != 3-want || len(mailTo(h, b)) != want {
			t.Errorf("with %d: %d arrived, and the sender was told %q", most, len(mailTo(h, b)), got)
		}
	}
}

// TestOneTurnSendsNoMoreThanLimitsSendsAllows has a turn send in two answers: both count.
func TestOneTurnSendsNoMoreThanLimitsSendsAllows(t *testing.T) {
	for most, want := range map[int]int{0: 3, 2: 2, -1: 0} {
		var b string
		h := actortest.New(t, actortest.Options{Limits: actors.Limits{Sends: most}, Model: actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
			switch told := actortest.Results(r); {
			case strings.HasPrefix(actortest.Asked(r), "Message from worker"):
				return actortest.Reply{Text: "read"}
			case len(told) == 0:
				return actortest.Reply{Calls: []*messages.ToolCall{send("1", b, "one"), send("2", b, "two")}}
			case len(told) == 2:
				return actortest.Reply{Calls: []*messages.ToolCall{send("3", b, "three")}}
			}
			var all strings.Builder
			for _, m := range r.Prompt.Messages {
				if m.Role == messages.ToolRole {
					all.WriteString(m.Text)
				}
			}
			return actortest.Reply{Text: all.String()}
		})})
		s, _, other := pair(h)
		b = other
		got := h.Run(s, "go").GetText()
		quiet(h, t, s, int32(1+want))
		if refused := strings.Count(got, "one turn sends"); refused != 3-want || len(mailTo(h, b)) != want {
			t.Errorf("with %d: %d arrived, and the sender was told %q", most, len(mailTo(h, b)), got)
		}
	}
}
