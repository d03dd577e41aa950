package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// counting is a store that counts the records of workers that are read.
type counting struct {
	persistence.Store
	read atomic.Int64
}

func (s *counting) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	return s.Store.Read(ctx, stream, from, func(e persistence.Entry) error {
		if strings.HasPrefix(stream, messages.WorkerStream("")) {
			s.read.Add(1)
		}
		return fn(e)
	})
}

func (s *counting) Release(l persistence.Lease) { s.Store.(persistence.Releaser).Release(l) }

// kept is a store that outlives a house.
func kept(t *testing.T) persistence.Store {
	s := memory.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newest(t *testing.T, s persistence.Store, worker string, below uint64) *messages.Snapshot {
	t.Helper()
	snap, err := s.Snapshot(context.Background(), messages.WorkerStream(worker), below)
	if err != nil && !errors.Is(err, persistence.ErrNotFound) {
		t.Fatal(err)
	}
	return snap
}

// longSession runs so many turns that snapshots were written, and stops the house.
func longSession(t *testing.T, store persistence.Store, turns int) (session, worker string) {
	t.Helper()
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	session, worker = h.Create(&messages.CreateSession{})
	for i := range turns {
		h.Run(session, fmt.Sprintf("prompt %d", i))
		if i == turns/2 { // it is written beside the turns, and the last one must not overtake it
			actortest.Until(t, "a snapshot is written", func() bool { return newest(t, store, worker, 0) != nil })
		}
	}
	h.Stop()
	return session, worker
}

func TestALongConversationIsOpenedFromItsSnapshotAndGoesOnAsBefore(t *testing.T) {
	store := &counting{Store: kept(t)}
	session, worker := longSession(t, store, 120)
	whole, err := store.Head(context.Background(), messages.WorkerStream(worker))
	if err != nil {
		t.Fatal(err)
	}
	snap := newest(t, store, worker, 0)
	if snap == nil || newest(t, store, worker, snap.GetSeq()) == nil {
		t.Fatalf("%d records, and no two snapshots", whole)
	}
	store.read.Store(0)
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	history := actortest.Ask[*messages.History](h, session, &messages.ReadHistory{})
	if n := store.read.Load(); n > 64+1 || len(history.GetTurns()) != 120 {
		t.Errorf("%d of %d records were read, for %d turns", n, whole, len(history.GetTurns()))
	}
	if r := h.Run(session, "one more"); r.GetOutcome() != messages.TurnCompleted_DONE || h.Worker(session).GetTurns() != 121 {
		t.Errorf("%v after %d turns", r, h.Worker(session).GetTurns())
	}
}

func TestASnapshotThatIsOfNoUseGivesWayToTheOneBeforeAndThenToTheJournal(t *testing.T) {
	for name, spoil := range map[string]func(*messages.Snapshot){
		"does not decode":    func(s *messages.Snapshot) { s.State = []byte("\xff\xff") },
		"is of another kind": func(s *messages.Snapshot) { s.Schema += 1000 },
		"is cut":             func(s *messages.Snapshot) { s.State = s.GetState()[:len(s.GetState())/2] },
		"is of another time": func(s *messages.Snapshot) { s.Seq-- },
	} {
		t.Run(name, func(t *testing.T) {
			store := &spoiling{counting: &counting{Store: kept(t)}}
			session, worker := longSession(t, store, 120)
			for spoilt := range 3 {
				store.spoil, store.count = spoil, spoilt
				store.read.Store(0)
				h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
				turns := len(actortest.Ask[*messages.History](h, session, &messages.ReadHistory{}).GetTurns())
				head, err := store.Head(context.Background(), messages.WorkerStream(worker))
				if err != nil {
					t.Fatal(err)
				}
				all := store.read.Load() >= int64(head)
				if turns != 120 || all != (spoilt == 2) {
					t.Errorf("%d spoilt: %d turns, %d of %d records read", spoilt, turns, store.read.Load(), head)
				}
				h.Stop()
			}
		})
	}
}

// spoiling hands out its newest snapshots damaged.
type spoiling struct {
	*counting
	spoil func(*messages.Snapshot)
	count int // how many of the newest
}

func (s *spoiling) Snapshot(ctx context.Context, stream string, below uint64) (*messages.Snapshot, error) {
	snap, err := s.counting.Snapshot(ctx, stream, below)
	if err != nil {
		return nil, err
	}
	whole, err := s.counting.Snapshot(ctx, stream, 0)
	if err == nil && (s.count == 2 || s.count == 1 && whole.GetSeq() == snap.GetSeq()) {
		s.spoil(snap)
	}
	return snap, nil
}

func TestAWorkerThatFailedLeavesNoSnapshotOfWhatItMayHaveBroken(t *testing.T) {
	store := &actortest.Store{Store: kept(t)}
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range 20 {
		h.Run(session, fmt.Sprint(i))
	}
	store.Refuse(func(f proto.Message) error {
		if actortest.Is[*messages.TurnStarted](f) {
			return persistence.ErrUnavailable
		}
		return nil
	})
	if _, err := actortest.Try[*messages.InputReply](h, session, &messages.SubmitInput{Parts: actortest.Text("no")}); actortest.Code(err) != messages.CodeUnavailable {
		t.Fatalf("%v", err)
	}
	actortest.Until(t, "the worker was replaced", func() bool { return h.Worker(session).GetRestarts() == 1 })
	if s := newest(t, store, worker, 0); s != nil {
		t.Errorf("a snapshot at %d", s.GetSeq())
	}
	store.Refuse(nil)
	h.Run(session, "again")
	h.Stop()
	if newest(t, store, worker, 0) == nil {
		t.Error("its successor, which stopped in order, left none")
	}
}
