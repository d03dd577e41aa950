package actors_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// streaming sends these pieces of text of every answer, and what is left never comes.
type streaming struct {
	pieces []string
	gate   *actortest.Gate
}

func (m streaming) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for _, p := range m.pieces {
			if !yield(model.Event{Kind: model.Text, Text: p}, nil) {
				return
			}
		}
		yield(model.Event{}, m.gate.Pass(ctx))
	}
}

// stoppedIn runs a house until it has asked its model for an answer to "go", and all that it sends of it has arrived, and stops it.
func stoppedIn(t *testing.T, o actortest.Options, gate *actortest.Gate) (store persistence.Store, session, worker string) {
	t.Helper()
	s := memory.New()
	t.Cleanup(func() { _ = s.Close() })
	o.Store = s
	h := actortest.New(t, o)
	session, worker = h.Create(&messages.CreateSession{})
	submit(h, session, "go")
	actortest.Wait(t, "the call", gate.Came)
	h.Stop()
	after := s.Reopen()
	t.Cleanup(func() { _ = after.Close() })
	return after, session, worker
}

// openTurn is the newest turn of a worker, read from its journal.
func openTurn(t *testing.T, store persistence.Store, worker string) *conversation.Turn {
	t.Helper()
	read, err := actors.ReadTurns(context.Background(), store, worker)
	if err != nil || len(read.Turns) == 0 {
		t.Fatalf("%d turns: %v", len(read.Turns), err)
	}
	return read.Turns[len(read.Turns)-1]
}

// stops are the orderly ends that a worker has written down.
func stops(h *actortest.House, worker string) []*messages.Suspended {
	return actortest.Of[*messages.Suspended](h.Facts(worker))
}

// TestWhatHadArrivedOfAnAnswerIsKeptOverAStopUntilItIsAskedForAgain: who stops a process in the middle of an answer finds what it has seen of it, and the model
// is asked as if it had said nothing.
func TestWhatHadArrivedOfAnAnswerIsKeptOverAStopUntilItIsAskedForAgain(t *testing.T) {
	gate := actortest.NewGate()
	store, session, worker := stoppedIn(t, actortest.Options{Model: streaming{[]string{"first ", "half"}, gate}}, gate)
	turn := openTurn(t, store, worker)
	if turn.Completed != nil || turn.Text != "" || turn.Suspended.GetText() != "first half" {
		t.Fatalf("the turn is left as %q, with %v", turn.Text, turn.Suspended)
	}
	later, prompts := actortest.NewGate(), make(chan *messages.Prompt, 1)
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
		prompts <- r.Prompt
		return actortest.Reply{Err: later.Pass(ctx), Text: "first half, and the other one"}
	})})
	h.Worker(session)
	actortest.Wait(t, "the call is made again", later.Came)
	if turn := openTurn(t, store, worker); turn.Completed != nil || turn.Suspended != nil {
		t.Errorf("while the answer is asked for again, the turn has %v", turn.Suspended)
	}
	if p := actortest.Wait(t, "its prompt", prompts); len(p.Messages) != 1 || p.Messages[0].Text != "go" {
		t.Errorf("the model is asked with %v", p.Messages)
	}
	later.Open()
	actortest.Until(t, "the turn is done", func() bool { return openTurn(t, store, worker).Completed != nil })
	if turn := openTurn(t, store, worker); turn.Text != "first half, and the other one" || len(turn.Gens) != 1 || turn.Suspended != nil {
		t.Errorf("the turn came to %q in %d answers, with %v", turn.Text, len(turn.Gens), turn.Suspended)
	}
	if s := stops(h, worker); len(s) != 1 || s[0].GetText() != "first half" {
		t.Errorf("written down %v", s)
	}
}

func TestAStopKeepsNothingOfAnAnswerThatNobodySaw(t *testing.T) {
	gate := actortest.NewGate()
	store, session, worker := stoppedIn(t, actortest.Options{Model: streaming{nil, gate}}, gate)
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	if s := stops(h, worker); len(s) != 1 || s[0].GetText() != "" {
		t.Errorf("written down %v", s)
	}
	if turn := openTurn(t, store, worker); turn.Suspended != nil {
		t.Errorf("the turn has %v", turn.Suspended)
	}
	h.Worker(session)
	works(t, h, session)
}

// TestAStopKeepsNothingOfAnAnswerToAnInputThatIsWithdrawn stops a house between the word and the end of the model's call.
func TestAStopKeepsNothingOfAnAnswerToAnInputThatIsWithdrawn(t *testing.T) {
	asked, end := actortest.NewGate(), make(chan struct{})
	s := memory.New()
	t.Cleanup(func() { _ = s.Close() })
	h := actortest.New(t, actortest.Options{Store: s, Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
		return actortest.Reply{Text: "half", Then: func() error {
			err := asked.Pass(ctx)
			<-end // it is told to end, and does not
			return err
		}}
	})})
	session, worker := h.Create(&messages.CreateSession{})
	in := submit(h, session, "go")
	actortest.Wait(t, "the call", asked.Came)
	done := actortest.Later[*messages.Ack](h, session, &messages.WithdrawInput{InputId: in})
	actortest.Until(t, "the word is written down", func() bool { return len(actortest.Of[*messages.CancelRequested](h.Facts(worker))) > 0 })
	stopped := make(chan struct{})
	go func() {
		h.Stop()
		close(stopped)
	}()
	actortest.Until(t, "the stop is written down", func() bool { return len(stops(h, worker)) > 0 })
	close(end)
	actortest.Wait(t, "the stop", stopped)
	actortest.Wait(t, "who has withdrawn it", done)
	if got := stops(h, worker); len(got) != 1 || got[0].GetText() != "" {
		t.Errorf("written down %v", got)
	}
}

// TestWhatAStopKeepsOfAnAnswerHasNoSecretsInIt: neither a whole one, nor its beginning at the end of what had arrived.
func TestWhatAStopKeepsOfAnAnswerHasNoSecretsInIt(t *testing.T) {
	const secret = "sk-0123456789abcdef0123456789"
	redact := config.NewRedactor(config.NewSecret(secret))
	for name, c := range map[string]struct {
		pieces []string
		want   string
	}{
		"whole":         {[]string{"it is " + secret[:9], secret[9:] + ", hush"}, redact.String("it is " + secret + ", hush")},
		"its beginning": {[]string{"it is ", secret[:20]}, "it is "},
	} {
		gate := actortest.NewGate()
		store, _, worker := stoppedIn(t, actortest.Options{Model: streaming{c.pieces, gate}, Redact: redact}, gate)
		got := openTurn(t, store, worker).Suspended.GetText()
		if got != c.want || strings.Contains(got, secret[:9]) {
			t.Errorf("%s: kept %q, want %q", name, got, c.want)
		}
	}
}

// TestAStopInTheMiddleOfWhatIsNoTextIsNoDeath: a provider may send anything.
func TestAStopInTheMiddleOfWhatIsNoTextIsNoDeath(t *testing.T) {
	gate := actortest.NewGate()
	store, _, worker := stoppedIn(t, actortest.Options{Model: streaming{[]string{"half \xff"}, gate}}, gate)
	if got := openTurn(t, store, worker).Suspended.GetText(); got != "half \uFFFD" {
		t.Errorf("kept %q", got)
	}
}
