package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// blind is a store that has forgotten all snapshots.
type blind struct{ persistence.Store }

func (b blind) Snapshot(context.Context, string, uint64) (*messages.Snapshot, error) {
	return nil, persistence.ErrNotFound
}

func (b blind) Release(l persistence.Lease) { b.Store.(persistence.Releaser).Release(l) }

// BenchmarkOpenAThousandTurns opens a conversation of 1,000 turns, each with a call and an answer of 1 KiB.
func BenchmarkOpenAThousandTurns(b *testing.B) {
	store, err := badger.Open(context.Background(), badger.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	say := actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		if actortest.Results(r) == nil {
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("c", "glob", `{"pattern":"*"}`)}}
		}
		return actortest.Reply{Text: strings.Repeat("answer ", 150)}
	})
	h := actortest.New(b, actortest.Options{Store: store, Model: say})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range 1000 {
		h.Run(session, fmt.Sprintf("prompt %d", i))
	}
	h.Stop()
	for name, s := range map[string]persistence.Store{"snapshot": store, "journal": blind{store}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				h := actortest.New(b, actortest.Options{Store: s, Model: say})
				actortest.Ask[*messages.Inputs](h, session, &messages.ListInputs{}) // waits until it is open
				if w := h.Worker(session); w.GetId() != worker || w.GetTurns() != 1000 {
					b.Fatal(w)
				}
				h.Stop()
			}
		})
	}
}
