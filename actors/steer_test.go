package actors_test

import (
	"cmp"
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// steps answers the first request of each turn with a call, once the gate is open, and says to any other what it has read.
func steps(tool string) (*actortest.Gate, actortest.Model) {
	g := actortest.NewGate()
	return g, func(ctx context.Context, r *model.Request) actortest.Reply {
		var said []string
		calls := 0
		for _, m := range r.Prompt.Messages {
			switch {
			case m.Role == messages.User:
				said = append(said, m.Text)
			case len(m.ToolCalls) > 0:
				calls++
			}
		}
		if calls == 0 {
			return actortest.Reply{Text: "looking", Calls: []*messages.ToolCall{actortest.Call("c1", tool, "{}")}, Err: g.Pass(ctx)}
		}
		return actortest.Reply{Text: "read: " + strings.Join(said, ", ")}
	}
}

func steer(h *actortest.House, session, id string) *messages.InputReply {
	return actortest.Ask[*messages.InputReply](h, session, &messages.SubmitInput{InputId: id, Mode: messages.InputAccepted_STEER, Parts: actortest.Text(id)})
}

func TestASteeringInputJoinsTheOpenTurnBeforeItsNextModelCall(t *testing.T) {
	for _, tool := range []string{"peek", "nobody_knows_it"} { // one runs, and one is refused with its plan
		t.Run(tool, func(t *testing.T) {
			gate, m := steps(tool)
			peek, err := tools.Func(tools.Spec{Name: "peek", Description: "Looks around.", Effect: messages.Effect_PURE}, func(*tools.Context, struct{}) (*tools.Result, error) {
				return &tools.Result{Content: "nothing"}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			h := actortest.New(t, actortest.Options{Model: m, Tools: []tools.Tool{peek}})
			s, w := h.Create(&messages.CreateSession{})
			one := submit(h, s, "one")
			actortest.Wait(t, "the first call", gate.Came)
			two := submit(h, s, "two")
			first := steer(h, s, "rather this")
			if again := steer(h, s, "rather this"); !again.GetDuplicate() || again.GetSeq() != first.GetSeq() {
				t.Errorf("the same again: %v", again)
			}
			if got := states(h, s); got != "one running, two staged, rather this staged" {
				t.Errorf("inputs: %s", got)
			}
			results := []<-chan actortest.Answer[*messages.TurnResult]{
				actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: one}),
				actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: "rather this"}),
			}
			gate.Open()
			turn := ""
			for _, r := range results {
				a := actortest.Wait(t, "the turn", r)
				if a.Err != nil || a.Reply.GetText() != "read: one, rather this" || turn != "" && a.Reply.GetTurnId() != turn {
					t.Errorf("%v %v", a.Reply, a.Err)
				}
				turn = a.Reply.GetTurnId()
			}
			if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: two}); r.GetTurnId() == turn || r.GetText() != "read: one, rather this, two" {
				t.Errorf("the input that was not to join: %v", r)
			}
			if _, err := actortest.Try[*messages.Ack](h, s, &messages.WithdrawInput{InputId: "rather this"}); actortest.Code(err) != messages.CodeCommitted {
				t.Errorf("taken back after it was answered: %v", err)
			}
			if n := len(actortest.Of[*messages.TurnStarted](h.Facts(w))); n != 2 {
				t.Errorf("%d turns", n)
			}
		})
	}
}

func TestASteeringInputThatComesTooLateHasATurnOfItsOwn(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "one")
	actortest.Wait(t, "the call whose answer ends the turn", gate.Came)
	steer(h, s, "late")
	steer(h, s, "taken back")
	actortest.Ask[*messages.Ack](h, s, &messages.WithdrawInput{InputId: "taken back"})
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: "late"}); r.GetText() != "said late" {
		t.Errorf("%v", r)
	}
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	steer(h, s, "idle") // there is none to join
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: "idle"}); r.GetText() != "said idle" {
		t.Errorf("%v", r)
	}
	facts := h.Facts(w)
	if turns, joined := len(actortest.Of[*messages.TurnStarted](facts)), len(actortest.Of[*messages.InputJoined](facts)); turns != 3 || joined != 0 {
		t.Errorf("%d turns, %d joined", turns, joined)
	}
}

// TestASteeringInputJoinsOnceWhereverTheProcessEnds: it is a stage of the journal like any, and neither lost nor read twice.
func TestASteeringInputJoinsOnceWhereverTheProcessEnds(t *testing.T) {
	joined := func(f proto.Message) bool { return actortest.Is[*messages.InputJoined](f) }
	for name, at := range map[string]func(proto.Message) bool{
		"before it has joined": joined,
		"before it is read": func(f proto.Message) bool {
			g, is := f.(*messages.GenerationStarted)
			return is && g.GetStep() == 2
		},
		"before it is answered": func(f proto.Message) bool {
			g, is := f.(*messages.GenerationCompleted)
			return is && len(g.GetToolCalls()) == 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := memory.New()
			store := &actortest.Store{Store: mem}
			came, _ := store.Hold(at)
			gate, m := steps("nobody_knows_it")
			h := actortest.New(t, actortest.Options{Store: store, Model: m})
			s, w := h.Create(&messages.CreateSession{})
			submit(h, s, "one")
			actortest.Wait(t, "the first call", gate.Came)
			steer(h, s, "rather this")
			gate.Open()
			actortest.Wait(t, "the append at which the process ends", came)
			again := mem.Reopen()
			t.Cleanup(func() { _ = again.Close() })
			free, m := steps("nobody_knows_it")
			free.Open()
			h = actortest.New(t, actortest.Options{Store: again, Model: m})
			if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: "rather this"}); r.GetText() != "read: one, rather this" {
				t.Errorf("%v", r)
			}
			facts := h.Facts(w)
			if turns, in := len(actortest.Of[*messages.TurnStarted](facts)), len(actortest.Of[*messages.InputJoined](facts)); turns != 1 || in != 1 {
				t.Errorf("%d turns, %d joined", turns, in)
			}
		})
	}
}

// TestASteeringInputJoinsOnlyWhileItFitsIntoTheModelsWindow: else it would end the turn that it joins, and be used up. Order is kept, and each
// has a turn of its own, for which the conversation is compacted.
func TestASteeringInputJoinsOnlyWhileItFitsIntoTheModelsWindow(t *testing.T) {
	for _, tool := range []string{"glob", "nobody_knows_it"} { // judged with its result, and behind it
		t.Run(tool, func(t *testing.T) {
			q := &requests{}
			gate, m := steps(tool)
			h := actortest.New(t, actortest.Options{Agents: plain(), Models: windowed{actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
				if q.see(r); r.Agent == actors.CompactionAgent {
					return actortest.Reply{Text: "the gist"}
				}
				return m(ctx, r)
			}), 3000}})
			s, w := h.Create(&messages.CreateSession{})
			one := submit(h, s, "one "+strings.Repeat("word ", 1200))
			actortest.Wait(t, "the first call", gate.Came)
			steer(h, s, "joins")
			for _, id := range []string{"large", "behind it"} {
				text := id
				if id == "large" {
					text += strings.Repeat(" word", 1500)
				}
				actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{InputId: id, Mode: messages.InputAccepted_STEER, Parts: actortest.Text(text)})
			}
			gate.Open()
			turns := map[string]bool{}
			for _, in := range []string{one, "joins", "large", "behind it"} {
				r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
				if r.GetOutcome() != messages.TurnCompleted_DONE {
					t.Errorf("%s: %v", in, r)
				}
				turns[r.GetTurnId()] = true
			}
			joined := actortest.Of[*messages.InputJoined](h.Facts(w))
			if len(joined) != 1 || joined[0].GetInputId() != "joins" || len(turns) != 3 || q.largest > 3000 {
				t.Errorf("%v joined, %d turns, the largest request has %d tokens", joined, len(turns), q.largest)
			}
		})
	}
}

// TestWhatWasRefusedForItsLengthIsJoinedOnceItIsCompacted: how much is too long is told by what was refused, and nothing else.
func TestWhatWasRefusedForItsLengthIsJoinedOnceItIsCompacted(t *testing.T) {
	gate, refused := actortest.NewGate(), false
	h := actortest.New(t, actortest.Options{Agents: plain(), Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
		switch {
		case r.Agent == actors.CompactionAgent:
			return actortest.Reply{Text: "the gist"}
		case actortest.Asked(r) == "one" && !refused:
			refused = true
			return actortest.Reply{Err: cmp.Or[error](gate.Pass(ctx), &model.Error{Class: model.ContextLength, Message: "too long"})}
		}
		return actortest.Reply{Text: "ok"}
	})})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, prompt(1))
	submit(h, s, "one")
	actortest.Wait(t, "the first call", gate.Came)
	steer(h, s, "rather this")
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: "rather this"}); r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("%v", r)
	}
	var order []string
	for _, f := range h.Facts(w) {
		switch f.(type) {
		case *messages.GenerationFailed:
			order = append(order, "refused")
		case *messages.HistoryCompacted:
			order = append(order, "compacted")
		case *messages.InputJoined:
			order = append(order, "joined")
		}
	}
	if got := strings.Join(order, ", "); got != "refused, compacted, joined" {
		t.Errorf("%s", got)
	}
}
