package actors_test

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// unhurried is a store that holds up who reads a worker's journal.
type unhurried struct {
	persistence.Store
	gate *actortest.Gate
}

func (s *unhurried) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	if strings.HasPrefix(stream, messages.WorkerStream("")) {
		if err := s.gate.Pass(ctx); err != nil {
			return err
		}
	}
	return s.Store.Read(ctx, stream, from, fn)
}

func (s *unhurried) Release(l persistence.Lease) { s.Store.(persistence.Releaser).Release(l) }

// TestAWorkerThatReadsItsJournalIsShownAsItWasListed: after a restart a turn that is open is shown as open at once.
func TestAWorkerThatReadsItsJournalIsShownAsItWasListed(t *testing.T) {
	store, asked := kept(t), actortest.NewGate()
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
		if actortest.Asked(r) == "first" {
			return actortest.Reply{Text: "yes"}
		}
		return actortest.Reply{Text: "no", Err: asked.Pass(ctx)}
	})})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "first")
	submit(h, s, "second")
	actortest.Wait(t, "the model", asked.Came)
	h.Stop()

	slow := &unhurried{store, actortest.NewGate()}
	h = actortest.New(t, actortest.Options{Store: slow, Model: actortest.Say("later")})
	opened := actortest.Later[*messages.History](h, s, &messages.ReadHistory{})
	actortest.Wait(t, "the worker reads", slow.gate.Came)
	if v := h.Worker(s); v.GetId() != w || v.GetTurns() != 1 || v.GetTurn() == "" || v.GetState() != "waiting" || v.GetAgent() == "" {
		t.Errorf("shown as %v", v)
	}
	slow.gate.Open()
	actortest.Wait(t, "it is open", opened)
	actortest.Until(t, "the turn has ended", func() bool { return h.Worker(s).GetTurns() == 2 })
}
